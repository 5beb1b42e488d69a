"""The memory of an OpenCL device: buffers, their allocator, and sharing them by DLPack.

Where the device shares memory with the host, other libraries take buffers as tensors of the host.
"""

from __future__ import annotations

import math
import threading
import weakref
from dataclasses import replace
from functools import partial
from typing import Any

import pyopencl as cl

from ep_core.contracts import AllocatorStats, Buffer, HostArray, Stream
from ep_core.errors import AllocationError, NotSupportedError
from ep_core.types import DataType, MemoryInfo
from ep_core.values.dlpack import HOST_DEVICE
from ep_opencl.device import OpenDevice
from ep_opencl.pinned import PinnedMemory
from ep_opencl.storage import Storage
from ep_opencl.stream import OpenCLStream
from ep_sdk.arena import Arena, Chunk
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.dlpack import lend, take
from ep_sdk.pooled import Lending, PooledBuffer, own_buffer

__all__ = ["MemoryPool", "OpenCLBuffer"]

_ALIGNMENT = 256
"""Bytes that sizes are rounded up to, so that buffers of nearly one size serve each other."""

_KDL_OPENCL = 4


class _Block:
    """Memory while one owner has it.

    Attributes:
        storage: where it lies.
        chunk: what goes back to the arena; None for memory of another library's.
        released: the owner has given it back; work already submitted may still use it.
        stream: of the release.
        lent: how many capsules of DLPack's share it; it isn't free before they are gone.
        is_open: others know the address, and may write there at any time between runs.
        values: what the bytes are, or will be once the work submitted so far is done, where the
            host knows; flat.
    """

    __slots__ = (
        "chunk",
        "is_open",
        "lent",
        "pool",
        "released",
        "storage",
        "stream",
        "values",
    )

    def __init__(self, pool: MemoryPool, storage: Storage, chunk: Chunk[Storage] | None) -> None:
        self.pool = pool
        self.storage = storage
        self.chunk = chunk
        self.released = False
        self.stream: Stream | None = None
        self.lent = 0
        self.is_open = chunk is None
        self.values: HostArray | None = None

    def open(self) -> int:
        """Tell the address.

        Raises:
            BufferError: the memory has none.
        """
        if self.storage.address is None:
            raise BufferError("memory objects of this device have no addresses; take its handle")
        self.is_open = True
        self.values = None
        return self.storage.address


