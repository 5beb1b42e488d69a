"""Random choices that are the same on every machine: whole numbers of a pinned bit generator.

numpy promises that the raw numbers of PCG64 and the seeding stay as they are, which it doesn't for
its distributions. Floats are whole numbers times a power of two, so no library function has a say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

__all__ = ["Draws"]

T = TypeVar("T")
_HIGH_BITS = np.uint64(11)


class Draws:
    """A stream of choices."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def below(self, count: int) -> int:
        """A whole number from 0 to `count - 1`."""
        return (int(self._bits.random_raw()) >> 11) % count

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases."""
        return self.below(100) < percent

    def choose(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """So many different items, in random order; all of them if there are fewer."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]

    def integers(
        self, shape: Sequence[int], low: int, high: int
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        """An array of whole numbers from `low` to `high`, both included."""
        count = 1
        for length in shape:
            count *= length
        raw = np.asarray(self._bits.random_raw(count), np.uint64) >> _HIGH_BITS
        numbers = (raw % np.uint64(high - low + 1)).astype(np.int64) + low
        return numbers.reshape(tuple(shape))
