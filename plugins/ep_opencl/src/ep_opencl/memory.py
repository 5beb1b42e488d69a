"""The memory of an OpenCL device: buffers that only the device touches, and their allocator."""

from __future__ import annotations

import math
import threading
import weakref
from dataclasses import replace
from functools import partial
from typing import Any

import pyopencl as cl

from ep_core.contracts import AllocatorStats, Buffer, HostArray, Stream
from ep_core.errors import AllocationError, ContractError, NotSupportedError
from ep_core.types import DataType, MemoryInfo
from ep_opencl.device import OpenDevice
from ep_opencl.elements import ELEMENTS
from ep_opencl.failures import explained
from ep_opencl.pinned import PinnedMemory
from ep_opencl.stream import OpenCLStream
from ep_sdk.arena import Arena, Chunk

__all__ = ["MemoryPool", "OpenCLBuffer"]

_ALIGNMENT = 256
"""Bytes that sizes are rounded up to, so that buffers of nearly one size serve each other."""

_KDL_OPENCL = 4


class _Block:
    """A chunk while one owner has it.

    Attributes:
        values: what the bytes are, or will be once the work submitted so far is done, where the
            host knows; flat.
    """

    __slots__ = ("chunk", "pool", "released", "values")

    def __init__(self, pool: MemoryPool, chunk: Chunk[cl.Buffer]) -> None:
        self.pool = pool
        self.chunk = chunk
        self.released = False
        self.values: HostArray | None = None


class OpenCLBuffer:
    """A tensor in the device's memory; meets `ep_core.contracts.Buffer`."""

    __slots__ = ("_block", "_dtype", "_is_view", "_nbytes", "_shape")

    def __init__(
        self, block: _Block, dtype: DataType, shape: tuple[int, ...], *, is_view: bool = False
    ) -> None:
        self._block = block
        self._dtype = dtype
        self._shape = shape
        self._nbytes = math.prod(shape) * ELEMENTS[dtype].nbytes
        self._is_view = is_view

    @property
    def dtype(self) -> DataType:
        """Element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._nbytes

    @property
    def memory(self) -> MemoryInfo:
        """The memory of its device."""
        return self._block.pool.memory

    @property
    def cl_buffer(self) -> cl.Buffer:
        """Pyopencl's object, whose first byte is the tensor's first.

        Raises:
            ContractError: the buffer has been released.
        """
        self.check()
        return self._block.chunk.raw

    def reshaped(self, shape: tuple[int, ...]) -> OpenCLBuffer:
        """The same bytes under another shape of as many elements; not to be released."""
        self.check()
        return OpenCLBuffer(self._block, self._dtype, shape, is_view=True)

    @property
    def values(self) -> HostArray | None:
        """The values in the buffer's shape, where the host knows them; not to be changed."""
        known = self._block.values
        return None if known is None else known.reshape(self._shape)

    def remember_values(self, values: HostArray) -> None:
        """Tell what the bytes will be, once the work submitted so far is done."""
        self._block.values = values.reshape(-1)

    def forget_values(self) -> None:
        """The bytes will be something else."""
        self._block.values = None

    def check(self) -> None:
        """Raise ContractError if the buffer has been released."""
        if self._block.released:
            raise ContractError(
                f"a buffer of {self.memory.device} was used after it was released",
                got=repr(self),
            )

    def data_ptr(self) -> int:
        """Raise BufferError: memory objects of OpenCL have no addresses; see `cl_buffer`."""
        raise BufferError("OpenCL's memory objects have no addresses; take cl_buffer")

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
    ) -> object:
        """Raise BufferError: no other library takes this context's memory objects."""
        raise BufferError("OpenCL buffers can't be exported; copy them to the host")

    def __dlpack_device__(self) -> tuple[int, int]:
        """OpenCL's number in DLPack."""
        return (_KDL_OPENCL, 0)

    def __repr__(self) -> str:
        return f"<{self.memory} {self._dtype.text}{list(self._shape)}>"


