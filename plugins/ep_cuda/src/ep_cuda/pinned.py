"""Page-locked host memory as arrays: the device copies from and to it while the host goes on."""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import pycuda.driver as drv

from ep_core.contracts import HostArray
from ep_core.errors import NotSupportedError
from ep_core.types import DataType
from ep_cuda.context import Context

__all__ = ["PinnedMemory"]


class _Held:
    """Page-locked memory, which arrays over it keep alive."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, raw: HostArray) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": raw.shape,
            "typestr": "|u1",
            "data": (raw.ctypes.data, False),
        }


class PinnedMemory:
    """Gives out page-locked arrays of one device. Safe on many threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._held = 0
        # A finalizer may run inside anything, on any thread: it only leaves a note.
        self._freed: deque[HostArray] = deque()

    def allocate(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """A C-contiguous array, contents undefined.

        Raises:
            AllocationError: the driver has no more.
            NotSupportedError: strings.
        """
        if dtype is DataType.STRING:
            raise NotSupportedError("pinned memory holds no strings")
        self._free_noted()
        nbytes = math.prod(shape) * dtype.numpy.itemsize
        with self._context.doing(f"allocating {nbytes} bytes of pinned memory"):
            raw = drv.pagelocked_empty(max(nbytes, 1), np.uint8)
        with self._lock:
            self._held += raw.nbytes
        held = _Held(raw)
        weakref.finalize(held, self._freed.append, raw).atexit = False
        return np.asarray(held)[:nbytes].view(dtype.numpy).reshape(shape)

    def held_bytes(self) -> int:
        """Bytes of the arrays that are alive."""
        self._free_noted()
        with self._lock:
            return self._held

    def _free_noted(self) -> None:
        """Free what nobody refers to any more, on a thread that has the context."""
        while True:
            try:
                raw = self._freed.popleft()
            except IndexError:
                return
            with self._lock:
                self._held -= raw.nbytes
            allocation: Any = raw.base
            with self._context.doing("freeing pinned memory"):
                allocation.free()
