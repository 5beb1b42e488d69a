"""The memory of a CUDA device: buffers, their allocator, and sharing them with other libraries.

Buffers have addresses that all of CUDA's libraries take, also by DLPack and by
`__cuda_array_interface__`.
"""

from __future__ import annotations

import math
import threading
import weakref
from dataclasses import replace
from functools import partial
from typing import Any

from ep_core.contracts import AllocatorStats, Buffer, HostArray, Stream
from ep_core.errors import AllocationError, NotSupportedError
from ep_core.types import DataType, MemoryInfo
from ep_cuda.device import OpenDevice
from ep_cuda.pinned import PinnedMemory
from ep_cuda.storage import Storage, borrow, reserve
from ep_cuda.stream import CudaStream
from ep_sdk.arena import Arena, Chunk
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.dlpack import lend, take
from ep_sdk.pooled import Lending, PooledBuffer, own_buffer

__all__ = ["MemoryPool", "CudaBuffer"]

_ALIGNMENT = 256
"""Bytes that sizes are rounded up to, so that buffers of nearly one size serve each other."""


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
        """Tell the address."""
        self.is_open = True
        self.values = None
        return self.storage.address


class CudaBuffer(PooledBuffer[_Block]):
    """A tensor in the device's memory; meets `ep_sdk.device_kernels.contracts.DeviceBuffer`."""

    __slots__ = ()

    @property
    def handle(self) -> int:
        """The address of the first byte, for kernels and copies of this package.

        Raises:
            ContractError: the buffer has been released.
        """
        self.check()
        return self._block.storage.address

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
        """The address of the first byte, for other libraries.

        Raises:
            ContractError: the buffer has been released.
        """
        self.check()
        return self._block.open()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Its bytes for libraries that take version 3 of the interface; ready, on no stream.

        Raises:
            ContractError: the buffer has been released.
            AttributeError: bfloat16, for which the interface has no name.
        """
        if self.dtype is DataType.BFLOAT16:
            raise AttributeError("__cuda_array_interface__ has no bfloat16; use DLPack")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.data_ptr(), False),
            "strides": None,
            "stream": None,
        }

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
    ) -> object:
        """Share the bytes as a tensor of the device.

        Args:
            stream: the consumer's. Values that a session hands out are ready, so that it needn't
                wait for anything.
            max_version: see `ep_sdk.dlpack.lend`.

        Raises:
            ContractError: the buffer has been released.
            BufferError: the memory is another library's already.
        """
        self.check()
        block = self._block
        address = block.open()
        if block.chunk is None:
            raise BufferError("memory of another library isn't exported again")
        given_back = block.pool.lending.lend(block)
        device = block.pool.dlpack_device
        return lend(address, self.shape, self.dtype, device, given_back, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """CUDA's number in DLPack, and the device's."""
        return self._block.pool.dlpack_device


class MemoryPool:
    """The memory of one device; meets `ep_sdk.device_kernels.contracts.DeviceMemory`.

    Attributes:
        pinned: page-locked host memory of the device.
        lending: what other libraries share by DLPack.

    Args:
        device: whose memory it is.
        limit: bytes to take at most, 0 for all that the device has.
        doubles: sizes are powers of two; what is in use counts whole chunks then.
    """

    def __init__(self, device: OpenDevice, limit: int, *, doubles: bool) -> None:
        self._device = device
        self._doubles = doubles
        self._room = min(limit, device.memory_bytes) if limit else device.memory_bytes
        self._arena: Arena[Storage] = Arena(self._reserve, self._unreserve, _ALIGNMENT)
        self.pinned = PinnedMemory(device.context)
        self._lock = threading.Lock()
        self.lending: Lending[_Block] = Lending(self._free)
        self._streams: weakref.WeakSet[CudaStream] = weakref.WeakSet()

    @property
    def memory(self) -> MemoryInfo:
        """The memory it gives out."""
        return self._device.memory

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """Type and number of the device in DLPack."""
        return self._device.dlpack_device

    def allocate(
        self, shape: tuple[int, ...], dtype: DataType, stream: Stream | None = None
    ) -> CudaBuffer:
        """Memory for a tensor, contents undefined.

        Where nothing is free, waits for the work of streams that memory was given back on.

        Raises:
            AllocationError: the device is full.
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
                fix="Use smaller batches, or raise the option 'gpu_mem_limit' if it is set.",
            ) from error
        return CudaBuffer(_Block(self, chunk.raw, chunk), dtype, tuple(shape))

    def imagine(self, shape: tuple[int, ...], dtype: DataType) -> CudaBuffer:
        """A buffer without memory, for going through work that isn't done.

        Raises:
            NotSupportedError: an element type that kernels don't know.
        """
        if dtype not in ELEMENTS:
            raise NotSupportedError(f"memory of {self.memory.device} holds no {dtype.text}")
        storage = Storage(0, 0)
        return CudaBuffer(_Block(self, storage, Chunk(storage, 0)), dtype, tuple(shape))

    def release(self, buffer: Buffer, stream: Stream | None = None) -> None:
        """Give a buffer back: later work on `stream` may have the memory, others once it got there.

        Raises:
            ContractError: not a buffer of this pool, a view, or released already.
        """
        self.lending.release(own_buffer(buffer, CudaBuffer, self), stream)

    def import_dlpack(self, tensor: Any) -> CudaBuffer:
        """A buffer over a tensor that another library has on the device.

        Waits until the tensor is ready.

        Raises:
            BufferError: it lies elsewhere, isn't contiguous, or has a type that kernels don't know.
        """
        queue = self._device.take_queue()
        try:
            with self._device.context.doing("taking a tensor of another library"):
                borrowed = take(tensor, self.dlpack_device, queue.handle)
                queue.synchronize()
        finally:
            self._device.give_queue(queue)
        element = ELEMENTS.get(borrowed.dtype)
        if element is None:
            raise BufferError(f"memory of {self.memory.device} holds no {borrowed.dtype.text}")
        nbytes = math.prod(borrowed.shape) * element.nbytes
        if not nbytes:
            return self.allocate(borrowed.shape, borrowed.dtype)
        return CudaBuffer(
            _Block(self, borrow(borrowed, nbytes), None), borrowed.dtype, borrowed.shape
        )

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
        if not isinstance(stream, CudaStream):
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
        if self._doubles:
            nbytes = 1 << max(nbytes - 1, 0).bit_length()
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
        # A tensor without elements has an address all the same.
        whole = max(size, _ALIGNMENT)
        if whole > self._room:
            raise AllocationError(
                "the device is full", expected=f"at most {self._room} bytes", got=whole
            )
        storage = reserve(self._device.context, whole)
        self._room -= whole
        return storage

    def _unreserve(self, storage: Storage) -> None:
        self._room += storage.nbytes
        storage.free()
