"""What the generator knows of a value without computing it: type, shape, range, exactness."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ep_compliance.oracle.precision import float_format, integer_limits
from ep_core.types import DataType

__all__ = ["Shape", "Value", "broadcast", "fits", "holds", "size_of"]

Shape = tuple[int, ...]

_MOST = {
    DataType.FLOAT16: 256.0,
    DataType.BFLOAT16: 4096.0,
    DataType.FLOAT: 4096.0,
    DataType.DOUBLE: 65536.0,
}
"""Larger floats aren't made, so that nothing overflows and errors stay small beside values."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a growing graph.

    Attributes:
        low, high: no element lies outside; bounds, not the smallest and the largest element.
        grain: a power of two that divides every element, so that the value is the same however
            it is computed; 0 where roundings have a say in it.
        constant: an initializer.
    """

    name: str
    dtype: DataType
    shape: Shape
    low: float
    high: float
    grain: float
    constant: bool = False

    @property
    def bound(self) -> float:
        """No element is larger in magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def exact(self) -> bool:
        """The value is the same for everybody, to the bit."""
        return self.grain > 0

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return size_of(self.shape)

    def reshaped(self, shape: Sequence[int]) -> Value:
        """The same elements, or some of them, in another shape."""
        return dataclasses.replace(self, shape=tuple(shape))


def size_of(shape: Sequence[int]) -> int:
    """Number of elements of a shape."""
    count = 1
    for length in shape:
        count *= length
    return count


def holds(dtype: DataType, bound: float, grain: float) -> bool:
    """True if a type has every multiple of `grain` up to `bound`."""
    if dtype is DataType.BOOL:
        return grain >= 1 and bound <= 1
    if dtype.is_integer:
        return grain >= 1 and bound <= integer_limits(dtype.numpy)[1]
    return grain > 0 and bound / grain <= 2.0 ** (float_format(dtype.numpy).fraction_bits + 1)


def fits(dtype: DataType, low: float, high: float) -> bool:
    """True if a range is within what the generator lets values of a type become."""
    if dtype.is_integer:
        smallest, largest = integer_limits(dtype.numpy)
        return smallest <= low and high <= min(largest, 2**40)
    return max(abs(low), abs(high)) <= _MOST.get(dtype, 1.0)


def broadcast(*shapes: Shape) -> Shape | None:
    """The shape that all shapes broadcast to; None if they don't."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for axis in range(-rank, 0):
        lengths = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(lengths) > 1:
            return None
        result.append(lengths.pop() if lengths else 1)
    return tuple(result)
