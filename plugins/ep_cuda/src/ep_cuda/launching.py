"""Kernels that are loaded, and how they are started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pycuda.driver as drv

from ep_cuda.context import Context
from ep_cuda.grids import block_for, pack_arguments, padded, range_bytes, slices_of

__all__ = ["CudaKernel"]

_THREADS = 256


class CudaKernel:
    """A loaded kernel; meets `ep_sdk.device_kernels.contracts.DeviceKernel`.

    Args:
        name: for messages.
        function: pycuda's.
        context: where it is loaded.
    """

    def __init__(self, name: str, function: drv.Function, context: Context) -> None:
        self.name = name
        self._function = function
        self._context = context
        most = function.get_attribute(drv.function_attribute.MAX_THREADS_PER_BLOCK)
        self._threads = min(_THREADS, 1 << (most.bit_length() - 1))
        self._starting = f"starting kernel {name}"

    def launch(
        self,
        stream: Any,
        size: tuple[int, ...],
        group: tuple[int, ...] | None,
        arguments: Sequence[Any],
    ) -> None:
        """Hand the kernel to a stream and return; meets `contracts.DeviceKernel`.

        Args:
            stream: a `CudaStream`, or one that rehearses, on which nothing is done.
            size: work-items by dimension, the fastest first; nothing is done where one is 0.
            group: threads of a block, None for our choice.
            arguments: addresses as int, numpy scalars, and numpy arrays, which are passed whole.

        Raises:
            AllocationError, DeviceLostError, RunError: see `failures`.
        """
        if stream.rehearses or 0 in size:
            return
        queue = stream.queue
        whole = padded(size)
        block = block_for(whole, self._threads) if group is None else padded(group)
        packed = pack_arguments(arguments)
        with self._context.doing(self._starting):
            for grid, first in slices_of(whole, block):
                self._function._launch_kernel(
                    grid, block, packed + range_bytes(whole, first), 0, queue
                )
