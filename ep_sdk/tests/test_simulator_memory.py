"""The simulator's memory: out of reach for the host, counted, poisoned and guarded."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ep_core.contracts import Buffer
from ep_core.errors import AllocationError, ContractError, NotSupportedError
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo, MemoryKind
from ep_sdk.simulator.memory import GUARD_BYTES, POISON

FLOAT = DataType.FLOAT


@pytest.fixture
def device(simulator):
    return simulator()


@pytest.fixture
def stream(device):
    return device.create_stream()


def test_host_code_can_t_read_the_bytes(device):
    buffer = device.allocator.allocate((2, 3), FLOAT)
    assert isinstance(buffer, Buffer)
    assert (buffer.dtype, buffer.shape, buffer.nbytes) == (FLOAT, (2, 3), 24)
    assert buffer.memory == MemoryInfo("simulator:0", MemoryKind.DEVICE)
    assert not buffer.memory.is_host
    with pytest.raises((BufferError, RuntimeError), match=r"[Uu]nsupported device"):
        np.from_dlpack(buffer)
    with pytest.raises(TypeError):
        memoryview(buffer)
    assert np.asarray(buffer).dtype == object
    device.allocator.release(buffer)


@pytest.mark.parametrize("dtype", [DataType.FLOAT, DataType.FLOAT16, DataType.INT64, DataType.BOOL])
def test_there_and_back(device, stream, to_device, to_host, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    buffer = to_device(device, stream, array)
    back = to_host(device, stream, buffer)
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype
    device.allocator.release(buffer, stream)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors(device, stream, to_device, to_host, shape):
    array = np.full(shape, 7, np.float32)
    buffer = to_device(device, stream, array)
    back = to_host(device, stream, buffer)
    assert back.shape == shape
    np.testing.assert_array_equal(back, array)
    device.allocator.release(buffer, stream)


def test_without_a_stream_a_copy_is_done_when_it_returns(device, to_device, to_host):
    buffer = to_device(device, None, np.float32([1, 2]))
    np.testing.assert_array_equal(to_host(device, None, buffer), [1, 2])
    device.allocator.release(buffer)


def test_device_to_device(simulator, to_device, to_host):
    zero, one = simulator("0"), simulator("1")
    assert zero.data_transfer.can_copy(zero.memory, one.memory)
    assert one.data_transfer.can_copy(zero.memory, one.memory)
    assert zero.data_transfer.can_copy(HOST_MEMORY, zero.memory)
    assert zero.data_transfer.can_copy(zero.memory, HOST_MEMORY)
    assert not zero.data_transfer.can_copy(one.memory, HOST_MEMORY)
    assert not zero.data_transfer.can_copy(HOST_MEMORY, HOST_MEMORY)
    for kind in MemoryKind:
        foreign = MemoryInfo("gpu:0", kind)
        assert not zero.data_transfer.can_copy(zero.memory, foreign)
        assert not zero.data_transfer.can_copy(foreign, zero.memory)

    first, second = zero.create_stream(), one.create_stream()
    source = to_device(zero, first, np.float32([1, 2, 3]))
    target = one.allocator.allocate((3,), FLOAT, second)
    zero.data_transfer.copy(source, target, first)
    second.wait(first.record())
    np.testing.assert_array_equal(to_host(one, second, target), [1, 2, 3])
    zero.allocator.release(source, first)
    one.allocator.release(target, second)


def test_fresh_memory_is_poisoned(device, stream, to_host):
    buffer = device.allocator.allocate((8,), DataType.UINT8, stream)
    assert (to_host(device, stream, buffer) == POISON).all()
    device.allocator.release(buffer, stream)


def test_freed_memory_is_poisoned(device, stream, to_device):
    buffer = to_device(device, stream, np.zeros(8, np.uint8))
    stream.synchronize()
    storage = buffer._block.storage
    device.allocator.release(buffer, stream)
    stream.synchronize()
    assert (storage[GUARD_BYTES:-GUARD_BYTES] == POISON).all()


@pytest.mark.parametrize("offset", [0, GUARD_BYTES - 1, -1, -GUARD_BYTES])
def test_writing_beyond_the_ends_is_noticed(device, stream, offset):
    buffer = device.allocator.allocate((8,), DataType.UINT8)
    buffer._block.storage[offset] = 0
    with pytest.raises(ContractError, match="wrote beyond the ends of a block of 8 bytes"):
        device.allocator.release(buffer)
    buffer = device.allocator.allocate((8,), DataType.UINT8, stream)
    buffer._block.storage[offset] = 0
    device.allocator.release(buffer, stream)
    with pytest.raises(ContractError, match="wrote beyond the ends"):
        stream.synchronize()


def test_using_a_released_buffer(device, stream, to_device):
    buffer = to_device(device, stream, np.zeros(3, np.float32))
    device.allocator.release(buffer, stream)
    host = np.zeros(3, np.float32)
    for source, target in ((buffer, host), (host, buffer)):
        with pytest.raises(ContractError, match="used after it was released"):
            device.data_transfer.copy(source, target, stream)
    with pytest.raises(ContractError, match="used after it was released"):
        buffer.reshaped((3, 1))
    with pytest.raises(ContractError, match="used after it was released"):
        device.allocator.release(buffer, stream)


def test_releasing_too_early_is_noticed(simulator, to_device):
    """Released without a stream while a copy is still queued: the copy finds the memory gone."""
    device = simulator(copy_latency_us=20_000)
    stream = device.create_stream()
    buffer = device.allocator.allocate((3,), FLOAT, stream)
    device.data_transfer.copy(np.zeros(3, np.float32), buffer, stream)
    device.allocator.release(buffer)
    with pytest.raises(ContractError, match="used after it was freed"):
        stream.synchronize()


def test_releasing_in_stream_order_is_fine(simulator):
    device = simulator(copy_latency_us=20_000)
    stream = device.create_stream()
    buffer = device.allocator.allocate((3,), FLOAT, stream)
    host = np.zeros(3, np.float32)
    device.data_transfer.copy(np.float32([1, 2, 3]), buffer, stream)
    device.data_transfer.copy(buffer, host, stream)
    device.allocator.release(buffer, stream)
    assert device.allocator.stats().in_use_bytes == 0
    other = device.allocator.allocate((3,), FLOAT)
    assert other._block.chunk is not buffer._block.chunk
    stream.synchronize()
    np.testing.assert_array_equal(host, [1, 2, 3])
    device.allocator.release(other)


def test_only_its_own_buffers_come_back(simulator):
    zero, one = simulator("0"), simulator("1")
    buffer = one.allocator.allocate((3,), FLOAT)
    with pytest.raises(ContractError, match="which it isn't from"):
        zero.allocator.release(buffer)
    with pytest.raises(ContractError, match="which it isn't from"):
        zero.allocator.release(np.zeros(3))
    with pytest.raises(ContractError, match="a view of a buffer was released"):
        one.allocator.release(buffer.reshaped((3, 1)))
    one.allocator.release(buffer)


def test_statistics_count_every_byte(simulator):
    device = simulator(alignment=256)
    a = device.allocator.allocate((10,), FLOAT)
    b = device.allocator.allocate((300,), DataType.UINT8)
    stats = device.allocator.stats()
    assert (stats.in_use_bytes, stats.reserved_bytes, stats.peak_bytes) == (340, 768, 340)
    device.allocator.release(a)
    stats = device.allocator.stats()
    assert (stats.in_use_bytes, stats.peak_bytes) == (300, 340)
    assert (stats.allocations, stats.releases) == (2, 1)
    device.allocator.release(b)
    assert device.allocator.stats().reserved_bytes == 768
    device.close()
    assert device.allocator.stats().reserved_bytes == 0


def test_capacity_counts_aligned_bytes(simulator):
    device = simulator(capacity=1024, alignment=256)
    kept = [device.allocator.allocate((1,), FLOAT) for _ in range(4)]
    with pytest.raises(AllocationError, match=r"no room for float\[1\].*at most 0 bytes; got 256"):
        device.allocator.allocate((1,), FLOAT)
    for buffer in kept:
        device.allocator.release(buffer)
    with pytest.raises(MemoryError):
        device.allocator.allocate((2**50,), FLOAT)


def test_a_full_device_waits_for_releases_under_way(simulator):
    device = simulator(capacity=1024, copy_latency_us=30_000)
    stream, other = device.create_stream(), device.create_stream()
    first = device.allocator.allocate((256,), FLOAT, stream)
    device.data_transfer.copy(np.zeros(256, np.float32), first, stream)
    event = stream.record()
    device.allocator.release(first, stream)
    assert not event.done()
    second = device.allocator.allocate((256,), FLOAT, other)
    assert event.done()
    device.allocator.release(second, other)


def test_memory_on_its_way_back_is_used_again_in_the_order_of_its_stream(simulator, to_host):
    """The copy that is still queued reads the old bytes; the new owner sees poison."""
    device = simulator(capacity=1024, copy_latency_us=20_000)
    stream = device.create_stream()
    old = device.allocator.allocate((200,), FLOAT, stream)
    device.data_transfer.copy(np.full(200, 7, np.float32), old, stream)
    read = np.zeros(200, np.float32)
    device.data_transfer.copy(old, read, stream)
    event = stream.record()
    device.allocator.release(old, stream)
    new = device.allocator.allocate((130,), FLOAT, stream)
    assert not event.done()
    fresh = to_host(device, stream, new)
    assert (fresh.view(np.uint8) == POISON).all()
    assert (read == 7).all()
    assert new._block.chunk is old._block.chunk
    device.data_transfer.copy(np.full(130, 9, np.float32), new, stream)
    assert (to_host(device, stream, new) == 9).all()
    new._block.storage[-1] = 0
    device.allocator.release(new, stream)
    with pytest.raises(ContractError, match="beyond the ends of a block of 520 bytes"):
        stream.synchronize()


def test_equal_requests_reserve_nothing_more(device, stream):
    shapes = [(100,), (3, 50), (100,), (1000,)]
    reserved = set()
    for _ in range(20):
        buffers = [device.allocator.allocate(shape, FLOAT, stream) for shape in shapes]
        for buffer in buffers:
            device.allocator.release(buffer, stream)
        reserved.add(device.allocator.stats().reserved_bytes)
    assert reserved == {512 + 768 + 512 + 4096}


@pytest.mark.parametrize("dtype", [DataType.STRING, DataType.INT4, DataType.UINT2])
def test_types_it_can_t_hold(device, dtype):
    with pytest.raises(NotSupportedError, match=f"holds no {dtype.text}"):
        device.allocator.allocate((2,), dtype)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((3, 1), np.float32), "source and target of a copy differ"),
        (np.zeros(3, np.float64), "source and target of a copy differ"),
        (np.zeros(6, np.float32)[::2], "C-contiguous"),
        ([0, 0, 0], "can't copy this memory"),
    ],
)
def test_copies_that_make_no_sense(device, stream, source, message):
    buffer = device.allocator.allocate((3,), FLOAT, stream)
    with pytest.raises(ContractError, match=message):
        device.data_transfer.copy(source, buffer, stream)
    device.allocator.release(buffer, stream)


def test_copies_need_a_target_that_can_be_written_and_a_stream_of_the_simulator(device, stream):
    buffer = device.allocator.allocate((3,), FLOAT, stream)
    target = np.zeros(3, np.float32)
    with pytest.raises(ContractError, match="stream of another provider"):
        device.data_transfer.copy(buffer, target, object())
    target.flags.writeable = False
    with pytest.raises(ContractError, match="read-only"):
        device.data_transfer.copy(buffer, target, stream)
    device.allocator.release(buffer, stream)


def test_eight_threads_allocate_and_release(device):
    def work():
        stream = device.create_stream()
        for number in range(100):
            buffer = device.allocator.allocate((number + 1,), FLOAT, stream)
            device.data_transfer.copy(np.zeros(number + 1, np.float32), buffer, stream)
            device.allocator.release(buffer, stream)
        stream.synchronize()
        stream.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = device.allocator.stats()
    assert (stats.in_use_bytes, stats.allocations, stats.releases) == (0, 800, 800)
