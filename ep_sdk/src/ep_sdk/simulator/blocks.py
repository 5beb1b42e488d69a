"""What a buffer of the simulator lies in: an allocation, or memory that another library lent.

A lent tensor is on DLPack's `kDLExtDev` with the number of the simulated device. An address there
is one of this process, which a device that isn't simulated would never promise.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ep_core.contracts import Stream
from ep_core.errors import ContractError
from ep_sdk.arena import Chunk
from ep_sdk.dlpack import Borrowed

if TYPE_CHECKING:
    from ep_sdk.simulator.memory import MemoryPool

__all__ = ["EXT_DEVICE", "GUARD_BYTES", "POISON", "Block", "Loan", "Storage"]

EXT_DEVICE = 12
"""kDLExtDev."""

POISON = 0xA5
GUARD_BYTES = 64
_GUARD = 0x5C
Storage = np.ndarray[Any, np.dtype[np.uint8]]


class Block:
    """One allocation: a guard, the bytes, a guard, in a chunk that others had before.

    Attributes:
        released: the owner has given it back; work already submitted may still use it.
        stream: of the release.
        lent: how many capsules of DLPack's share it; it isn't freed before they are gone.
        storage: None once it is freed.
    """

    __slots__ = ("chunk", "lent", "nbytes", "pool", "released", "storage", "stream")

    def __init__(self, pool: MemoryPool, chunk: Chunk[Storage], nbytes: int) -> None:
        self.pool = pool
        self.chunk = chunk
        self.nbytes = nbytes
        self.released = False
        self.stream: Stream | None = None
        self.lent = 0
        self.storage: Storage | None = chunk.raw[: nbytes + 2 * GUARD_BYTES]

    def prepare(self) -> None:
        """Set the guards and poison the bytes, once nobody uses the chunk any more."""
        assert self.storage is not None
        self.storage[...] = _GUARD
        self.payload()[...] = POISON

    def payload(self) -> Storage:
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


class Loan:
    """Memory that somebody else owns, in the place of an allocation.

    Attributes:
        released: it has been given up; work already submitted may still use it.
        stream: of the release.
        lent: 0: it isn't exported again.
    """

    __slots__ = ("_borrowed", "lent", "nbytes", "pool", "released", "stream")

    def __init__(self, pool: MemoryPool, borrowed: Borrowed, nbytes: int) -> None:
        self.pool = pool
        self.nbytes = nbytes
        self.released = False
        self.stream: Stream | None = None
        self.lent = 0
        self._borrowed: Borrowed | None = borrowed

    def payload(self) -> Storage:
        """The bytes.

        Raises:
            ContractError: they have been given back.
        """
        if self._borrowed is None:
            raise ContractError(
                f"memory lent to {self.pool.memory.device} was used after it was given back",
                fix="Release a buffer on the stream of its last use, or after that has finished.",
            )
        memory = (ctypes.c_uint8 * max(self.nbytes, 1)).from_address(self._borrowed.address)
        return np.frombuffer(memoryview(memory).cast("B"), np.uint8, self.nbytes)

    def give_back(self) -> None:
        """Let the owner have it."""
        self._borrowed = None
