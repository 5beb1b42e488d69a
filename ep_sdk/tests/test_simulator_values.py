"""Values on simulated devices: there and back, updates, memory that comes back."""

from __future__ import annotations

import gc

import numpy as np
import onnx
import pytest
from bound_devices import (
    X,
    empty_on,
    on,
)

from ep_core import OrtValue
from ep_core.errors import (
    AllocationError,
    DeviceLostError,
    FeedError,
    NotSupportedError,
    OptionError,
)


@pytest.mark.parametrize("device", [0, "0", 1, "1"])
def test_a_value_goes_to_a_device_and_back(device):
    value = on(device)
    assert (value.device_name(), value.shape(), value.data_type()) == (
        "simulator",
        [4],
        "tensor(float)",
    )
    assert str(value.memory) == f"simulator:{device}/device"
    assert repr(value) == f"<OrtValue tensor(float) [4] in simulator:{device}/device>"
    assert value.tensor_size_in_bytes() == 16
    np.testing.assert_array_equal(value.numpy(), X)
    np.testing.assert_array_equal(np.asarray(value), X)


def test_a_value_on_a_device_is_a_copy():
    array = X.copy()
    value = on(0, array)
    array[:] = 0
    value.numpy()[:] = 0
    np.testing.assert_array_equal(value.numpy(), X)


@pytest.mark.parametrize("array", [np.array(5.0), np.zeros((0, 3)), np.eye(3).T[::2]])
def test_any_shape_and_layout(array):
    np.testing.assert_array_equal(on(1, array).numpy(), array)


@pytest.mark.parametrize("source", ["host", 0, 1])
def test_update_inplace_from_anywhere(source):
    value = on(0, np.zeros(4, np.float32))
    value.update_inplace(X if source == "host" else on(source))
    np.testing.assert_array_equal(value.numpy(), X)


def test_update_inplace_of_a_host_value_from_a_device():
    array = np.zeros(4, np.float32)
    OrtValue.ortvalue_from_numpy(array).update_inplace(on(0))
    np.testing.assert_array_equal(array, X)


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.zeros(4), np.zeros((4, 1), "f4")])
def test_update_inplace_with_something_else(wrong):
    for data in (wrong, on(1, wrong), OrtValue.ortvalue_from_numpy(wrong)):
        with pytest.raises(FeedError, match=r"expected tensor\(float\) of shape \[4\]"):
            on(0).update_inplace(data)


def test_what_a_device_can_t_hold():
    with pytest.raises(NotSupportedError, match="holds no string"):
        on(0, np.array(["a"]))
    with pytest.raises(NotSupportedError, match="holds no int4"):
        empty_on(0, 3, dtype=onnx.TensorProto.INT4)
    with pytest.raises(AllocationError, match="no room"):
        empty_on(0, 2**40)


def test_there_are_two_devices_and_no_third():
    with pytest.raises(OptionError, match="expected one of '0', '1'; got '2'"):
        on(2)


def test_memory_comes_back_when_values_go():
    value = on(0)
    provider = value._content.provider
    before = provider.allocator.stats().in_use_bytes
    second = on(0)
    assert provider.allocator.stats().in_use_bytes == before + 16
    del second
    assert provider.allocator.stats().in_use_bytes == before


def test_values_in_cycles_go_at_the_next_safe_moment():
    """The collector may run inside the allocator; there it must not release."""
    value = on(0)
    provider = value._content.provider
    before = provider.allocator.stats().in_use_bytes
    gc.disable()
    try:
        for _ in range(5):
            cycle = [on(0)]
            cycle.append(cycle)
        del cycle
        with provider.allocator._arena._lock:
            gc.collect()
    finally:
        gc.enable()
    value = None  # the last reference goes here, which is a safe moment
    assert provider.allocator.stats().in_use_bytes == before - 16


def test_a_lost_device_is_opened_anew(monkeypatch):
    value = on(0)
    lost = value._content.provider
    monkeypatch.setattr(lost.simulated, "_lost", True)
    with pytest.raises(DeviceLostError):
        on(0)
    with pytest.raises(DeviceLostError):
        value.numpy()
    again = on(0)
    assert again._content.provider is not lost
    np.testing.assert_array_equal(again.numpy(), X)
    assert not lost.closed
    del value
    assert lost.closed
