"""Memory that is used again: what an allocator keeps between a release and the next allocation.

Asking a device for memory is slow, and a model asks for the same sizes in every run. An `Arena`
keeps what was given back and hands it out again. It knows sizes, lifetimes and the order of
streams; what a piece of memory is, and how a device gives it, is the provider's own.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ep_core.contracts import AllocatorStats
from ep_core.errors import AllocationError

__all__ = ["Arena", "Chunk"]

Raw = TypeVar("Raw")
_WASTE = 2
"""A chunk goes only to requests of at least its size divided by this."""


@dataclass(eq=False, slots=True)
class Chunk(Generic[Raw]):
    """One piece of memory of the device.

    Attributes:
        raw: what `reserve` returned.
        size: its bytes, a multiple of the alignment.
        wanted: bytes that were asked for by whoever has it now.
        is_idle: when it was taken, no work that was queued could still use it.
        turn: how often it has been given back.
    """

    raw: Raw
    size: int
    wanted: int = 0
    is_idle: bool = True
    turn: int = 0


class Arena(Generic[Raw]):
    """Hands out chunks and takes them back. Safe on many threads.

    A chunk that was given back on a stream may be taken for later work on that stream at once, for
    the stream keeps the order. Everybody else may have it after `settle`.

    Args:
        reserve: gets memory of so many bytes from the device; raises AllocationError if it has
            none left. Called under the arena's lock, like `free`.
        free: returns it to the device.
        alignment: sizes are rounded up to multiples of it, in bytes.
        patience: seconds to wait for a `settle` where memory has run out without it.
    """

    def __init__(
        self,
        reserve: Callable[[int], Raw],
        free: Callable[[Raw], None],
        alignment: int,
        patience: float = 0.0,
    ) -> None:
        self._reserve = reserve
        self._free_raw = free
        self._alignment = alignment
        self._patience = patience
        # Entering a Condition isn't safe from interrupts, entering its lock is.
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        # Free chunks by the stream whose work may still use them, None for those nobody uses;
        # ascending by size.
        self._free: dict[object | None, list[Chunk[Raw]]] = {None: []}
        self._in_use = 0
        self._peak = 0
        self._reserved = 0
        self._taken = 0
        self._given = 0
        self._closed = False

    def take(self, nbytes: int, stream: object | None = None) -> Chunk[Raw]:
        """Return a chunk of at least `nbytes`, for work submitted to `stream` from now on.

        Memory that lies idle is given back to the device before an allocation fails.

        Raises:
            AllocationError: what `reserve` raised, when nothing free was left to help.
        """
        size = -(-nbytes // self._alignment) * self._alignment
        with self._lock:
            chunk = self._reused(size, stream) or self._reserved_or_waited_for(size, stream)
            chunk.wanted = nbytes
            self._taken += 1
            self._in_use += nbytes
            self._peak = max(self._peak, self._in_use)
        return chunk

    def give(self, chunk: Chunk[Raw], stream: object | None = None) -> int:
        """Take a chunk back; work submitted to `stream` until now may still use it.

        Returns:
            What `settle` wants to know later. With no stream there is nothing to settle.
        """
        with self._lock:
            chunk.turn += 1
            self._given += 1
            self._in_use -= chunk.wanted
            self._put(chunk, stream)
            return chunk.turn

    def settle(self, chunk: Chunk[Raw], turn: int, stream: object) -> None:
        """`stream` has got to where the chunk was given back: anybody may have it now.

        Does nothing if the chunk has been taken again in the meantime.
        """
        with self._lock:
            if chunk.turn == turn and chunk in self._free.get(stream, ()):
                self._drop(chunk, stream)
                self._put(chunk, None)

    def trim(self) -> None:
        """Return all memory to the device that nobody uses."""
        with self._lock:
            self._trim()

    def close(self) -> None:
        """Return what is free, and from now on everything as soon as nobody uses it."""
        with self._lock:
            self._closed = True
            self._trim()

    def stats(self) -> AllocatorStats:
        """Counters. Reserved is what the device has given, in use or not."""
        with self._lock:
            return AllocatorStats(
                in_use_bytes=self._in_use,
                peak_bytes=self._peak,
                reserved_bytes=self._reserved,
                allocations=self._taken,
                releases=self._given,
            )

    # ------------------------------------------------------------ inside, under the lock

    def _reused(self, size: int, stream: object | None) -> Chunk[Raw] | None:
        """The smallest free chunk that fits without much waste."""
        best: tuple[Chunk[Raw], object | None] | None = None
        for owner in dict.fromkeys((stream, None)):
            chunks = self._free.get(owner, [])
            at = bisect.bisect_left(chunks, size, key=_size)
            if at == len(chunks) or chunks[at].size > size * _WASTE:
                continue
            if best is None or chunks[at].size < best[0].size:
                best = (chunks[at], owner)
        if best is None:
            return None
        chunk, owner = best
        self._drop(chunk, owner)
        chunk.is_idle = owner is None
        return chunk

    def _reserved_or_waited_for(self, size: int, stream: object | None) -> Chunk[Raw]:
        try:
            return self._new(size)
        except AllocationError:
            self._trim()
        found: list[Chunk[Raw]] = []

        def is_found() -> bool:
            """A chunk is there, or there is nothing more to hope for."""
            try:
                found.append(self._reused(size, stream) or self._new(size))
            except AllocationError:
                self._trim()
                return list(self._free) == [None]
            return True

        self._settled.wait_for(is_found, self._patience)
        return found[0] if found else self._new(size)

    def _new(self, size: int) -> Chunk[Raw]:
        raw = self._reserve(size)
        self._reserved += size
        return Chunk(raw, size)

    def _put(self, chunk: Chunk[Raw], stream: object | None) -> None:
        bisect.insort(self._free.setdefault(stream, []), chunk, key=_size)
        if stream is None:
            if self._closed:
                self._trim()
            self._settled.notify_all()

    def _drop(self, chunk: Chunk[Raw], stream: object | None) -> None:
        chunks = self._free[stream]
        chunks.remove(chunk)
        if not chunks and stream is not None:
            del self._free[stream]

    def _trim(self) -> None:
        chunks = self._free[None]
        while chunks:
            chunk = chunks.pop()
            self._reserved -= chunk.size
            self._free_raw(chunk.raw)


def _size(chunk: Chunk[Raw]) -> int:
    return chunk.size
