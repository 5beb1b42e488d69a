"""Page-locked host memory of a simulated device: arrays like any other, which are counted.

Nothing is really locked. What the simulator makes of it is that it knows such arrays again, for a
copy from or to other host memory can be told to keep the host waiting.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np

from ep_core.contracts import HostArray
from ep_core.errors import AllocationError, NotSupportedError
from ep_core.types import DataType

__all__ = ["PinnedMemory", "is_pinned"]

_PAGE = 4096
_POISON = 0xA5


class _Pages:
    """Whole pages of the host's memory, which arrays over them keep alive."""

    __slots__ = ("__array_interface__", "__weakref__", "_raw")

    def __init__(self, nbytes: int) -> None:
        self._raw = np.empty(nbytes + _PAGE, np.uint8)
        address = self._raw.ctypes.data
        start = address + -address % _PAGE
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (start, False),
        }


class PinnedMemory:
    """Gives out page-locked arrays. Safe on many threads.

    Args:
        capacity: bytes that may be out at a time.
    """

    def __init__(self, device: str, capacity: int) -> None:
        self._device = device
        self._capacity = capacity
        self._lock = threading.Lock()
        self._held = 0
        # A finalizer may run inside anything, also under the lock: it only leaves a note.
        self._freed: deque[int] = deque()

    def allocate(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """A C-contiguous array at the start of a page, contents undefined.

        Raises:
            AllocationError: there isn't so much left.
            NotSupportedError: strings.
        """
        if dtype is DataType.STRING:
            raise NotSupportedError(f"pinned memory of {self._device} holds no strings")
        nbytes = math.prod(shape) * dtype.numpy.itemsize
        with self._lock:
            self._count_freed()
            if nbytes > self._capacity - self._held:
                raise AllocationError(
                    f"no pinned memory of {self._device} for {dtype.text}{list(shape)}",
                    expected=f"at most {self._capacity - self._held} bytes",
                    got=nbytes,
                    fix="Raise its option 'pinned_capacity', or keep fewer pinned arrays.",
                )
            self._held += nbytes
        try:
            pages = _Pages(nbytes)
        except MemoryError as error:
            self._freed.append(nbytes)
            raise AllocationError(f"the host has no {nbytes} bytes left") from error
        weakref.finalize(pages, self._freed.append, nbytes).atexit = False
        raw = np.asarray(pages)
        raw[...] = _POISON
        return raw.view(dtype.numpy).reshape(shape)

    def nbytes(self) -> int:
        """Bytes of the arrays that somebody still refers to."""
        with self._lock:
            self._count_freed()
            return self._held

    def _count_freed(self) -> None:
        while self._freed:
            self._held -= self._freed.popleft()


def is_pinned(array: HostArray) -> bool:
    """True if an array lies in memory that a `PinnedMemory` gave out."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, _Pages)
