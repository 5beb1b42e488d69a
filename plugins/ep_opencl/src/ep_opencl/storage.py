"""What buffers lie in: memory that the device gives, or memory of the host that somebody lends.

Where a device shares memory with the host, and both may use it without mapping (fine-grained shared
virtual memory of OpenCL 2.0), what it gives has an address. Who owns a piece when isn't known here.
"""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import numpy as np
import pyopencl as cl

from ep_opencl.failures import explained
from ep_sdk.dlpack import Borrowed

__all__ = ["HostSharing", "Storage"]

_PROBE_FLOATS = 5001
_PROBE_OFFSET = 1


class Storage:
    """A memory object of OpenCL, and what it lies over.

    Attributes:
        buffer: pyopencl's object; its first byte is the memory's first.
        address: of that byte on the host, None where the host has none.
    """

    __slots__ = ("_under", "address", "buffer")

    def __init__(self, buffer: cl.Buffer, address: int | None = None, under: object = None) -> None:
        self.buffer = buffer
        self.address = address
        self._under = under

    def free(self) -> None:
        """Let go of the memory, which no work uses any more."""
        self.buffer.release()
        # Only now: what is under it must live for as long as the memory object.
        self._under = None


class HostSharing:
    """What a device and the host can share without copies.

    Args:
        context: of the device alone.
    """

    def __init__(self, context: cl.Context, device: cl.Device) -> None:
        self._context = context
        self._device = device
        self._flags = 0
        if device.host_unified_memory and _has_fine_grain(device):
            self._flags = cl.svm_mem_flags.READ_WRITE | cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER

    @property
    def gives_addresses(self) -> bool:
        """The device's own memory is memory of the host too."""
        return bool(self._flags)

    @cached_property
    def takes_host_memory(self) -> bool:
        """The device works in memory of the host, wherever it lies; tried out once.

        The standard lets a driver work in a copy until the memory is mapped. Drivers for processors
        have no reason to, and that is what is tried.
        """
        if not self._device.type & cl.device_type.CPU:
            return False
        memory = np.zeros(_PROBE_FLOATS + _PROBE_OFFSET, np.float32)[_PROBE_OFFSET:]
        seen = np.zeros_like(memory)
        with explained("trying to work in memory of the host"):
            queue = cl.CommandQueue(self._context, self._device)
            buffer = self._over(memory.ctypes.data, memory.nbytes)
            cl.enqueue_fill_buffer(queue, buffer, np.ones(1, np.float32), 0, memory.nbytes)
            queue.finish()
            host_sees = bool((memory == 1).all())
            memory[:] = 2
            cl.enqueue_copy(queue, seen, buffer, is_blocking=True)
            buffer.release()
        return host_sees and bool((seen == 2).all())

    def reserve(self, nbytes: int) -> Storage:
        """New memory of the device, contents undefined.

        Raises:
            AllocationError: it has no more.
        """
        with explained(f"allocating {nbytes} bytes"):
            if not self._flags:
                return Storage(cl.Buffer(self._context, cl.mem_flags.READ_WRITE, nbytes))
            # Alignment 0 is the largest that any type of OpenCL needs.
            shared = cl.SVMAllocation(self._context, nbytes, 0, self._flags)
            address = int(shared.svm_ptr)
            return Storage(self._over(address, nbytes), address, shared)

    def borrow(self, borrowed: Borrowed, nbytes: int) -> Storage:
        """Memory of the host that its owner lends, until the storage is freed.

        Raises:
            AllocationError: the driver has no room for one more memory object.
        """
        with explained("taking memory of the host"):
            return Storage(self._over(borrowed.address, nbytes), borrowed.address, borrowed)

    def _over(self, address: int, nbytes: int) -> cl.Buffer:
        memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        return cl.Buffer(self._context, flags, hostbuf=memory)


def _has_fine_grain(device: cl.Device) -> bool:
    """Whether host and device may use one buffer without mapping it; OpenCL 1.2 hasn't that."""
    try:
        capabilities = device.svm_capabilities
    except cl.Error:
        return False
    return bool(capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER)