class OpenCLBuffer(PooledBuffer[_Block]):
    """A tensor in the device's memory; meets `ep_sdk.device_kernels.contracts.DeviceBuffer`."""

    __slots__ = ()

    @property
    def handle(self) -> cl.Buffer:
        """Pyopencl's object, whose first byte is the tensor's first.

        Raises:
            ContractError: the buffer has been released.
        """
        self.check()
        return self._block.storage.buffer

    @property
    def values(self) -> HostArray | None:
        """The values in the buffer's shape, where the host knows them; not to be changed."""
        known = self._block.values
        return None if known is None else known.reshape(self._shape)

    def remember_values(self, values: HostArray) -> None:
        """Tell what the bytes will be, once the work submitted so far is done."""
        if not self._block.is_open:
            self._block.values = values.reshape(-1)

    def forget_values(self) -> None:
        """The bytes will be something else."""
        self._block.values = None

    def data_ptr(self) -> int:
        """Where its bytes are, for the host as for the device.

        Raises:
            ContractError: the buffer has been released.
            BufferError: the device doesn't share memory with the host; see `handle`.
        """
        self.check()
        return self._block.open()

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
    ) -> object:
        """Share the bytes as a tensor of the host.

        Raises:
            ContractError: the buffer has been released.
            BufferError: the device doesn't share memory with the host, or the memory is another
                library's already.
        """
        self.check()
        block = self._block
        address = block.open()
        if block.chunk is None:
            raise BufferError("memory of another library isn't exported again")
        given_back = block.pool.lending.lend(block)
        return lend(address, self.shape, self.dtype, HOST_DEVICE, given_back, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host, where the device shares its memory; else OpenCL's number in DLPack."""
        return (_KDL_OPENCL, 0) if self._block.storage.address is None else HOST_DEVICE


class MemoryPool:
    """The memory of one device; meets `ep_sdk.device_kernels.contracts.DeviceMemory`.

    Attributes:
        pinned: page-locked host memory of the device.
        lending: what other libraries share by DLPack.

    Args:
        device: whose memory it is.
        capacity: bytes to take at most, 0 for all that the device has.
    """

    def __init__(self, device: OpenDevice, capacity: int) -> None:
        self._device = device
        everything = device.cl_device.global_mem_size
        self._room = min(capacity, everything) if capacity else everything
        self._largest = device.cl_device.max_mem_alloc_size
        self._arena: Arena[Storage] = Arena(self._reserve, self._unreserve, _ALIGNMENT)
        self.pinned = PinnedMemory(device)
        self._lock = threading.Lock()
        self.lending: Lending[_Block] = Lending(self._free)
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
        self.lending.take_back()
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
        return OpenCLBuffer(_Block(self, chunk.raw, chunk), dtype, tuple(shape))

    def imagine(self, shape: tuple[int, ...], dtype: DataType) -> OpenCLBuffer:
        """A buffer without memory, for going through work that isn't done.

        Raises:
            NotSupportedError: an element type that kernels don't know.
        """
        if dtype not in ELEMENTS:
            raise NotSupportedError(f"memory of {self.memory.device} holds no {dtype.text}")
        nothing: Any = None
        storage = Storage(nothing)
        return OpenCLBuffer(_Block(self, storage, Chunk(storage, 0)), dtype, tuple(shape))

    def release(self, buffer: Buffer, stream: Stream | None = None) -> None:
        """Give a buffer back: later work on `stream` may have the memory, others once it got there.

        Raises:
            ContractError: not a buffer of this pool, a view, or released already.
        """
        self.lending.release(own_buffer(buffer, OpenCLBuffer, self), stream)

    def import_dlpack(self, tensor: Any) -> OpenCLBuffer:
        """A buffer over a tensor that another library has on the host.

        Raises:
            BufferError: it lies elsewhere, isn't contiguous, or has a type that kernels don't know.
        """
        borrowed = take(tensor, HOST_DEVICE)
        element = ELEMENTS.get(borrowed.dtype)
        if element is None:
            raise BufferError(f"memory of {self.memory.device} holds no {borrowed.dtype.text}")
        nbytes = math.prod(borrowed.shape) * element.nbytes
        if not nbytes:
            return self.allocate(borrowed.shape, borrowed.dtype)
        storage = self._device.sharing.borrow(borrowed, nbytes)
        return OpenCLBuffer(_Block(self, storage, None), borrowed.dtype, borrowed.shape)

    def stats(self) -> AllocatorStats:
        """Counters; memory is in use until it is released, whatever its stream still has to do."""
        self.lending.take_back()
        return replace(self._arena.stats(), pinned_bytes=self.pinned.held_bytes())

    def close(self) -> None:
        """Give back what is free now, and the rest as soon as it is released."""
        self._arena.close()

    def _free(self, block: _Block) -> None:
        """Let others have a released block once its stream got there."""
        chunk, stream = block.chunk, block.stream
        if not isinstance(stream, OpenCLStream):
            if chunk is None:
                block.storage.free()
            else:
                self._arena.give(chunk)
            return
        if chunk is None:
            settle = block.storage.free
        else:
            with self._lock:
                self._streams.add(stream)
            turn = self._arena.give(chunk, stream)
            settle = partial(self._arena.settle, chunk, turn, stream)
        if not stream.when_passed(settle):
            settle()

    def _take(self, nbytes: int, stream: Stream | None) -> Chunk[Storage]:
        try:
            return self._arena.take(nbytes, stream)
        except AllocationError:
            with self._lock:
                streams = list(self._streams)
            for other in streams:
                other.synchronize()
            return self._arena.take(nbytes, stream)

    def _reserve(self, size: int) -> Storage:
        """What the device gives the arena; called under its lock."""
        limit = min(self._room, self._largest)
        if size > limit:
            raise AllocationError("the device is full", expected=f"at most {limit} bytes", got=size)
        # A tensor without elements has a buffer all the same.
        whole = max(size, _ALIGNMENT)
        storage = self._device.sharing.reserve(whole)
        self._room -= whole
        return storage

    def _unreserve(self, storage: Storage) -> None:
        self._room += storage.buffer.size
        storage.free()
