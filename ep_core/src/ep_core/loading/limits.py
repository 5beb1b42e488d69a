"""What the loader puts up with, and how its errors name things.

Shared by the modules behind `load.py`; nothing here reads a model.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from ep_core.errors import InvalidModelError, ModelLimitError, did_you_mean

__all__ = ["LoadLimits", "plain_domain", "quoted", "suggestion", "text"]

_LONGEST_NAME = 120
_MOST_CANDIDATES = 2000


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Bounds on what a model may ask for; beyond one of them loading raises ModelLimitError.

    Attributes:
        max_file_bytes: size of the model itself, without external data. Protobuf can't go beyond
            2 GiB.
        max_tensor_bytes: size of one tensor.
        max_densified_bytes: size of one sparse tensor once it is dense; the only place where a
            model gets more memory than the bytes it brings.
        max_nodes: nodes in all graphs together, after local functions are inlined.
        max_initializers: constants in all graphs together.
        max_nesting_depth: bodies within bodies, after local functions are inlined. Protobuf can't
            parse more than about 30.
        max_function_depth: local functions that call one another in a chain.
    """

    max_file_bytes: int = 2**31
    max_tensor_bytes: int = 2**35
    max_densified_bytes: int = 2**30
    max_nodes: int = 1_000_000
    max_initializers: int = 1_000_000
    max_nesting_depth: int = 28
    max_function_depth: int = 128

    def check(self, name: str, amount: int, what: str) -> None:
        """Raise ModelLimitError if `amount` is above the limit called `name`."""
        limit: int = getattr(self, name)
        if amount > limit:
            raise ModelLimitError(
                f"{what} exceeds the limit {name}",
                expected=f"at most {limit}",
                got=amount if amount < 2**64 else "more than 2**64",
                fix=f"If you trust the model, raise it: limits=LoadLimits({name}=...).",
            )


def quoted(name: object) -> str:
    """A name from the model as an error shows it: quoted, and cut if it is very long."""
    shown = repr(name)
    return shown if len(shown) <= _LONGEST_NAME else shown[:_LONGEST_NAME] + "...'"


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """`Did you mean ...?`, or None without a close match; cheap however large the model is."""
    if len(name) > _LONGEST_NAME:
        return None
    short = (item for item in known if len(item) <= _LONGEST_NAME)
    close = difflib.get_close_matches(name, itertools.islice(short, _MOST_CANDIDATES))
    return did_you_mean(name, close) if close else None


def text(value: object, what: str) -> str:
    """Return a protobuf string field; protobuf hands out `bytes` where it isn't UTF-8."""
    if isinstance(value, str):
        return value
    raise InvalidModelError(f"{what} isn't valid UTF-8", got=quoted(value))


def plain_domain(domain: str) -> str:
    """The domain of operators under its usual name: `ai.onnx` is the default one."""
    return "" if domain == "ai.onnx" else domain
