"""Boxes of types that an operator is granted, and joining them.

Joining never adds a combination of type parameters that wasn't shown. Nothing here knows cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Box", "Types", "merged"]

Types = tuple[frozenset[str] | None, ...]
"""Types by position, None for any."""


@dataclass(frozen=True, slots=True)
class Box:
    """Choices of types that are granted: every combination of them.

    Attributes:
        dtypes: names of element types by type parameter, ordered by parameter.
        waived: how many cases were let through.
        alone: some cases had the operator alone, not only behind others that work its inputs out.
        vendor: the distribution that some of the cases come from, if any do.
    """

    dtypes: tuple[tuple[str, frozenset[str]], ...]
    inputs: Types
    outputs: Types
    waived: int
    alone: bool
    vendor: str


def merged(boxes: list[Box]) -> list[Box]:
    """Join boxes that differ in one type parameter only, which adds no combination."""
    names = sorted({name for box in boxes for name, _ in box.dtypes})
    for name in names:
        groups: dict[Any, list[Box]] = {}
        for box in boxes:
            others = tuple(item for item in box.dtypes if item[0] != name)
            has = any(item[0] == name for item in box.dtypes)
            shape = (len(box.inputs), len(box.outputs))
            notes = (bool(box.waived), box.alone, box.vendor)
            groups.setdefault((others, has, shape, notes), []).append(box)
        boxes = [_union(group, name) for group in groups.values()]
    return boxes


def _union(boxes: Sequence[Box], name: str) -> Box:
    first = boxes[0]
    joined = frozenset[str]().union(
        *(kinds for box in boxes for key, kinds in box.dtypes if key == name)
    )
    return Box(
        tuple((key, joined if key == name else kinds) for key, kinds in first.dtypes),
        _joined([box.inputs for box in boxes]),
        _joined([box.outputs for box in boxes]),
        sum(box.waived for box in boxes),
        first.alone,
        first.vendor,
    )


def _joined(sides: Sequence[Types]) -> Types:
    return tuple(_either(column) for column in zip(*sides, strict=True))


def _either(column: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    known = [types for types in column if types is not None]
    return frozenset[str]().union(*known) if len(known) == len(column) else None