class MemoryPool:
    """The memory of one device; meets `ep_core.contracts.Allocator`.

    Attributes:
        pinned: page-locked host memory of the device.

    Args:
        device: whose memory it is.
        capacity: bytes to take at most, 0 for all that the device has.
    """

    def __init__(self, device: OpenDevice, capacity: int) -> None:
        self._device = device
        everything = device.cl_device.global_mem_size
        self._room = min(capacity, everything) if capacity else everything
        self._largest = device.cl_device.max_mem_alloc_size
        self._arena: Arena[cl.Buffer] = Arena(self._reserve, self._unreserve, _ALIGNMENT)
        self.pinned = PinnedMemory(device)
        self._lock = threading.Lock()
        self._streams: weakref.WeakSet[OpenCLStream] = weakref.WeakSet()

    @property
    def memory(self) -> MemoryInfo:
        """The memory it gives out."""
        return self._device.memory

    def allocate(
        self, shape: tuple[int, ...], dtype: DataType, stream: Stream | None = None
    ) -> OpenCLBuffer:
        """Memory for a tensor, contents undefined.

        Where nothing is free, waits for the work of streams that memory was given back on.

        Raises:
            AllocationError: the device is full, or the tensor larger than one buffer may be.
            NotSupportedError: an element type that kernels don't know.
        """
        element = ELEMENTS.get(dtype)
        if element is None:
            raise NotSupportedError(f"memory of {self.memory.device} holds no {dtype.text}")
        nbytes = math.prod(shape) * element.nbytes
        try:
            chunk = self._take(nbytes, stream)
        except AllocationError as error:
            raise AllocationError(
                f"{self.memory.device} has no room for {dtype.text}{list(shape)}",
                expected=error.expected,
                got=error.got,
                fix="Use smaller batches, or raise the option 'capacity' if it is set.",
            ) from error
        return OpenCLBuffer(_Block(self, chunk), dtype, tuple(shape))

    def imagine(self, shape: tuple[int, ...], dtype: DataType) -> OpenCLBuffer:
        """A buffer without memory, for going through work that isn't done.

        Raises:
            NotSupportedError: an element type that kernels don't know.
        """
        if dtype not in ELEMENTS:
            raise NotSupportedError(f"memory of {self.memory.device} holds no {dtype.text}")
        nothing: Any = None
        return OpenCLBuffer(_Block(self, Chunk(nothing, 0)), dtype, tuple(shape))

    def release(self, buffer: Buffer, stream: Stream | None = None) -> None:
        """Give a buffer back: later work on `stream` may have the memory, others once it got there.

        Raises:
            ContractError: not a buffer of this pool, a view, or released already.
        """
        if not isinstance(buffer, OpenCLBuffer) or buffer._block.pool is not self:
            raise ContractError(
                f"a buffer was released to {self.memory.device}, which it isn't from",
                got=repr(buffer),
            )
        if buffer._is_view:
            raise ContractError("a view of a buffer was released", got=repr(buffer))
        block = buffer._block
        with self._lock:
            buffer.check()
            block.released = True
        if not isinstance(stream, OpenCLStream):
            self._arena.give(block.chunk)
            return
        with self._lock:
            self._streams.add(stream)
        turn = self._arena.give(block.chunk, stream)
        settle = partial(self._arena.settle, block.chunk, turn, stream)
        if not stream.when_passed(settle):
            settle()

    def stats(self) -> AllocatorStats:
        """Counters; memory is in use until it is released, whatever its stream still has to do."""
        return replace(self._arena.stats(), pinned_bytes=self.pinned.held_bytes())

    def close(self) -> None:
        """Give back what is free now, and the rest as soon as it is released."""
        self._arena.close()

    def _take(self, nbytes: int, stream: Stream | None) -> Chunk[cl.Buffer]:
        try:
            return self._arena.take(nbytes, stream)
        except AllocationError:
            with self._lock:
                streams = list(self._streams)
            for other in streams:
                other.synchronize()
            return self._arena.take(nbytes, stream)

    def _reserve(self, size: int) -> cl.Buffer:
        """What the device gives the arena; called under its lock."""
        limit = min(self._room, self._largest)
        if size > limit:
            raise AllocationError("the device is full", expected=f"at most {limit} bytes", got=size)
        with explained(f"allocating {size} bytes"):
            # A tensor without elements has a buffer all the same.
            whole = max(size, _ALIGNMENT)
            buffer = cl.Buffer(self._device.context, cl.mem_flags.READ_WRITE, whole)
        self._room -= whole
        return buffer

    def _unreserve(self, buffer: cl.Buffer) -> None:
        self._room += buffer.size
        buffer.release()
