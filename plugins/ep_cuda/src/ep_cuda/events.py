"""Points in the work of streams: pycuda's events, and host words that kernels' faults are read to.

Both are used again and again. Pycuda destroys an event on the thread where its last user is
collected, which may have no context; so what nobody uses any more goes back to a pool.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import pycuda.driver as drv

from ep_core.contracts import HostArray
from ep_cuda.context import Context

__all__ = ["EventPool", "PooledEvent", "Word", "WordPool"]

_WORDS = 1024


class PooledEvent:
    """An event of pycuda while somebody uses it.

    Attributes:
        raw: pycuda's object.
    """

    __slots__ = ("_pool", "raw")

    def __init__(self, raw: drv.Event, pool: deque[drv.Event]) -> None:
        self.raw = raw
        self._pool = pool

    def __del__(self) -> None:
        # It may be recorded anew at once: who waits for it waits for what it was.
        self._pool.append(self.raw)


class EventPool:
    """Events of one kind of a device. Safe on many threads; its context must be current.

    Args:
        flags: of the events.
    """

    def __init__(self, flags: int) -> None:
        self._flags = flags
        self._free: deque[drv.Event] = deque()

    def take(self) -> PooledEvent:
        """An event that nobody else uses.

        Raises:
            drv.Error: the driver gives no more.
        """
        try:
            raw = self._free.pop()
        except IndexError:
            raw = drv.Event(self._flags)
        return PooledEvent(raw, self._free)

    def let_go(self) -> None:
        """Destroy what nobody uses; for the end of the process."""
        self._free.clear()


class Word:
    """An int in page-locked memory, into which the device writes while the host goes on.

    Attributes:
        array: of one int.
    """

    __slots__ = ("_pool", "array")

    def __init__(self, array: HostArray, pool: deque[HostArray]) -> None:
        self.array = array
        self._pool = pool

    def __del__(self) -> None:
        self._pool.append(self.array)


class WordPool:
    """Words of one device. Safe on many threads; they are kept as long as the process lives."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._free: deque[HostArray] = deque()

    def take(self) -> Word:
        """A word that nobody else uses, 0.

        Raises:
            AllocationError: the driver has no more page-locked memory.
        """
        try:
            array = self._free.pop()
        except IndexError:
            with self._context.doing("allocating words for faults"):
                block = drv.pagelocked_empty(_WORDS, np.int32)
            self._free.extend(block[at : at + 1] for at in range(1, _WORDS))
            array = block[:1]
        array[0] = 0
        return Word(array, self._free)

    def let_go(self) -> None:
        """Free what nobody uses, with the context current; for the end of the process."""
        self._free.clear()
