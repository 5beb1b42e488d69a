"""Memory that device and host share: addresses, DLPack both ways, lifetimes."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from opencl_harness import chosen, floats, needs_device, one_node, open_provider, session

from ep_core import OrtValue
from ep_core.errors import ContractError
from ep_core.types import DataType
from ep_core.values.dlpack import HOST_DEVICE
from ep_opencl.device import open_device

pytestmark = needs_device


@pytest.fixture
def shares():
    """Skip on devices with memory of their own."""
    if not open_device(chosen().id).sharing.gives_addresses:
        pytest.skip("the device's memory has no addresses")


@pytest.fixture
def takes():
    """Skip on devices that can't work in the host's memory."""
    if not open_device(chosen().id).sharing.takes_host_memory:
        pytest.skip("the device doesn't take memory of the host")


def fill(provider, array):
    buffer = provider.allocator.allocate(array.shape, DataType.from_numpy(array.dtype))
    provider.data_transfer.copy(array, buffer, None)
    return buffer


def read(provider, buffer):
    array = np.empty(buffer.shape, buffer.dtype.numpy)
    provider.data_transfer.copy(buffer, array, None)
    return array


def on_device(array):
    return OrtValue.ortvalue_from_numpy(array, "opencl", chosen().id)


class Newer:
    """A buffer as numpy asks for it in the newer form, which isn't read-only."""

    def __init__(self, buffer):
        self._buffer = buffer

    def __dlpack__(self, *, max_version, **others):
        return self._buffer.__dlpack__(max_version=max_version)

    def __dlpack_device__(self):
        return self._buffer.__dlpack_device__()


def misaligned(shape):
    """Floats that begin in the middle of a cache line."""
    count = int(np.prod(shape))
    raw = np.zeros(count + 17, np.float32)
    return raw[1 : count + 1].reshape(shape)


# ------------------------------------------------------------ out


@pytest.mark.usefixtures("shares")
def test_an_exported_buffer_is_the_memory_itself(provider):
    buffer = fill(provider, floats(3, 5))
    view = np.from_dlpack(Newer(buffer))
    assert view.ctypes.data == buffer.data_ptr()
    np.testing.assert_array_equal(view, floats(3, 5))
    view[1] = 7
    np.testing.assert_array_equal(read(provider, buffer)[1], np.full(5, 7, np.float32))
    provider.data_transfer.copy(floats(3, 5, seed=1), buffer, None)
    np.testing.assert_array_equal(view, floats(3, 5, seed=1))
    provider.allocator.release(buffer)


@pytest.mark.usefixtures("shares")
def test_exported_memory_is_not_used_again_before_the_last_view_goes(provider):
    stream = provider.create_stream()
    for given_on in (None, stream):
        buffer = fill(provider, np.full(5000, 3, np.float32))
        view = np.from_dlpack(buffer)
        provider.allocator.release(buffer, given_on)
        others = [fill(provider, np.full(5000, 9, np.float32)) for _ in range(3)]
        np.testing.assert_array_equal(view, np.full(5000, 3, np.float32))
        address = view.ctypes.data
        del view
        gc.collect()
        assert provider.allocator.stats().in_use_bytes == 3 * 20000
        stream.synchronize()
        again = provider.allocator.allocate((5000,), DataType.FLOAT)
        assert again.data_ptr() == address
        for item in (again, *others):
            provider.allocator.release(item)
    assert provider.allocator.stats().in_use_bytes == 0


@pytest.mark.usefixtures("shares")
def test_a_view_outlives_the_provider():
    provider = open_provider()
    buffer = fill(provider, floats(1000))
    view = np.from_dlpack(buffer)
    provider.allocator.release(buffer)
    provider.close()
    del buffer, provider
    gc.collect()
    np.testing.assert_array_equal(view, floats(1000))


