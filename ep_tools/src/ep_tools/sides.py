"""The words that name one side of a comparison: `cpu`, `simulator,cpu`, `level:0`, `onnxruntime`.

Only text is looked at here; `comparing` makes sessions of it.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

__all__ = ["ONNXRUNTIME", "Side", "parse_side"]

ONNXRUNTIME = "onnxruntime"
LEVELS = (0, 1, 2, 3, 99)


@dataclass(frozen=True, slots=True)
class Side:
    """One side; what is None is as it would be without it.

    Attributes:
        text: as it was written.
        providers: names in order of preference.
        level: value of `GraphOptimizationLevel`.
    """

    text: str
    providers: tuple[str, ...] | None = None
    level: int | None = None

    @property
    def is_onnxruntime(self) -> bool:
        """True if the side is ONNX Runtime, not us."""
        return self.text == ONNXRUNTIME


def parse_side(text: str) -> Side:
    """Return what a word names.

    Raises:
        argparse.ArgumentTypeError: it names nothing.
    """
    if text == ONNXRUNTIME:
        return Side(text)
    level = re.fullmatch(r"level:(\d+)", text)
    if level and int(level[1][:9]) in LEVELS:
        return Side(text, level=int(level[1][:9]))
    names = tuple(name.strip() for name in text.split(","))
    if all(names) and not text.startswith("level:"):
        return Side(text, providers=names)
    levels = ", ".join(f"level:{number}" for number in LEVELS)
    raise argparse.ArgumentTypeError(
        f"'{text}' is neither providers, such as simulator,cpu, nor one of {levels}, {ONNXRUNTIME}"
    )
