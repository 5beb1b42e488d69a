"""The simulator's memory: buffers whose bytes only the simulator can touch, and their allocator.

Fresh and freed memory is filled with 0xA5, so that reading too early or too late gives values that
a test can't mistake; guards around every block show writes beyond its ends. Memory is used again
through an `Arena`; all of that then happens in the order of the stream, where the memory is still
in use when it changes hands.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ep_core.contracts import AllocatorStats, Buffer, Stream
from ep_core.errors import AllocationError, ContractError, NotSupportedError
from ep_core.types import DataType, MemoryInfo
from ep_sdk.arena import Arena, Chunk
from ep_sdk.simulator.device import SimulatedDevice
from ep_sdk.simulator.stream import SimulatorStream

__all__ = ["GUARD_BYTES", "POISON", "MemoryPool", "SimulatorBuffer", "device_array"]

POISON = 0xA5
GUARD_BYTES = 64
_GUARD = 0x5C
_KDL_EXT_DEV = 12
_Storage = np.ndarray[Any, np.dtype[np.uint8]]
_PATIENCE_SECONDS = 10.0


class _Block:
    """One allocation: a guard, the bytes, a guard, in a chunk that others had before.

    Attributes:
        released: the owner has given it back; work already submitted may still use it.
        storage: None once it is freed.
    """

    __slots__ = ("chunk", "nbytes", "pool", "released", "storage")

    def __init__(self, pool: MemoryPool, chunk: Chunk[_Storage], nbytes: int) -> None:
        self.pool = pool
        self.chunk = chunk
        self.nbytes = nbytes
        self.released = False
        self.storage: _Storage | None = chunk.raw[: nbytes + 2 * GUARD_BYTES]

    def prepare(self) -> None:
        """Set the guards and poison the bytes, once nobody uses the chunk any more."""
        assert self.storage is not None
        self.storage[...] = _GUARD
        self.payload()[...] = POISON

    def payload(self) -> _Storage:
        """The bytes.

        Raises:
            ContractError: the block has been freed.
        """
        if self.storage is None:
            raise ContractError(
                f"memory of {self.pool.memory.device} was used after it was freed",
                fix="Release a buffer on the stream of its last use, or after that has finished.",
            )
        return self.storage[GUARD_BYTES : GUARD_BYTES + self.nbytes]

    def is_intact(self) -> bool:
        """True unless somebody wrote beyond the ends."""
        assert self.storage is not None
        before = self.storage[:GUARD_BYTES]
        after = self.storage[GUARD_BYTES + self.nbytes :]
        return bool((before == _GUARD).all() and (after == _GUARD).all())


class SimulatorBuffer:
    """A tensor in the simulator's memory; meets `ep_core.contracts.Buffer`.

    Has no way to read its bytes: that takes a copy through the simulator's data transfer.
    """

    __slots__ = ("_block", "_dtype", "_is_view", "_shape")

    def __init__(
        self, block: _Block, dtype: DataType, shape: tuple[int, ...], *, is_view: bool = False
    ) -> None:
        self._block = block
        self._dtype = dtype
        self._shape = shape
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
        return self._block.nbytes

    @property
    def memory(self) -> MemoryInfo:
        """The memory of its device."""
        return self._block.pool.memory

    def reshaped(self, shape: tuple[int, ...]) -> SimulatorBuffer:
        """The same bytes under another shape of as many elements; not to be released."""
        self.check()
        return SimulatorBuffer(self._block, self._dtype, shape, is_view=True)

    def check(self) -> None:
        """Raise ContractError if the buffer has been released."""
        if self._block.released:
            raise ContractError(
                f"a buffer of {self.memory.device} was used after it was released",
                got=repr(self),
            )

    def __dlpack__(self, *, stream: int | None = None) -> object:
        """Raise BufferError: nobody else can read this memory."""
        raise BufferError("simulated device memory can't be exported; copy it to the host")

    def __dlpack_device__(self) -> tuple[int, int]:
        """An extension device, with the number of the simulated device."""
        return (_KDL_EXT_DEV, int(self.memory.device.rpartition(":")[2]))

    def __repr__(self) -> str:
        return f"<{self.memory} {self._dtype.text}{list(self._shape)}>"


def device_array(buffer: SimulatorBuffer) -> np.ndarray[Any, Any]:
    """The bytes as an array: for the simulator's own kernels and copies, on their worker.

    Raises:
        ContractError: the memory has been freed.
    """
    return buffer._block.payload().view(buffer.dtype.numpy).reshape(buffer.shape)


class MemoryPool:
    """The memory of one device; meets `ep_core.contracts.Allocator`."""

    def __init__(self, device: SimulatedDevice, capacity: int, alignment: int) -> None:
        self._device = device
        self._room = capacity
        self._arena: Arena[_Storage] = Arena(
            self._reserve, self._unreserve, alignment, _PATIENCE_SECONDS
        )
        self._releasing = threading.Lock()

    @property
    def memory(self) -> MemoryInfo:
        """The memory it gives out."""
        return self._device.memory

    def allocate(
        self, shape: tuple[int, ...], dtype: DataType, stream: Stream | None = None
    ) -> SimulatorBuffer:
        """Memory for a tensor, filled with 0xA5.

        Waits for releases that streams still have to get to, if nothing is free without them.

        Raises:
            AllocationError: the device is full, or told to fail.
            NotSupportedError: strings and types narrower than a byte.
            DeviceLostError: the device is lost.
        """
        self._device.check()
        if dtype.bits % 8 or dtype is DataType.STRING:
            raise NotSupportedError(f"memory of {self.memory.device} holds no {dtype.text}")
        nbytes = math.prod(shape) * (dtype.bits // 8)
        self._device.count_allocation()
        try:
            chunk = self._arena.take(nbytes, stream)
        except AllocationError as error:
            raise AllocationError(
                f"{self.memory.device} has no room for {dtype.text}{list(shape)}",
                expected=error.expected,
                got=error.got,
                fix="Raise its option 'capacity', or run less at once.",
            ) from error
        block = _Block(self, chunk, nbytes)
        if chunk.is_idle or not _in_order(stream, block.prepare):
            block.prepare()
        return SimulatorBuffer(block, dtype, tuple(shape))

    def release(self, buffer: Buffer, stream: Stream | None = None) -> None:
        """Give a buffer back: later work on `stream` may have the memory, others once it got there.

        Goes through on a lost device too, so that whoever cleans up can finish.

        Raises:
            ContractError: not a buffer of this memory, a view, or released already; without a
                stream also if somebody wrote beyond its ends.
        """
        if not isinstance(buffer, SimulatorBuffer) or buffer._block.pool is not self:
            raise ContractError(
                f"a buffer was released to {self.memory.device}, which it isn't from",
                got=repr(buffer),
            )
        if buffer._is_view:
            raise ContractError("a view of a buffer was released", got=repr(buffer))
        block = buffer._block
        with self._releasing:
            buffer.check()
            block.released = True
        if _in_order(stream, lambda: self._wipe(block)):
            # Only now: whoever takes the chunk queues its own work behind the wiping.
            turn = self._arena.give(block.chunk, stream)
            settle = partial(self._arena.settle, block.chunk, turn, stream)
            if not _in_order(stream, settle):
                settle()
            return
        try:
            self._wipe(block)
        finally:
            self._arena.give(block.chunk)

    def stats(self) -> AllocatorStats:
        """Counters; memory is in use until it is released, whatever its stream still has to do."""
        return self._arena.stats()

    def close(self) -> None:
        """Give back what is free now, and the rest as soon as it is released."""
        self._arena.close()

    def _reserve(self, size: int) -> _Storage:
        """What the device gives the arena; called under its lock."""
        if size > self._room:
            raise AllocationError(
                "the device is full", expected=f"at most {self._room} bytes", got=size
            )
        self._room -= size
        return np.empty(size + 2 * GUARD_BYTES, np.uint8)

    def _unreserve(self, storage: _Storage) -> None:
        self._room += len(storage) - 2 * GUARD_BYTES

    def _wipe(self, block: _Block) -> None:
        """Poison the bytes of a released block, and look at its guards."""
        intact = block.is_intact()
        block.payload()[...] = POISON
        block.storage = None
        if not intact:
            raise ContractError(
                f"something wrote beyond the ends of a block of {block.nbytes} bytes "
                f"on {self.memory.device}"
            )


def _in_order(stream: Stream | None, action: Callable[[], None]) -> bool:
    """Have a stream do something, even after an error; False if there is none that could."""
    return isinstance(stream, SimulatorStream) and stream.submit_release(action)
