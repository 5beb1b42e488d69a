"""Memory that is used again: what an allocator keeps between a release and the next allocation.

Asking a device for memory is slow, and a model asks for the same sizes in every run. An `Arena`
keeps what was given back and hands it out again. It knows sizes, lifetimes and the order of
streams; what a piece of memory is, and how a device gives it, is the provider's own.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ep_core.contracts import AllocatorStats
from ep_core.errors import AllocationError

__all__ = ["Arena", "Chunk"]

Raw = TypeVar("Raw")
_SIZES_PER_DOUBLING = 8
"""More of them waste less of each chunk, and fewer chunks serve values of other shapes too."""


@dataclass(eq=False, slots=True)
class Chunk(Generic[Raw]):
    """One piece of memory of the device.

    Attributes:
        raw: what `reserve` returned.
        size: its bytes.
        wanted: bytes that were asked for by whoever has it now.
        is_idle: when it was taken, no work that was queued could still use it.
        turn: how often it has been given back.
        home: the stream that it was taken for first, while that lives; nobody's without one.
    """

    raw: Raw
    size: int
    wanted: int = 0
    is_idle: bool = True
    turn: int = 0
    home: weakref.ref[object] | None = None

    def owner(self) -> object | None:
        """The stream that it belongs to, None if it is nobody's."""
        return None if self.home is None else self.home()


class Arena(Generic[Raw]):
    """Hands out chunks and takes them back. Safe on many threads.

    A chunk that was given back on a stream may be taken for later work on that stream at once, for
    the stream keeps the order. It stays that stream's after `settle` too, for as long as the stream
    lives: if others took what lies idle at the moment, it would depend on how fast the device is
    whether the same work needs new memory the next time. For the same reason a chunk serves its
    own size only, to which requests are rounded up. What was taken without a stream is everybody's
    after `settle`. Before memory runs out, what lies idle goes back to the device, and a stream
    gets larger chunks of its own.

    Args:
        reserve: gets memory of so many bytes from the device; raises AllocationError if it has
            none left. Called under the arena's lock, like `free`.
        free: returns it to the device.
        alignment: sizes are multiples of it, in bytes.
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
        # Free chunks by size and by the stream whose work may still use them, None for nobody.
        self._free: dict[tuple[object | None, int], list[Chunk[Raw]]] = {}
        self._unsettled = 0  # those that streams may still use
        self._in_use = 0
        self._peak = 0
        self._reserved = 0
        self._taken = 0
        self._given = 0
        self._reservations = 0
        self._closed = False

    def take(self, nbytes: int, stream: object | None = None) -> Chunk[Raw]:
        """Return a chunk of at least `nbytes`, for work submitted to `stream` from now on.

        Memory that lies idle is given back to the device before an allocation fails.

        Raises:
            AllocationError: what `reserve` raised, when nothing free was left to help.
        """
        size = self._rounded(nbytes)
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
            if chunk.turn == turn and chunk in self._free.get((stream, chunk.size), ()):
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
                device_allocations=self._reservations,
            )

    # ------------------------------------------------------------ inside, under the lock

    def _rounded(self, nbytes: int) -> int:
        """Up to the next of the sizes that chunks have."""
        step = (1 << max(0, nbytes.bit_length() - 1)) // _SIZES_PER_DOUBLING
        step = _multiple(max(step, 1), self._alignment)
        return _multiple(nbytes, step)

    def _reused(self, size: int, stream: object | None) -> Chunk[Raw] | None:
        """A free chunk of that size: the stream's own, or nobody's."""
        for owner in dict.fromkeys((stream, None)):
            for order in dict.fromkeys((stream, None)):
                chunks = self._free.get((order, size), ())
                chunk = next((c for c in chunks if c.owner() is owner), None)
                if chunk is not None:
                    return self._taken_out(chunk, order, stream)
        return None

    def _larger(self, size: int, stream: object | None) -> Chunk[Raw] | None:
        """The smallest chunk that fits among those that a stream has in its order."""
        sizes = [s for order, s in self._free if order is stream and s >= size]
        if stream is None or not sizes:
            return None
        return self._taken_out(self._free[stream, min(sizes)][0], stream, stream)

    def _taken_out(
        self, chunk: Chunk[Raw], order: object | None, stream: object | None
    ) -> Chunk[Raw]:
        self._drop(chunk, order)
        chunk.is_idle = order is None
        if chunk.owner() is None:
            chunk.home = _reference(stream)
        return chunk

    def _reserved_or_waited_for(self, size: int, stream: object | None) -> Chunk[Raw]:
        with contextlib.suppress(AllocationError):
            return self._new(size, stream)
        found: list[Chunk[Raw]] = []

        def is_found() -> bool:
            """A chunk is there, or there is nothing more to hope for."""
            self._trim()
            with contextlib.suppress(AllocationError):
                chunk = self._reused(size, stream)
                chunk = chunk or self._larger(size, stream) or self._new(size, stream)
                found.append(chunk)
            return bool(found) or not self._unsettled

        self._settled.wait_for(is_found, self._patience)
        return found[0] if found else self._new(size, stream)

    def _new(self, size: int, stream: object | None) -> Chunk[Raw]:
        raw = self._reserve(size)
        self._reserved += size
        self._reservations += 1
        return Chunk(raw, size, home=_reference(stream))

    def _put(self, chunk: Chunk[Raw], stream: object | None) -> None:
        self._free.setdefault((stream, chunk.size), []).append(chunk)
        self._unsettled += stream is not None
        if stream is None:
            if self._closed:
                self._trim()
            self._settled.notify_all()

    def _drop(self, chunk: Chunk[Raw], stream: object | None) -> None:
        chunks = self._free[stream, chunk.size]
        chunks.remove(chunk)
        self._unsettled -= stream is not None
        if not chunks:
            del self._free[stream, chunk.size]

    def _trim(self) -> None:
        for stream, size in list(self._free):
            if stream is None:
                for chunk in self._free.pop((stream, size)):
                    self._reserved -= size
                    self._free_raw(chunk.raw)


def _multiple(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _reference(stream: object | None) -> weakref.ref[object] | None:
    """A stream that doesn't live on for this; None for none, and for what can't be referred to."""
    try:
        return None if stream is None else weakref.ref(stream)
    except TypeError:
        return None
