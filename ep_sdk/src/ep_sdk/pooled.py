"""Buffers of a provider's own memory: what all have in common, whatever the memory is.

A block is memory while one owner has it; buffers are the tensor in it, and views of that. Where
memory comes from, and how work on it is ordered, is the provider's own.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

from ep_core.contracts import Buffer, Stream
from ep_core.errors import ContractError
from ep_core.types import DataType, MemoryInfo

__all__ = ["Lending", "PoolBlock", "PooledBuffer", "own_buffer"]


class _Pool(Protocol):
    @property
    def memory(self) -> MemoryInfo: ...


class PoolBlock(Protocol):
    """What a provider's blocks have.

    Attributes:
        released: the owner has given it back; work already submitted may still use it.
        stream: of the release.
        lent: how many capsules of DLPack's share it; it isn't freed before they are gone.
    """

    released: bool
    stream: Stream | None
    lent: int

    @property
    def pool(self) -> _Pool: ...


Block = TypeVar("Block", bound=PoolBlock)


class PooledBuffer(Generic[Block]):
    """The part of `ep_core.contracts.Buffer` that is the same for every memory.

    Args:
        block: what it lies in.
        is_view: the memory belongs to another buffer.
    """

    __slots__ = ("_block", "_dtype", "_is_view", "_nbytes", "_shape")

    def __init__(
        self, block: Block, dtype: DataType, shape: tuple[int, ...], *, is_view: bool = False
    ) -> None:
        self._block = block
        self._dtype = dtype
        self._shape = shape
        self._nbytes = math.prod(shape) * dtype.numpy.itemsize
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
    def is_view(self) -> bool:
        """The memory belongs to another buffer."""
        return self._is_view

    def reshaped(self, shape: tuple[int, ...]) -> Self:
        """The same bytes under another shape of as many elements; not to be released."""
        self.check()
        return type(self)(self._block, self._dtype, shape, is_view=True)

    def check(self) -> None:
        """Raise ContractError if the buffer has been released."""
        if self._block.released:
            raise ContractError(
                f"a buffer of {self.memory.device} was used after it was released",
                got=repr(self),
            )

    def __repr__(self) -> str:
        return f"<{self.memory} {self._dtype.text}{list(self._shape)}>"


AnyBuffer = TypeVar("AnyBuffer", bound=PooledBuffer[Any])


def own_buffer(buffer: Buffer, kind: type[AnyBuffer], pool: _Pool) -> AnyBuffer:
    """Return a buffer that is to be released to a pool.

    Raises:
        ContractError: not a buffer of this pool, or a view.
    """
    if not isinstance(buffer, kind) or buffer._block.pool is not pool:
        raise ContractError(
            f"a buffer was released to {pool.memory.device}, which it isn't from",
            got=repr(buffer),
        )
    if buffer.is_view:
        raise ContractError("a view of a buffer was released", got=repr(buffer))
    return buffer


class Lending(Generic[Block]):
    """Keeps blocks that DLPack's capsules share from being freed too early. Safe on many threads.

    Args:
        free: lets others have a block that was released.
    """

    def __init__(self, free: Callable[[Block], None]) -> None:
        self._free = free
        self._lock = threading.Lock()
        # Capsules are given up on any thread, and inside the garbage collector: that leaves a note.
        self._returned: deque[Block] = deque()

    def lend(self, block: Block) -> Callable[[], None]:
        """Count one more capsule; returns what is to be called once, when it is given up."""
        with self._lock:
            block.lent += 1
        return partial(self._returned.append, block)

    def release(self, buffer: PooledBuffer[Block], stream: Stream | None) -> None:
        """Free a buffer's block, or have it freed when the last capsule has gone.

        Args:
            stream: after whose work.

        Raises:
            ContractError: it was released before.
        """
        self.take_back()
        with self._lock:
            buffer.check()
            buffer._block.released = True
            buffer._block.stream = stream
            if buffer._block.lent:
                return
        self._free(buffer._block)

    def take_back(self) -> None:
        """Free what was released while it was lent, and has been given up since."""
        while True:
            try:
                block = self._returned.popleft()
            except IndexError:
                return
            with self._lock:
                block.lent -= 1
                is_free = block.released and not block.lent
            if is_free:
                self._free(block)
