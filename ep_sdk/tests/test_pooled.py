"""Buffers of a pool, and blocks that are lent."""

from __future__ import annotations

import numpy as np
import pytest

from ep_core.errors import ContractError
from ep_core.types import DataType, MemoryInfo, MemoryKind
from ep_sdk.pooled import Lending, PooledBuffer, own_buffer


class Pool:
    memory = MemoryInfo("toy:0", MemoryKind.DEVICE)


class Block:
    def __init__(self, pool):
        self.pool = pool
        self.released = False
        self.stream = None
        self.lent = 0


@pytest.fixture
def buffer():
    return PooledBuffer(Block(Pool()), DataType.BFLOAT16, (2, 3))


def test_a_buffer_tells_what_it_is(buffer):
    assert (buffer.dtype, buffer.shape, buffer.nbytes) == (DataType.BFLOAT16, (2, 3), 12)
    assert buffer.memory == Pool.memory
    assert "[2, 3]" in repr(buffer)


def test_a_view_is_no_owner(buffer):
    pool = buffer._block.pool
    view = buffer.reshaped((6,))
    assert (view.shape, view.nbytes, view.is_view) == ((6,), 12, True)
    assert own_buffer(buffer, PooledBuffer, pool) is buffer
    with pytest.raises(ContractError, match="view"):
        own_buffer(view, PooledBuffer, pool)
    for foreign, owner in ((buffer, Pool()), (np.zeros(3), pool)):
        with pytest.raises(ContractError, match="isn't from"):
            own_buffer(foreign, PooledBuffer, owner)


def test_a_block_is_freed_once_and_with_its_stream(buffer):
    freed = []
    lending = Lending(freed.append)
    lending.release(buffer, "a stream")
    assert freed == [buffer._block]
    assert freed[0].stream == "a stream"
    with pytest.raises(ContractError, match="after it was released"):
        lending.release(buffer, None)
    with pytest.raises(ContractError, match="after it was released"):
        buffer.reshaped((6,))
    assert len(freed) == 1


def test_a_block_that_is_lent_is_freed_after_the_last_capsule(buffer):
    freed = []
    lending = Lending(freed.append)
    first, second = lending.lend(buffer._block), lending.lend(buffer._block)
    first()
    lending.release(buffer, None)
    lending.take_back()
    assert freed == []
    second()
    assert freed == [], "a capsule may be given up inside the garbage collector"
    lending.take_back()
    assert freed == [buffer._block]


def test_a_block_that_came_back_before_its_release_is_freed_by_that(buffer):
    freed = []
    lending = Lending(freed.append)
    lending.lend(buffer._block)()
    lending.take_back()
    assert freed == []
    lending.release(buffer, None)
    assert freed == [buffer._block]
