"""Page-locked host memory: buffers of the driver's that the host has mapped, as arrays.

A device with memory of its own copies from and to such memory by itself, without the driver's
staging copies. Mapping is standard OpenCL and works on every device.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import pyopencl as cl

from ep_core.contracts import HostArray
from ep_core.errors import NotSupportedError
from ep_core.types import DataType
from ep_opencl.device import OpenDevice
from ep_opencl.failures import explained

__all__ = ["PinnedMemory"]


class _Mapping:
    """A mapped buffer, which arrays over it keep alive; unmapped when the last one goes."""

    __slots__ = ("__array_interface__", "__weakref__", "_mapped")

    def __init__(self, mapped: Any, nbytes: int) -> None:
        self._mapped = mapped
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (mapped.ctypes.data, False),
        }


class PinnedMemory:
    """Gives out page-locked arrays of one device. Safe on many threads."""

    def __init__(self, device: OpenDevice) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._queue: cl.CommandQueue | None = None
        self._held = 0
        # A finalizer may run inside anything, also under the lock: it only leaves a note.
        self._freed: deque[int] = deque()

    def allocate(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """A C-contiguous array, contents undefined.

        Raises:
            AllocationError: the driver has no more.
            NotSupportedError: strings.
        """
        if dtype is DataType.STRING:
            raise NotSupportedError("pinned memory holds no strings")
        nbytes = math.prod(shape) * dtype.numpy.itemsize
        with explained(f"allocating {nbytes} bytes of pinned memory"), self._lock:
            mapping = self._map(max(nbytes, 1))
            self._held += nbytes
        weakref.finalize(mapping, self._freed.append, nbytes)
        whole = np.asarray(mapping)[:nbytes]
        return whole.view(dtype.numpy).reshape(shape)

    def held_bytes(self) -> int:
        """Bytes of the arrays that are alive."""
        with self._lock:
            while self._freed:
                self._held -= self._freed.popleft()
            return self._held

    def _map(self, nbytes: int) -> _Mapping:
        if self._queue is None:
            self._queue = cl.CommandQueue(self._device.context, self._device.cl_device)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        buffer = cl.Buffer(self._device.context, flags, nbytes)
        access: Any = cl.map_flags.READ | cl.map_flags.WRITE
        byte: Any = np.dtype(np.uint8)
        mapped, _ = cl.enqueue_map_buffer(self._queue, buffer, access, 0, (nbytes,), byte)
        return _Mapping(mapped, nbytes)
