"""Buffers, the pool, and copies to and from the host."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_harness import needs_device, one_node, open_provider, session

from ep_core.errors import AllocationError, ContractError, NotSupportedError
from ep_core.types import DataType
from ep_sdk.device_kernels.elements import ELEMENTS

pytestmark = needs_device


@pytest.mark.parametrize("dtype", sorted(ELEMENTS))
def test_bytes_come_back_as_they_went(provider, dtype):
    raw = np.random.default_rng(1).integers(0, 2, 24, np.uint8)
    there = np.repeat(raw, dtype.numpy.itemsize).view(dtype.numpy).reshape(4, 6)
    back = np.zeros_like(there)
    buffer = provider.allocator.allocate((4, 6), dtype)
    provider.data_transfer.copy(there, buffer, None)
    provider.data_transfer.copy(buffer, back, None)
    provider.allocator.release(buffer)
    assert back.tobytes() == there.tobytes()


def test_memory_is_used_again_on_its_stream(provider):
    stream = provider.create_stream()
    for _ in range(5):
        buffer = provider.allocator.allocate((1000,), DataType.FLOAT, stream)
        provider.allocator.release(buffer, stream)
    stats = provider.allocator.stats()
    assert stats.in_use_bytes == 0
    assert stats.peak_bytes == 4000
    assert stats.reserved_bytes < 8000
    assert (stats.allocations, stats.releases) == (5, 5)


def test_tensors_without_elements_take_nothing(provider):
    buffer = provider.allocator.allocate((0, 3), DataType.FLOAT)
    assert buffer.nbytes == 0
    assert provider.allocator.stats().in_use_bytes == 0
    provider.data_transfer.copy(np.zeros((0, 3), np.float32), buffer, None)
    provider.allocator.release(buffer)


def test_beyond_the_capacity_is_an_error_that_says_so():
    provider = open_provider(capacity=1 << 20)
    kept = provider.allocator.allocate((1 << 17,), DataType.FLOAT)
    with pytest.raises(AllocationError, match="capacity"):
        provider.allocator.allocate((1 << 18,), DataType.FLOAT)
    provider.allocator.release(kept)
    provider.close()


def test_a_full_pool_waits_for_what_streams_give_back():
    provider = open_provider(capacity=1 << 20)
    stream = provider.create_stream()
    buffer = provider.allocator.allocate((1 << 17,), DataType.FLOAT, stream)
    provider.allocator.release(buffer, stream)
    other = provider.create_stream()
    larger = provider.allocator.allocate((200_000,), DataType.FLOAT, other)
    provider.allocator.release(larger, other)
    provider.close()


def test_mistakes_with_buffers_are_told(provider):
    pool = provider.allocator
    buffer = pool.allocate((2,), DataType.FLOAT)
    with pytest.raises(ContractError, match="view"):
        pool.release(buffer.reshaped((1, 2)))
    pool.release(buffer)
    with pytest.raises(ContractError, match="released"):
        pool.release(buffer)
    with pytest.raises(ContractError, match="released"):
        provider.data_transfer.copy(buffer, np.zeros(2, np.float32), None)
    with pytest.raises(NotSupportedError, match="string"):
        pool.allocate((2,), DataType.STRING)


def test_mistakes_with_copies_are_told(provider):
    buffer = provider.allocator.allocate((2, 2), DataType.FLOAT)
    copy = provider.data_transfer.copy
    with pytest.raises(ContractError, match="differ"):
        copy(np.zeros((2, 2), np.int32), buffer, None)
    with pytest.raises(ContractError, match="contiguous"):
        copy(np.zeros((2, 4), np.float32)[:, ::2], buffer, None)
    frozen = np.zeros((2, 2), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ContractError, match="read-only"):
        copy(buffer, frozen, None)
    provider.allocator.release(buffer)


def test_small_integers_stay_known_on_the_host(provider):
    buffer = provider.allocator.allocate((3,), DataType.INT64)
    provider.data_transfer.copy(np.array([1, 2, 3]), buffer, None)
    assert buffer.values is not None
    assert buffer.values.tolist() == [1, 2, 3]
    assert buffer.reshaped((3, 1)).values.shape == (3, 1)
    provider.allocator.release(buffer)


def test_two_providers_of_a_device_share_its_context(provider):
    other = open_provider()
    assert other.memory == provider.memory
    buffer = other.allocator.allocate((4,), DataType.INT32)
    there, back = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    provider.data_transfer.copy(there, buffer, None)
    provider.data_transfer.copy(buffer, back, None)
    np.testing.assert_array_equal(back, there)
    other.allocator.release(buffer)
    other.close()


def test_pinned_arrays_are_counted_until_the_last_view_goes(provider):
    array = provider.allocate_pinned((3, 5), DataType.FLOAT)
    assert array.flags.c_contiguous
    view = array[1:]
    array[...] = 7
    assert provider.allocator.stats().pinned_bytes == 60
    del array
    assert provider.allocator.stats().pinned_bytes == 60
    np.testing.assert_array_equal(view, np.full((2, 5), 7, np.float32))
    del view
    assert provider.allocator.stats().pinned_bytes == 0


def test_pinned_arrays_outlive_the_provider():
    provider = open_provider()
    array = provider.allocate_pinned((4,), DataType.INT64)
    provider.close()
    array[...] = 3
    assert array.sum() == 12


def test_with_pinned_copies_beside_the_work_results_are_the_same(monkeypatch):
    device = open_provider().opened
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    model, feeds = one_node("MatMul", [a, b])
    found = []
    for has_own_memory in (False, True):
        monkeypatch.setattr(device, "has_own_memory", has_own_memory)
        with session(model) as running:
            found += [running.run(None, feeds)[0] for _ in range(3)]
    for one in found[1:]:
        assert one.tobytes() == found[0].tobytes()
