"""Page-locked host memory of the simulator: arrays, counts, lifetimes, values in it, copies."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from ep_core import OrtValue
from ep_core.errors import AllocationError, ContractError, NotSupportedError, ProviderError
from ep_core.memory import pinned_array
from ep_core.types import HOST_MEMORY, DataType
from ep_sdk.simulator.pinned import is_pinned
from ep_sdk.simulator.provider import SimulatorProvider

FLOAT = DataType.FLOAT
X = np.float32([1, 2, 3, 4])


def held(device) -> int:
    return device.allocator.stats().pinned_bytes


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1, 0, 4)])
@pytest.mark.parametrize("dtype", [FLOAT, DataType.INT64, DataType.BFLOAT16, DataType.INT4])
def test_arrays_are_like_any_other(simulator, shape, dtype):
    array = simulator().allocate_pinned(shape, dtype)
    assert type(array) is np.ndarray
    assert (array.shape, array.dtype) == (shape, dtype.numpy)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.ctypes.data % 4096 == 0 or not array.nbytes
    array[...] = 1
    np.testing.assert_array_equal(array, np.ones(shape, dtype.numpy))


def test_it_is_known_again_in_views_and_not_in_copies(simulator):
    array = simulator().allocate_pinned((4, 4), FLOAT)
    assert all(map(is_pinned, (array, array.T, array[1:, ::2], array.view(np.int32))))
    assert not any(map(is_pinned, (array.copy(), X, np.asarray([1]))))


def test_it_counts_until_the_last_view_is_gone(simulator):
    device = simulator()
    array = device.allocate_pinned((100,), FLOAT)
    other = device.allocate_pinned((5,), DataType.INT8)
    assert held(device) == 405
    view = array[3:7].reshape(2, 2)
    del array
    assert held(device) == 405
    del view
    assert held(device) == 5
    del other
    assert held(device) == 0


def test_it_outlives_its_provider(simulator):
    device = simulator()
    array = device.allocate_pinned((4,), FLOAT)
    array[...] = X
    device.close()
    np.testing.assert_array_equal(array, X)
    assert held(device) == 16
    del array
    assert held(device) == 0
    with pytest.raises(ProviderError, match="is closed"):
        device.allocate_pinned((4,), FLOAT)


def test_there_is_so_much_and_no_more(simulator):
    device = simulator(pinned_capacity=100)
    array = device.allocate_pinned((20,), FLOAT)
    with pytest.raises(AllocationError, match=r"for float\[6\]; expected at most 20 bytes; got 24"):
        device.allocate_pinned((6,), FLOAT)
    del array
    device.allocate_pinned((25,), FLOAT)
    with pytest.raises(NotSupportedError, match="no strings"):
        device.allocate_pinned((1,), DataType.STRING)


def test_the_collector_may_free_it_inside_its_own_lock(simulator):
    device = simulator()
    cycle = [device.allocate_pinned((4,), FLOAT)]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        with device.simulated.pinned._lock:
            gc.collect()
    finally:
        gc.enable()
    assert held(device) == 0


def test_many_threads(simulator):
    device = simulator()

    def work(seed):
        for number in range(200):
            array = device.allocate_pinned((number,), FLOAT)
            array[...] = seed
            assert (array == seed).all()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held(device) == 0


def test_the_host_waits_for_copies_of_other_memory_alone(simulator, monkeypatch):
    device = simulator()
    waits = []
    monkeypatch.setattr(device.simulated, "staging", lambda: waits.append(1))
    stream = device.create_stream()
    buffer = device.allocator.allocate((4,), FLOAT, stream)
    pinned = device.allocate_pinned((4,), FLOAT)
    pinned[...] = X
    back = np.zeros(4, np.float32)
    device.data_transfer.copy(pinned, buffer, stream)
    device.data_transfer.copy(buffer, pinned, stream)
    assert waits == []
    device.data_transfer.copy(buffer, back, stream)
    assert len(waits) == 1
    stream.synchronize()
    np.testing.assert_array_equal(back, X)
    device.data_transfer.copy(X, buffer, None)
    assert len(waits) == 1
    device.allocator.release(buffer, stream)


# ---------------------------------------------------------------- values


def test_values_in_pinned_memory_lie_on_the_host():
    value = OrtValue.ortvalue_from_numpy(X, "simulator", 0, pinned=True)
    assert value.memory == HOST_MEMORY
    assert value.device_name() == "cpu"
    assert is_pinned(value.numpy())
    assert not np.shares_memory(value.numpy(), X)
    np.testing.assert_array_equal(value.numpy(), X)
    assert value.data_ptr() == value.numpy().ctypes.data
    value.update_inplace(X * 2)
    np.testing.assert_array_equal(value.numpy(), X * 2)
    np.testing.assert_array_equal(np.from_dlpack(value), X * 2)


def test_an_empty_one_by_shape_and_type():
    for name in ("simulator", "SimulatorExecutionProvider"):
        value = OrtValue.ortvalue_from_shape_and_type([2, 3], np.float16, name, "1", pinned=True)
        assert value.data_type() == "tensor(float16)"
        assert value.shape() == [2, 3]
        assert is_pinned(value.numpy())


def test_what_can_t_be_pinned():
    with pytest.raises(NotSupportedError, match="no pinned host memory for cpu/host"):
        OrtValue.ortvalue_from_numpy(X, pinned=True)
    with pytest.raises(NotSupportedError, match="strings are objects"):
        OrtValue.ortvalue_from_numpy(np.array(["a"]), "simulator", pinned=True)
    with pytest.raises(AllocationError, match=r"no pinned memory of simulator:0"):
        OrtValue.ortvalue_from_shape_and_type([1 << 40], np.float32, "simulator", pinned=True)


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (lambda self, shape, dtype: None, "NoneType"),
        (lambda self, shape, dtype: np.zeros(shape, np.int8), "int8"),
        (lambda self, shape, dtype: np.zeros((*shape, 1), dtype.numpy), "float32"),
        (lambda self, shape, dtype: np.zeros((*shape, 2), dtype.numpy)[..., 0], "float32"),
    ],
)
def test_a_provider_that_gives_something_else(simulator, monkeypatch, wrong, got):
    monkeypatch.setattr(SimulatorProvider, "allocate_pinned", wrong)
    with pytest.raises(ContractError, match=rf"expected a writeable C-contiguous .* got .*{got}"):
        pinned_array(simulator(), (4,), FLOAT)
