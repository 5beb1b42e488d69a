"""The simulator's memory: buffers whose bytes only the simulator can touch, and their allocator.

Fresh and freed memory is filled with 0xA5, so that reading too early or too late gives values that
a test can't mistake; guards around every block show writes beyond its ends. Memory is used again
through an `Arena`; all of that then happens in the order of the stream, where the memory is still
in use when it changes hands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ep_core.contracts import AllocatorStats, Buffer, Stream
from ep_core.errors import AllocationError, ContractError, NotSupportedError
from ep_core.types import DataType, MemoryInfo
from ep_sdk.arena import Arena
from ep_sdk.dlpack import lend, take
from ep_sdk.pooled import Lending, PooledBuffer, own_buffer
from ep_sdk.simulator.blocks import EXT_DEVICE, GUARD_BYTES, POISON, Block, Loan, Storage
from ep_sdk.simulator.device import SimulatedDevice
from ep_sdk.simulator.stream import SimulatorStream

__all__ = ["GUARD_BYTES", "POISON", "MemoryPool", "SimulatorBuffer", "device_array"]

_PATIENCE_SECONDS = 10.0


class SimulatorBuffer(PooledBuffer[Block | Loan]):
    """A tensor in the simulator's memory; meets `ep_core.contracts.Buffer`.

    Has no way to read its bytes: that takes a copy through the simulator's data transfer.
    """

    __slots__ = ()

    def data_ptr(self) -> int:
        """Where its bytes are; only the simulator may read there.

        Raises:
            ContractError: the buffer has been released.
        """
        self.check()
        return int(self._block.payload().ctypes.data)

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
    ) -> object:
        """Share the bytes, which only other simulated devices can read.

        Raises:
            ContractError: the buffer has been released.
            BufferError: it is another library's already.
        """
        self.check()
        block = self._block
        if isinstance(block, Loan):
            raise BufferError("memory of another library isn't exported again")
        device = self.__dlpack_device__()
        given_back = block.pool.lending.lend(block)
        address = int(block.payload().ctypes.data)
        return lend(address, self.shape, self.dtype, device, given_back, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """An extension device, with the number of the simulated device."""
        return (EXT_DEVICE, int(self.memory.device.rpartition(":")[2]))


def device_array(buffer: SimulatorBuffer) -> np.ndarray[Any, Any]:
    """The bytes as an array: for the simulator's own kernels and copies, on their worker.

    Raises:
        ContractError: the memory has been freed.
    """
    return buffer._block.payload().view(buffer.dtype.numpy).reshape(buffer.shape)


class MemoryPool:
    """The memory of one device; meets `ep_core.contracts.Allocator`.

    Attributes:
        lending: what other libraries share by DLPack.
    """

    def __init__(self, device: SimulatedDevice, capacity: int, alignment: int) -> None:
        self._device = device
        self._room = capacity
        self._arena: Arena[Storage] = Arena(
            self._reserve, self._unreserve, alignment, _PATIENCE_SECONDS
        )
        self.lending: Lending[Block | Loan] = Lending(self._free)

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
        self.lending.take_back()
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
        block = Block(self, chunk, nbytes)
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
        self.lending.release(own_buffer(buffer, SimulatorBuffer, self), stream)

    def import_dlpack(self, tensor: Any) -> SimulatorBuffer:
        """A buffer over another library's tensor, or over one of the simulator's.

        Raises:
            BufferError: it isn't on this device, isn't contiguous, or has a type that the memory
                can't hold.
        """
        number = int(self.memory.device.rpartition(":")[2])
        borrowed = take(tensor, (EXT_DEVICE, number))
        nbytes = math.prod(borrowed.shape) * borrowed.dtype.numpy.itemsize
        return SimulatorBuffer(Loan(self, borrowed, nbytes), borrowed.dtype, borrowed.shape)

    def stats(self) -> AllocatorStats:
        """Counters; memory is in use until it is released, whatever its stream still has to do."""
        self.lending.take_back()
        return replace(self._arena.stats(), pinned_bytes=self._device.pinned.nbytes())

    def close(self) -> None:
        """Give back what is free now, and the rest as soon as it is released."""
        self._arena.close()

    def _reserve(self, size: int) -> Storage:
        """What the device gives the arena; called under its lock."""
        if size > self._room:
            raise AllocationError(
                "the device is full", expected=f"at most {self._room} bytes", got=size
            )
        self._room -= size
        return np.empty(size + 2 * GUARD_BYTES, np.uint8)

    def _unreserve(self, storage: Storage) -> None:
        self._room += len(storage) - 2 * GUARD_BYTES

    def _free(self, block: Block | Loan) -> None:
        """Let others have a released block once its stream got there."""
        stream = block.stream
        if isinstance(block, Loan):
            if not _in_order(stream, block.give_back):
                block.give_back()
            return
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

    def _wipe(self, block: Block) -> None:
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
