"""Copies between a CUDA device's memory and the host, in the order of a stream."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pycuda.driver as drv

from ep_core.contracts import Buffer, HostArray, Stream
from ep_core.errors import ContractError
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo
from ep_cuda.memory import CudaBuffer
from ep_cuda.stream import CudaStream
from ep_sdk.device_kernels.known_values import note_values

__all__ = ["CudaTransfer"]


class CudaTransfer:
    """Meets `ep_core.contracts.DataTransfer`.

    Args:
        memory: the device's.
        open_stream: makes a stream for copies that come without one.
    """

    def __init__(self, memory: MemoryInfo, open_stream: Callable[[], CudaStream]) -> None:
        self._memory = memory
        self._open_stream = open_stream

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        """True within the device, and between it and plain host memory."""
        ends = {source, target}
        return self._memory in ends and ends <= {self._memory, HOST_MEMORY}

    def copy(
        self, source: Buffer | HostArray, target: Buffer | HostArray, stream: Stream | None
    ) -> None:
        """Copy all bytes, in the order of `stream`; without one, before returning.

        Raises:
            ContractError: shapes or types differ, an array isn't contiguous or writeable, a buffer
                has been released or is of another device, the stream is of another provider.
            DeviceLostError: the device is lost.
        """
        self._check(source, target)
        if stream is None:
            own = self._open_stream()
            try:
                self._enqueue(source, target, own)
                own.synchronize()
            finally:
                own.close()
        elif isinstance(stream, CudaStream):
            self._enqueue(source, target, stream)
        else:
            raise ContractError(
                "a copy was given a stream of another provider", got=type(stream).__name__
            )

    def _enqueue(
        self, source: Buffer | HostArray, target: Buffer | HostArray, stream: CudaStream
    ) -> None:
        if isinstance(target, CudaBuffer):
            note_values(source, target)
        if not source.nbytes:
            return
        queue = stream.queue
        with stream.device.context.doing("copying"):
            if isinstance(source, CudaBuffer) and isinstance(target, CudaBuffer):
                if source.handle == target.handle:
                    return
                drv.memcpy_dtod_async(target.handle, source.handle, source.nbytes, queue)
            elif isinstance(source, CudaBuffer):
                host = _bytes(target)
                drv.memcpy_dtoh_async(host, source.handle, queue)
                stream.keep(host)
            elif isinstance(target, CudaBuffer):
                host = _bytes(source)
                drv.memcpy_htod_async(target.handle, host, queue)
                stream.keep(host)

    def _check(self, source: Buffer | HostArray, target: Buffer | HostArray) -> None:
        for side in (source, target):
            if isinstance(side, np.ndarray):
                if not side.flags.c_contiguous:
                    raise ContractError("a copy was given an array that isn't C-contiguous")
            elif isinstance(side, CudaBuffer) and side.memory == self._memory:
                side.check()
            else:
                raise ContractError(
                    f"{self._memory.device} can't copy this memory",
                    expected="an array or one of its buffers",
                    got=repr(side),
                )
        if isinstance(source, np.ndarray) and isinstance(target, np.ndarray):
            raise ContractError("a copy from host to host was given to a device")
        source_type = (_dtype(source), tuple(source.shape))
        target_type = (_dtype(target), tuple(target.shape))
        if source_type != target_type:
            raise ContractError(
                "source and target of a copy differ", expected=source_type, got=target_type
            )
        if isinstance(target, np.ndarray) and not target.flags.writeable:
            raise ContractError("the target of a copy is read-only")


def _bytes(array: Buffer | HostArray) -> HostArray:
    """The bytes of an array, whatever its type, without a copy."""
    assert isinstance(array, np.ndarray)
    return array.reshape(-1).view(np.uint8)


def _dtype(side: Buffer | HostArray) -> DataType:
    return DataType.from_numpy(side.dtype) if isinstance(side, np.ndarray) else side.dtype
