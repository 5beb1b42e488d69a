"""Where values lie inside one arena: planned once, from sizes and lifetimes alone.

Knows nothing of graphs or providers. The method is greedy by size with best fit (Pisarchyk and
Lee 2020, "Efficient Memory Management for Deep Neural Net Inference", section 5.3): the largest
value first, each into the smallest gap that is free during all of its life. Its time grows with
the number of values times how many live together; where that is too much, values are placed as
they come to life instead, which takes more memory only if many die early.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ALIGNMENT", "Lifetime", "MemoryPlan", "plan_memory"]

ALIGNMENT = 64
"""Bytes; offsets are multiples of it. One cache line, and the widest vector register."""

_MOST_VALUES = 20_000
_MOST_MEETINGS = 4_000_000
"""Values, and values times how many of them live together, that are planned by size: a second."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How large a value is and when it lives.

    Attributes:
        nbytes: at least 1.
        start: number of the step that writes it.
        end: number of the last step that reads it, or may read it through a view.
    """

    nbytes: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The result of planning.

    Attributes:
        offsets: one per lifetime, in bytes from the start of the arena.
        planned_bytes: size of the arena.
        unshared_bytes: what the values would take if each had memory of its own.
        live_bytes: the most that is alive at one time; no plan can be smaller.
    """

    offsets: tuple[int, ...]
    planned_bytes: int
    unshared_bytes: int
    live_bytes: int


def plan_memory(lifetimes: Sequence[Lifetime], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Give every value an offset so that values alive at the same time don't overlap.

    Both ends of a lifetime count: a step that reads one value while it writes another needs both.
    """
    sizes = [-(-item.nbytes // alignment) * alignment for item in lifetimes]
    meetings = len(sizes) * _most_alive(lifetimes, [1] * len(sizes))
    is_small = len(sizes) <= _MOST_VALUES and meetings <= _MOST_MEETINGS
    offsets = _by_size(lifetimes, sizes) if is_small else _by_start(lifetimes, sizes)
    top = max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
    return MemoryPlan(tuple(offsets), top, sum(sizes), _most_alive(lifetimes, sizes))


def _by_size(lifetimes: Sequence[Lifetime], sizes: Sequence[int]) -> list[int]:
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], lifetimes[i].start, i))
    # Rows of placed values, in order of placing: start, end, offset, end of memory.
    placed = np.empty((4, len(sizes)), np.int64)
    offsets = [0] * len(sizes)
    for count, index in enumerate(order):
        item = lifetimes[index]
        done = placed[:, :count]
        meets = (done[0] <= item.end) & (done[1] >= item.start)
        offset = _best_gap(done[2:, meets], sizes[index])
        offsets[index] = offset
        placed[:, count] = (item.start, item.end, offset, offset + sizes[index])
    return offsets


def _by_start(lifetimes: Sequence[Lifetime], sizes: Sequence[int]) -> list[int]:
    """Place values as they come to life, each into the smallest dead block that is large enough.

    Blocks are never split or joined.
    """
    offsets = [0] * len(sizes)
    free: list[tuple[int, int]] = []  # size and offset, ascending
    dying: list[tuple[int, int, int]] = []  # last step, size and offset; a heap
    top = 0
    for index in sorted(range(len(sizes)), key=lambda i: (lifetimes[i].start, i)):
        size = sizes[index]
        while dying and dying[0][0] < lifetimes[index].start:
            bisect.insort(free, heapq.heappop(dying)[1:])
        found = bisect.bisect_left(free, (size, 0))
        if found < len(free):
            block, offsets[index] = free.pop(found)
        else:
            block, offsets[index] = size, top
            top += size
        heapq.heappush(dying, (lifetimes[index].end, block, offsets[index]))
    return offsets


def _best_gap(taken: np.ndarray[Any, Any], size: int) -> int:
    """The start of the smallest gap between taken ranges that holds `size`, else their end."""
    best_offset = -1
    best_gap = 0
    free_from = 0
    for begin, end in sorted(zip(taken[0].tolist(), taken[1].tolist(), strict=True)):
        gap = begin - free_from
        if gap >= size and (best_offset < 0 or gap < best_gap):
            best_offset = free_from
            best_gap = gap
        free_from = max(free_from, end)
    return free_from if best_offset < 0 else best_offset


def _most_alive(lifetimes: Sequence[Lifetime], sizes: Sequence[int]) -> int:
    changes: dict[int, int] = {}
    for item, size in zip(lifetimes, sizes, strict=True):
        changes[item.start] = changes.get(item.start, 0) + size
        changes[item.end + 1] = changes.get(item.end + 1, 0) - size
    alive = 0
    most = 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    return most
