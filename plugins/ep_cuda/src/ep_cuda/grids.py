"""How work-items become blocks and grids, and arguments become bytes. Calls nothing of CUDA."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["Triple", "block_for", "pack_arguments", "padded", "range_bytes", "slices_of"]

_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Of a grid, by dimension; the same for all chips."""
_MOST_THREADS = (1024, 1024, 64)
"""Of a block, by dimension; the same for all chips."""

_RANGE = struct.Struct("@QQQIII4x")
_RANGE_ALIGNMENT = 8

Triple = tuple[int, int, int]


def padded(lengths: tuple[int, ...]) -> Triple:
    """One to three lengths as three; missing ones are 1."""
    x, y, z = (*lengths, 1, 1)[:3]
    return x, y, z


def range_bytes(size: Triple, first: Triple) -> bytes:
    """`ep_range` of the prelude.

    Args:
        size: work-items by dimension.
        first: number of the grid's first block by dimension.
    """
    return _RANGE.pack(*size, *first)


@lru_cache(maxsize=4096)
def block_for(size: Triple, threads: int) -> Triple:
    """Threads by dimension for work that doesn't ask for a shape: powers of two, x first.

    Args:
        size: work-items.
        threads: of a block at most, a power of two.
    """
    left = threads
    lengths = []
    for length, most in zip(size, _MOST_THREADS, strict=True):
        wanted = 1 << (length - 1).bit_length()
        taken = min(wanted, left, most)
        lengths.append(taken)
        left //= taken
    x, y, z = lengths
    return x, y, z


def slices_of(
    size: Triple, block: Triple, most: Triple = _MOST_BLOCKS
) -> Iterator[tuple[Triple, Triple]]:
    """Grids that cover all work-items, each with the number of its first block by dimension.

    Args:
        size: work-items.
        block: threads of a block.
        most: blocks of a grid.
    """
    counts = [-(-length // each) for length, each in zip(size, block, strict=True)]
    starts = [range(0, count, limit) for count, limit in zip(counts, most, strict=True)]
    for x, y, z in itertools.product(*starts):
        first = (x, y, z)
        grid = [
            min(count - start, limit)
            for count, start, limit in zip(counts, first, most, strict=True)
        ]
        yield padded(tuple(grid)), first


def pack_arguments(arguments: Sequence[Any]) -> bytes:
    """Arguments one behind the other, each at a multiple of its element's size.

    The end is padded so that the range, whose elements have 8 bytes, can follow.
    """
    parts: list[bytes] = []
    at = 0
    for argument in arguments:
        if type(argument) is int:
            raw, align = argument.to_bytes(8, "little"), 8
        else:
            raw, align = argument.tobytes(), argument.dtype.itemsize
        gap = -at % align
        if gap:
            parts.append(bytes(gap))
        parts.append(raw)
        at += gap + len(raw)
    parts.append(bytes(-at % _RANGE_ALIGNMENT))
    return b"".join(parts)
