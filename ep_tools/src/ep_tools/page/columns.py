"""Folds a tall picture into columns, as a newspaper does, so that it fills a screen.

A column ends where few lines have to be carried over. Those go down past the column's end, up
between the columns, and on at the top of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Column", "columns_of"]

_ASPECT = 1.5
_LEAST_LAYERS = 14
_LEEWAY = 0.15


@dataclass(frozen=True, slots=True)
class Column:
    """Layers from `first` until before `end`, and the widest of them, in pixels."""

    first: int
    end: int
    width: float

    @property
    def size(self) -> int:
        """How many layers it has."""
        return self.end - self.first


def columns_of(
    widths: Sequence[float], carried: Sequence[int], layer_height: float, gap: float
) -> list[Column]:
    """Return the columns from left to right; one, for a picture that isn't tall.

    Args:
        widths: of the layers, in pixels.
        carried: by layer how many lines go on from it to the next.
        layer_height: from one layer to the next, in pixels.
        gap: between two columns, in pixels.
    """
    if not widths:
        return []
    fewest, most = 1, max(1, len(widths) // _LEAST_LAYERS)
    while fewest < most:
        number = (fewest + most) // 2
        columns = _folded(widths, carried, -(-len(widths) // number))
        width = sum(column.width + gap for column in columns)
        if width < _ASPECT * layer_height * max(column.size for column in columns):
            fewest = number + 1
        else:
            most = number
    return _folded(widths, carried, -(-len(widths) // fewest))


def _folded(widths: Sequence[float], carried: Sequence[int], size: int) -> list[Column]:
    """Columns of about `size` layers each."""
    columns = []
    first = 0
    while first < len(widths):
        end = _break(first, size, carried)
        columns.append(Column(first, end, max(widths[first:end])))
        first = end
    return columns


def _break(first: int, size: int, carried: Sequence[int]) -> int:
    """Where a column ends: near its size, at the layer that carries the fewest lines over."""
    leeway = max(1, int(size * _LEEWAY))
    if len(carried) - first <= size + leeway:
        return len(carried)
    candidates = range(first + max(1, size - leeway), first + size + leeway + 1)
    return min(candidates, key=lambda end: (carried[end - 1], abs(end - first - size)))
