"""Memory of the device, copies, and how it is shared."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from cuda_harness import download, floats, model_of, open_provider, session, upload

from ep_core.errors import AllocationError, ContractError
from ep_core.types import DataType


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_])
def test_values_come_back_as_they_went(provider, dtype):
    array = (floats(3, 70, 5) * 50).astype(dtype)
    assert np.array_equal(download(provider, upload(provider, array)), array)


def test_nothing_and_single_elements_are_copied(provider):
    for array in (np.empty((0, 3), np.float32), np.array(7, np.int32)):
        found = download(provider, upload(provider, array))
        assert found.shape == array.shape
        assert np.array_equal(found, array)


def test_copies_on_a_stream_are_in_order(provider):
    first, second = floats(1000, seed=1), floats(1000, seed=2)
    stream = provider.create_stream()
    buffer = provider.allocator.allocate((1000,), DataType.FLOAT, stream)
    other = provider.allocator.allocate((1000,), DataType.FLOAT, stream)
    found = np.empty_like(first)
    provider.data_transfer.copy(first, buffer, stream)
    provider.data_transfer.copy(buffer, other, stream)
    provider.data_transfer.copy(second, buffer, stream)
    provider.data_transfer.copy(other, found, stream)
    stream.record().synchronize()
    assert np.array_equal(found, first)
    assert np.array_equal(download(provider, buffer), second)
    stream.close()


def test_memory_is_used_again(provider):
    stream = provider.create_stream()
    for _ in range(20):
        buffer = provider.allocator.allocate((5000,), DataType.FLOAT, stream)
        provider.allocator.release(buffer, stream)
    stream.synchronize()
    stats = provider.allocator.stats()
    assert stats.device_allocations == 1
    assert (stats.allocations, stats.releases, stats.in_use_bytes) == (20, 20, 0)
    stream.close()


@pytest.mark.usefixtures("provider")
def test_the_limit_holds_and_what_is_free_goes_back_first():
    provider = open_provider(gpu_mem_limit=1 << 20)
    with pytest.raises(AllocationError, match="gpu_mem_limit"):
        provider.allocator.allocate((1 << 19,), DataType.FLOAT)
    held = provider.allocator.allocate((200_000,), DataType.FLOAT)
    provider.allocator.release(held)
    # Of another size, for which there is room only if the first one's memory is given back.
    again = provider.allocator.allocate((240_000,), DataType.FLOAT)
    assert provider.allocator.stats().device_allocations == 2
    provider.allocator.release(again)
    provider.close()


@pytest.mark.usefixtures("provider")
def test_powers_of_two_serve_shapes_that_vary():
    provider = open_provider(arena_extend_strategy="kNextPowerOfTwo")
    for length in (600, 700, 1000, 1024):
        buffer = provider.allocator.allocate((length,), DataType.FLOAT)
        provider.allocator.release(buffer)
    assert provider.allocator.stats().device_allocations == 1
    provider.close()


def test_a_released_buffer_is_refused(provider):
    buffer = upload(provider, floats(3))
    provider.allocator.release(buffer)
    for use in (buffer.data_ptr, buffer.__dlpack__, lambda: buffer.__cuda_array_interface__):
        with pytest.raises(ContractError, match="after it was released"):
            use()
    with pytest.raises(ContractError):
        provider.allocator.release(buffer)


def test_pinned_memory_is_counted_while_it_lives(provider):
    array = provider.allocate_pinned((10, 10), DataType.FLOAT)
    array[...] = 3
    assert provider.allocator.stats().pinned_bytes == 400
    buffer = upload(provider, array)
    assert (download(provider, buffer) == 3).all()
    view = array[2:]
    del array
    assert provider.allocator.stats().pinned_bytes == 400
    del view
    assert provider.allocator.stats().pinned_bytes == 0


def test_pinned_memory_may_be_let_go_on_any_thread(provider):
    held = [provider.allocate_pinned((10,), DataType.FLOAT)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert provider.allocator.stats().pinned_bytes == 0


def test_threads_share_a_provider(provider):
    failures = []

    def work(seed):
        try:
            for turn in range(10):
                array = floats(3000, seed=seed * 100 + turn)
                buffer = upload(provider, array)
                assert np.array_equal(download(provider, buffer), array)
                provider.allocator.release(buffer)
        except BaseException as error:  # noqa: BLE001 - it is told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert provider.allocator.stats().in_use_bytes == 0


class Foreign:
    """A tensor of another library on the device, over a buffer's memory."""

    def __init__(self, buffer):
        self.buffer = buffer
        self.asked = []

    def __dlpack_device__(self):
        return self.buffer.__dlpack_device__()

    def __dlpack__(self, **wanted):
        self.asked.append(wanted.pop("stream", None))
        return self.buffer.__dlpack__(**wanted)


