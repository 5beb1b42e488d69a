"""What buffers lie in: memory that the device gives, or memory that another library lends."""

from __future__ import annotations

import pycuda.driver as drv

from ep_cuda.context import Context, abandon, is_forked
from ep_sdk.dlpack import Borrowed

__all__ = ["Storage", "borrow", "reserve"]


class Storage:
    """Memory of the device.

    Attributes:
        address: of its first byte, for kernels and for other libraries.
        nbytes: that were asked for.
    """

    __slots__ = ("_allocation", "_borrowed", "_context", "address", "nbytes")

    def __init__(
        self,
        address: int,
        nbytes: int,
        context: Context | None = None,
        allocation: drv.DeviceAllocation | None = None,
        borrowed: Borrowed | None = None,
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self._context = context
        self._allocation = allocation
        self._borrowed = borrowed

    def free(self) -> None:
        """Let go of the memory, which no work uses any more."""
        self._borrowed = None
        if self._allocation is None or self._context is None:
            return
        if is_forked():
            abandon(self._allocation)
        else:
            with self._context.doing("freeing memory"):
                self._allocation.free()
        self._allocation = None


def reserve(context: Context, nbytes: int) -> Storage:
    """New memory of the device, contents undefined.

    Raises:
        AllocationError: it has no more.
    """
    with context.doing(f"allocating {nbytes} bytes"):
        allocation = drv.mem_alloc(nbytes)
    return Storage(int(allocation), nbytes, context, allocation)


def borrow(borrowed: Borrowed, nbytes: int) -> Storage:
    """Memory of the device that its owner lends, until the storage is freed."""
    return Storage(borrowed.address, nbytes, borrowed=borrowed)
