"""Copies between an OpenCL device's memory and the host, in the order of a stream."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyopencl as cl

from ep_core.contracts import Buffer, HostArray, Stream
from ep_core.errors import ContractError
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo
from ep_opencl.failures import explained
from ep_opencl.memory import OpenCLBuffer
from ep_opencl.stream import OpenCLStream
from ep_sdk.device_kernels.known_values import note_values

__all__ = ["OpenCLTransfer"]


class OpenCLTransfer:
    """Meets `ep_core.contracts.DataTransfer`.

    Args:
        memory: the device's.
        open_stream: makes a stream for copies that come without one.
    """

    def __init__(self, memory: MemoryInfo, open_stream: Callable[[], OpenCLStream]) -> None:
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
        elif isinstance(stream, OpenCLStream):
            self._enqueue(source, target, stream)
        else:
            raise ContractError(
                "a copy was given a stream of another provider", got=type(stream).__name__
            )

    def _enqueue(
        self, source: Buffer | HostArray, target: Buffer | HostArray, stream: OpenCLStream
    ) -> None:
        if isinstance(target, OpenCLBuffer):
            note_values(source, target)
        if not source.nbytes:
            return
        queue = stream.queue
        with explained("copying"):
            if isinstance(source, OpenCLBuffer) and isinstance(target, OpenCLBuffer):
                if source.handle == target.handle:
                    return
                cl.enqueue_copy(queue, target.handle, source.handle, byte_count=source.nbytes)
            elif isinstance(source, OpenCLBuffer):
                event = cl.enqueue_copy(queue, _bytes(target), source.handle, is_blocking=False)
                stream.keep(event)
            elif isinstance(target, OpenCLBuffer):
                event = cl.enqueue_copy(queue, target.handle, _bytes(source), is_blocking=False)
                stream.keep(event)

    def _check(self, source: Buffer | HostArray, target: Buffer | HostArray) -> None:
        for side in (source, target):
            if isinstance(side, np.ndarray):
                if not side.flags.c_contiguous:
                    raise ContractError("a copy was given an array that isn't C-contiguous")
            elif isinstance(side, OpenCLBuffer) and side.memory == self._memory:
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