def test_tensors_of_other_libraries_are_taken_where_they_are(provider):
    array = floats(4, 5)
    buffer = upload(provider, array)
    foreign = Foreign(buffer)
    taken = provider.import_dlpack(foreign)
    assert taken.data_ptr() == buffer.data_ptr()
    assert np.array_equal(download(provider, taken), array)
    # A stream of ours, which the host waits for: neither of the default streams' numbers.
    assert foreign.asked[0] not in (None, -1, 0, 1, 2)
    provider.allocator.release(taken)


def test_memory_lives_while_another_library_has_it(provider):
    buffer = upload(provider, floats(1000))
    taken = provider.import_dlpack(Foreign(buffer))
    provider.allocator.release(buffer)
    other = upload(provider, floats(1000, seed=1))
    assert other.data_ptr() != taken.data_ptr()
    assert np.array_equal(download(provider, taken), floats(1000))
    provider.allocator.release(taken)


def test_tensors_of_the_host_are_refused(provider):
    with pytest.raises(BufferError):
        provider.import_dlpack(floats(3))


def test_the_interface_tells_where_and_what(provider):
    buffer = upload(provider, floats(4, 5).astype(np.float16))
    told = buffer.__cuda_array_interface__
    assert told["data"] == (buffer.data_ptr(), False)
    assert told["shape"] == (4, 5)
    assert np.dtype(told["typestr"]) == np.float16
    assert told["version"] == 3
    narrow = provider.allocator.allocate((2,), DataType.BFLOAT16)
    with pytest.raises(AttributeError, match="bfloat16"):
        _ = narrow.__cuda_array_interface__


def test_memory_bound_by_address_is_read_and_written_where_it_is(provider):
    x, y = floats(1000), floats(1000, seed=1)
    device = provider.device.id
    left, right = upload(provider, x), upload(provider, y)
    target = upload(provider, np.zeros(1000, np.float32))
    model, _ = model_of("Add", [x, y])
    with session(model, device) as running:
        binding = running.io_binding()
        for name, buffer in (("x0", left), ("x1", right)):
            binding.bind_input(name, "cuda", device, np.float32, (1000,), buffer.data_ptr())
        binding.bind_output("y", "cuda", device, np.float32, (1000,), target.data_ptr())
        running.run_with_iobinding(binding)
        assert np.array_equal(download(provider, target), x + y)


def test_results_may_stay_on_the_device(provider):
    x, y = floats(1000), floats(1000, seed=1)
    model, _ = model_of("Add", [x, y])
    with session(model, provider.device.id) as running:
        binding = running.io_binding()
        binding.bind_cpu_input("x0", x)
        binding.bind_cpu_input("x1", y)
        binding.bind_output("y", "cuda", provider.device.id)
        running.run_with_iobinding(binding)
        value = binding.get_outputs()[0]
        assert value.__dlpack_device__() == provider.device.dlpack_device
        taken = provider.import_dlpack(value)
        assert taken.data_ptr() == value.data_ptr()
        assert np.array_equal(download(provider, taken), x + y)
        provider.allocator.release(taken)
