"""Shapes that views of a tensor have, from ONNX's attributes and inputs: for any memory.

Numbers in, numbers out; no tensor is touched here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ep_core.errors import RunError

__all__ = ["Shape", "flattened", "positive_axis", "reshaped", "squeezed", "unsqueezed"]

Shape = tuple[int, ...]


def positive_axis(axis: int, rank: int) -> int:
    """The axis counted from the front.

    Raises:
        RunError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise RunError("axis out of range", expected=f"within {-rank}..{rank - 1}", got=axis)
    return axis % rank


def reshaped(shape: Shape, wanted: Sequence[int], *, zero_copies: bool) -> Shape:
    """The shape that Reshape gives; one -1 takes what is left.

    Args:
        zero_copies: a 0 stands for the length at its place, which is so without `allowzero`.

    Raises:
        RunError: the elements don't fit.
    """
    lengths = [
        shape[index] if length == 0 and zero_copies and index < len(shape) else length
        for index, length in enumerate(wanted)
    ]
    count = math.prod(shape)
    if lengths.count(-1) == 1:
        rest = math.prod(length for length in lengths if length != -1)
        if rest and count % rest == 0:
            lengths[lengths.index(-1)] = count // rest
    if min(lengths, default=0) < 0 or math.prod(lengths) != count:
        raise RunError(f"{list(shape)} can't be reshaped", expected=f"to fit {list(wanted)}")
    return tuple(lengths)


def flattened(shape: Shape, axis: int) -> Shape:
    """The two lengths that Flatten gives.

    Raises:
        RunError: there is no such axis.
    """
    start = axis if axis == len(shape) else positive_axis(axis, len(shape))
    return (math.prod(shape[:start]), math.prod(shape[start:]))


def squeezed(shape: Shape, axes: Sequence[int] | None) -> Shape:
    """The shape without some axes of length 1, for None without all of them.

    Raises:
        RunError: there is no such axis, or it isn't of length 1.
    """
    if axes is None:
        return tuple(length for length in shape if length != 1)
    gone = {positive_axis(axis, len(shape)) for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise RunError(f"axes {sorted(gone)} of {list(shape)} aren't all of length 1")
    return tuple(length for axis, length in enumerate(shape) if axis not in gone)


def unsqueezed(shape: Shape, axes: Sequence[int]) -> Shape:
    """The shape with new axes of length 1, counted in the result.

    Raises:
        RunError: there is no such axis, or it is named twice.
    """
    rank = len(shape) + len(axes)
    new = {positive_axis(axis, rank) for axis in axes}
    if len(new) != len(axes):
        raise RunError("an axis is named twice", got=list(axes))
    old = iter(shape)
    return tuple(1 if axis in new else next(old) for axis in range(rank))