@pytest.mark.usefixtures("shares")
def test_results_on_the_device_are_arrays_without_a_copy():
    a, b = floats(40, 30), floats(30, 20, seed=1)
    model, _ = one_node("MatMul", [a, b])
    with session(model) as running:
        binding = running.io_binding()
        binding.bind_cpu_input("x0", a)
        binding.bind_cpu_input("x1", b)
        binding.bind_output("y0", "opencl", chosen().id)
        running.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
    view = np.from_dlpack(value)
    assert view.ctypes.data == value.data_ptr()
    np.testing.assert_allclose(view, a @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("shares")
def test_a_copy_that_is_asked_for_is_one():
    value = on_device(floats(6))
    copy = np.from_dlpack(value, copy=True)
    copy[:] = 0
    np.testing.assert_array_equal(value.numpy(), floats(6))


@pytest.mark.usefixtures("shares")
def test_a_shape_that_is_changed_through_a_view_is_seen():
    data = floats(2, 6)
    model, _ = one_node("Reshape", [data, np.array([3, 4])])
    shape = on_device(np.array([3, 4]))
    view = np.from_dlpack(shape)
    with session(model) as running:
        for wanted in ([3, 4], [4, 3], [12, 1]):
            view[:] = wanted
            feeds = {"x0": OrtValue.ortvalue_from_numpy(data), "x1": shape}
            (found,) = running.run_with_ort_values(None, feeds)
            assert found.numpy().shape == tuple(wanted)


def test_a_released_buffer_is_not_shared(provider):
    buffer = fill(provider, floats(3))
    provider.allocator.release(buffer)
    with pytest.raises(ContractError, match="released"):
        buffer.data_ptr()
    with pytest.raises(ContractError, match="released"):
        buffer.__dlpack__()


def test_memory_that_only_the_device_sees_says_so(provider, monkeypatch):
    monkeypatch.setattr(provider.opened.sharing, "_flags", 0)
    buffer = fill(provider, floats(3000))
    assert buffer.__dlpack_device__() != HOST_DEVICE
    with pytest.raises(BufferError, match="no addresses"):
        buffer.data_ptr()
    with pytest.raises(BufferError, match="no addresses"):
        buffer.__dlpack__()
    np.testing.assert_array_equal(read(provider, buffer), floats(3000))
    provider.allocator.release(buffer)


# ------------------------------------------------------------ in


@pytest.mark.usefixtures("takes")
@pytest.mark.parametrize("make", [np.zeros, misaligned], ids=["aligned", "misaligned"])
def test_a_tensor_of_the_host_is_taken_where_it_lies(provider, make):
    array = make((7, 11))
    array = array.astype(np.float32, copy=False)
    buffer = provider.import_dlpack(array)
    array[...] = floats(7, 11)
    np.testing.assert_array_equal(read(provider, buffer), array)
    provider.data_transfer.copy(floats(7, 11, seed=1), buffer, None)
    np.testing.assert_array_equal(array, floats(7, 11, seed=1))
    assert buffer.data_ptr() == array.ctypes.data
    provider.allocator.release(buffer)


@pytest.mark.usefixtures("takes")
def test_a_taken_tensor_is_kept_until_the_stream_got_to_its_release(provider):
    stream = provider.create_stream()
    array = floats(1 << 18)
    buffer = provider.import_dlpack(array)
    back = np.empty_like(array)
    provider.data_transfer.copy(buffer, back, stream)
    provider.allocator.release(buffer, stream)
    del array, buffer
    gc.collect()
    stream.synchronize()
    np.testing.assert_array_equal(back, floats(1 << 18))
    assert provider.allocator.stats().in_use_bytes == 0


@pytest.mark.usefixtures("takes")
@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (np.zeros((4, 6), np.float32)[:, ::2], "contiguous"),
        (np.zeros(3, np.complex64), "complex64"),
    ],
)
def test_what_does_not_fit_is_refused(provider, tensor, why):
    with pytest.raises(BufferError, match=why):
        provider.import_dlpack(tensor)


@pytest.mark.usefixtures("takes")
def test_a_tensor_without_elements_is_taken(provider):
    buffer = provider.import_dlpack(np.zeros((0, 3), np.float32))
    assert buffer.shape == (0, 3)
    provider.allocator.release(buffer)


@pytest.mark.usefixtures("takes")
def test_what_is_taken_is_not_lent_again(provider):
    buffer = provider.import_dlpack(floats(3))
    with pytest.raises(BufferError, match="another library"):
        buffer.__dlpack__()
    provider.allocator.release(buffer)


@pytest.mark.usefixtures("takes")
@pytest.mark.parametrize("make", [np.zeros, misaligned], ids=["aligned", "misaligned"])
def test_arrays_bound_by_address_are_read_and_written_without_copies(make):
    model, _ = one_node("MatMul", [floats(40, 30), floats(30, 20)])
    a = make((40, 30)).astype(np.float32, copy=False)
    b = make((30, 20)).astype(np.float32, copy=False)
    y = make((40, 20)).astype(np.float32, copy=False)
    device = ("opencl", chosen().id, np.float32)
    with session(model) as running:
        binding = running.io_binding()
        binding.bind_input("x0", *device, a.shape, a.ctypes.data)
        binding.bind_input("x1", *device, b.shape, b.ctypes.data)
        binding.bind_output("y0", *device, y.shape, y.ctypes.data)
        assert binding.get_copies() == ()
        for seed in range(3):
            a[...] = floats(40, 30, seed=seed)
            b[...] = floats(30, 20, seed=seed + 9)
            running.run_with_iobinding(binding)
            np.testing.assert_allclose(y, a @ b, rtol=1e-4, atol=1e-5)
        # When a run is over, nothing reads or writes the arrays.
        before = y.copy()
        a[...] = np.nan
        np.testing.assert_array_equal(y, before)


@pytest.mark.usefixtures("takes")
def test_a_shape_bound_by_address_is_read_in_each_run():
    data = floats(2, 6)
    model, _ = one_node("Reshape", [data, np.array([3, 4])])
    shape = np.array([3, 4])
    with session(model) as running:
        binding = running.io_binding()
        binding.bind_cpu_input("x0", data)
        binding.bind_input("x1", "opencl", chosen().id, np.int64, (2,), shape.ctypes.data)
        binding.bind_output("y0")
        for wanted in ([3, 4], [4, 3], [1, 12]):
            shape[:] = wanted
            running.run_with_iobinding(binding)
            assert binding.copy_outputs_to_cpu()[0].shape == tuple(wanted)


@pytest.mark.usefixtures("takes")
def test_a_read_only_array_is_an_input():
    frozen = floats(8, 8)
    frozen.flags.writeable = False
    model, _ = one_node("Relu", [frozen])
    with session(model) as running:
        binding = running.io_binding()
        binding.bind_input(
            "x0", "opencl", chosen().id, np.float32, frozen.shape, frozen.ctypes.data
        )
        binding.bind_output("y0")
        running.run_with_iobinding(binding)
        (found,) = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(found, np.maximum(frozen, 0))


def test_a_driver_that_works_in_a_copy_takes_nothing(provider, monkeypatch):
    sharing = provider.opened.sharing
    monkeypatch.setattr(sharing, "_over", lambda address, nbytes: fill_only(sharing, nbytes))
    sharing.__dict__.pop("takes_host_memory", None)
    try:
        assert not sharing.takes_host_memory
    finally:
        del sharing.__dict__["takes_host_memory"]


def fill_only(sharing, nbytes):
    """A memory object that lies elsewhere."""
    import pyopencl as cl

    return cl.Buffer(sharing._context, cl.mem_flags.READ_WRITE, nbytes)
