"""Host memory that values of static shape share when they don't live together, run after run.

What lives how long is known from `ordering.py`; a context makes the memory.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import replace

from ep_core.running.ordering import Order, Slot
from ep_core.running.plan import Copy, Run, Scratch
from ep_core.types import DataType, TensorType, ValueType

__all__ = ["share_scratch", "static_bytes", "static_tensor"]

_Block = tuple[int, int]
"""Bytes and number, so that blocks are sorted by size."""


def share_scratch(order: Order, table: list[Scratch]) -> None:
    """Give host values memory that is used again once they are dead, and say so in their steps.

    Linear scan over the steps.

    Args:
        table: of all plans of a session; what is new is appended.
    """
    blocks = _Blocks(1 + max((item.block for item in table), default=-1))
    dying: dict[int, list[tuple[Slot, _Block]]] = {}
    for at, draft in enumerate(order.drafts):
        chosen: list[int | None] = [None] * len(draft.makes)
        for position, number in enumerate(draft.makes):
            slot = order.slots[number]
            kind = slot.writable
            if kind is None or slot.is_kept or slot.is_held or number not in order.used:
                continue
            block = blocks.take(slot, static_bytes(kind) or 0)
            if number in order.dead:
                dying.setdefault(order.dead[number], []).append((slot, block))
            chosen[position] = len(table)
            table.append(Scratch(kind.dtype, kind.static_shape or (), block[1], slot.pinner))
        if isinstance(draft.step, Copy):
            draft.step = replace(draft.step, scratch=chosen[0])
        elif isinstance(draft.step, Run) and any(item is not None for item in chosen):
            draft.step = replace(draft.step, scratch=tuple(chosen))
        for slot, block in dying.pop(at, ()):
            blocks.give(slot, block)


class _Blocks:
    """Blocks of memory that nobody lives in, by whose page-locked memory they are.

    Args:
        first: number of the first new block.
    """

    def __init__(self, first: int) -> None:
        self._next = first
        self._free: dict[int | None, list[_Block]] = {}  # ascending

    def take(self, slot: Slot, size: int) -> _Block:
        """A block for a value.

        It fills at least half of it, so that a large block isn't tied up by small values.
        """
        free = self._free.setdefault(slot.pinner, [])
        found = bisect.bisect_left(free, (size, 0))
        if found < len(free) and free[found][0] <= 2 * size:
            return free.pop(found)
        self._next += 1
        return size, self._next - 1

    def give(self, slot: Slot, block: _Block) -> None:
        """Take back what `take` gave."""
        bisect.insort(self._free.setdefault(slot.pinner, []), block)


def static_tensor(kind: ValueType | None) -> TensorType | None:
    """The type if it is a tensor of static shape and fixed element size."""
    return kind if isinstance(kind, TensorType) and static_bytes(kind) is not None else None


def static_bytes(kind: ValueType | None) -> int | None:
    """Bytes of a host array of a type, None where shape or element size is unknown."""
    if not isinstance(kind, TensorType) or kind.dtype is DataType.STRING:
        return None
    shape = kind.static_shape
    return None if shape is None else math.prod(shape) * kind.dtype.numpy.itemsize
