"""Tensors of other libraries on simulated devices: DLPack in and out, and raw addresses."""

from __future__ import annotations

import contextlib
import gc
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from foreign_tensors import READ_ONLY, Consumer, Foreign, Old

from ep_core import InferenceSession, OrtValue, SessionOptions
from ep_core.errors import EpError, FeedError, NotSupportedError, OptionError, RunError
from ep_core.types import DataType
from ep_core.values.dlpack import DLPackError
from ep_sdk.dlpack import lend, take
from ep_sdk.simulator.provider import SimulatorProvider

CHAIN = (
    '<ir_version: 8, opset_import: ["" : 17]> '
    "g (float[4] x) => (float[4] y, float[4] z) { a = Exp(x) y = Neg(a) z = Add(y, x) }"
)
X = np.float32([1, 2, 3, 4])
Y = -np.exp(X)


@pytest.fixture
def session():
    settings = SessionOptions()
    settings.disable_cpu_fallback = True
    model = onnx.parser.parse_model(CHAIN).SerializeToString()
    with InferenceSession(model, settings, ["simulator"]) as one:
        yield one


@pytest.fixture
def device(simulator):
    return simulator()


def on(number, array=X):
    return OrtValue.ortvalue_from_numpy(array, "simulator", number)


def in_use(value):
    return value._content.provider.allocator.stats().in_use_bytes


# ---------------------------------------------------------------- in


@pytest.mark.parametrize("make", [Foreign, Old])
@pytest.mark.parametrize(
    "array",
    [X, np.arange(6).reshape(2, 3), np.array([True, False]), np.float16(3), np.zeros((0, 2), "u1")],
)
def test_a_tensor_of_another_library(make, array):
    foreign = make(np.array(array))
    kept = on(0)
    before = in_use(kept)
    value = OrtValue.from_dlpack(foreign)
    assert str(value.memory) == "simulator:0/device"
    assert (value.shape(), value.element_type()) == (
        list(foreign.array.shape),
        DataType.from_numpy(foreign.array.dtype),
    )
    np.testing.assert_array_equal(value.numpy(), foreign.array)
    if foreign.array.size:
        assert value.data_ptr() == foreign.array.ctypes.data, "not a copy"
        foreign.array[...] = 1 - foreign.array
        np.testing.assert_array_equal(value.numpy(), foreign.array)
    assert in_use(value) == before, "it isn't the allocator's"
    assert foreign.deleted == 0
    del value
    assert foreign.deleted == 1


def test_types_that_numpy_hasn_t():
    codes = {ml_dtypes.bfloat16: (4, 16, 1), ml_dtypes.float8_e5m2: (12, 8, 1)}
    for dtype, kind in codes.items():
        foreign = Foreign(np.array([1, 2, 4], dtype), kind=kind)
        value = OrtValue.from_dlpack(foreign)
        assert value.numpy().dtype == dtype
        np.testing.assert_array_equal(value.numpy().astype(float), [1, 2, 4])
        back = Consumer(on(0, foreign.array))
        assert (back.tensor.dtype.code, back.tensor.dtype.bits, back.tensor.dtype.lanes) == kind
        back.done()


def test_a_run_reads_and_writes_it_without_a_copy(session):
    source, target = Foreign(X.copy()), Foreign(np.zeros(4, np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", OrtValue.from_dlpack(source))
    binding.bind_ortvalue_output("y", OrtValue.from_dlpack(target))
    assert binding.get_copies() == ()
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(target.array, Y, rtol=1e-6)
    source.array[:] = 0
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.array, [-1, -1, -1, -1])
    assert (source.deleted, target.deleted) == (0, 0)
    del binding
    gc.collect()
    assert (source.deleted, target.deleted) == (1, 1)


def test_memory_that_is_read_only_is_never_written(session):
    foreign = Foreign(X.copy(), flags=READ_ONLY)
    value = OrtValue.from_dlpack(foreign)
    with pytest.raises(FeedError, match="read-only"):
        value.update_inplace(X)
    with pytest.raises(FeedError, match="read-only"):
        session.io_binding().bind_ortvalue_output("y", value)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.get_outputs()[0].numpy(), Y, rtol=1e-6)


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        (Foreign(X, 7), r"no provider here takes tensors on DLPack device \(12, 7\)"),
        (Foreign(X, device=2), r"no provider here takes tensors on DLPack device \(2, 0\)"),
        (Foreign(X, 1, told=(12, 0)), r"it lies on \(12, 1\), not on \(12, 0\)"),
        (Foreign(np.zeros((2, 3), np.float32).T), "isn't C-contiguous"),
        (Foreign(X, kind=(2, 32, 4)), "can't be taken"),
        (Foreign(X, kind=(17, 4, 1)), "can't be taken"),
        (Foreign(X, kind=(3, 64, 1)), "can't be taken"),
    ],
)
def test_what_a_device_can_t_take(foreign, message):
    with pytest.raises(DLPackError, match=message):
        OrtValue.from_dlpack(foreign)


class Spoiled(Foreign):
    """A tensor whose capsule somebody got wrong."""

    def __init__(self, spoil, **settings):
        super().__init__(X.reshape(2, 2).copy(), **settings)
        self.spoil = spoil

    def __dlpack__(self, **arguments):
        capsule = super().__dlpack__(**arguments)
        self.spoil(self._kept[-1])
        return capsule


def no_data(managed):
    managed.dl_tensor.data = None


def no_shape(managed):
    managed.dl_tensor.shape = None


def one_byte_on(managed):
    managed.dl_tensor.byte_offset += 1


def with_rank(rank):
    return lambda managed: setattr(managed.dl_tensor, "ndim", rank)


def of_the_future(managed):
    managed.version.major = 99


@pytest.mark.parametrize("device", [1, 12])
@pytest.mark.parametrize("maker", [Spoiled, type("OldSpoiled", (Spoiled, Old), {})])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_data, "it has elements, and no address"),
        (no_shape, "it has no shape"),
        (one_byte_on, "isn't aligned for its elements; expected .* a multiple of 4"),
        (with_rank(-1), "it has -1 dimensions"),
        (with_rank(65), "it has 65 dimensions"),
        (of_the_future, "of DLPack 99, which is unknown"),
    ],
)
def test_capsules_that_make_no_sense(spoil, message, maker, device):
    if spoil is of_the_future and maker is not Spoiled:
        return  # only the new form has a version
    foreign = maker(spoil, device=device)
    with pytest.raises(DLPackError, match=message):
        OrtValue.from_dlpack(foreign)


def test_a_library_that_refuses_is_quoted(monkeypatch):
    def refuse(**arguments):
        raise BufferError("it is being written")

    foreign = Foreign(X)
    monkeypatch.setattr(foreign, "__dlpack__", refuse, raising=False)
    monkeypatch.setattr(Foreign, "__dlpack__", lambda self, **arguments: refuse())
    with pytest.raises(DLPackError, match="it is being written"):
        OrtValue.from_dlpack(foreign)


def test_a_provider_that_fails_raises_errors_of_the_project(monkeypatch):
    def fail(self, tensor):
        raise ValueError("no luck")

    monkeypatch.setattr(SimulatorProvider, "import_dlpack", fail)
    with pytest.raises(RunError, match="into simulator:0/device failed: ValueError: no luck"):
        OrtValue.from_dlpack(Foreign(X))


def test_the_stream_of_the_taker_is_handed_on():
    foreign = Foreign(X)
    assert take(foreign, (12, 0), stream=-1).shape == (4,)
    assert foreign.asked[-1]["stream"] == -1


# ---------------------------------------------------------------- out


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1)])
def test_another_library_takes_a_value(version):
    value = on(1)
    arguments = {} if version is None else {"max_version": version, "stream": None, "copy": False}
    consumer = Consumer(value, **arguments)
    assert consumer.is_new == (version is not None)
    assert consumer.device == value.__dlpack_device__() == (12, 1)
    assert consumer.address == value.data_ptr()
    np.testing.assert_array_equal(consumer.array(np.float32), X)
    provider = value._content.provider
    before = in_use(value)
    del value
    gc.collect()
    assert provider.allocator.stats().in_use_bytes == before, "it is still lent"
    others = [on(1, np.zeros(4, np.float32)) for _ in range(3)]
    np.testing.assert_array_equal(consumer.array(np.float32), X)
    del others
    consumer.done()
    assert provider.allocator.stats().in_use_bytes == before - 16


def test_a_value_comes_back_as_the_same_memory():
    value = on(0)
    again = OrtValue.from_dlpack(value)
    assert again.data_ptr() == value.data_ptr()
    del value
    gc.collect()
    np.testing.assert_array_equal(again.numpy(), X)


def test_a_copy_on_the_host_is_made_for_who_asks_for_one():
    value = on(0)
    array = np.from_dlpack(value, device="cpu")
    np.testing.assert_array_equal(array, X)
    with pytest.raises(BufferError, match=r"can't go to \(1, 0\)"):
        np.from_dlpack(value, device="cpu", copy=False)
    with pytest.raises(BufferError, match=r"can't go to \(12, 0\) as a copy"):
        value.__dlpack__(copy=True)
    with pytest.raises(BufferError, match=r"can't go to \(2, 0\)"):
        value.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="can't go to 1"):
        value.__dlpack__(dl_device=1)


def test_capsules_that_nobody_uses_give_the_memory_back():
    value = on(0)
    provider = value._content.provider
    before = in_use(value)
    for version in (None, (1, 0)):
        capsule = value.__dlpack__(max_version=version)
        del capsule
    value = None
    assert provider.allocator.stats().in_use_bytes == before - 16


def test_memory_is_lent_twice_and_given_back_in_any_order(device):
    buffer = device.allocator.allocate((4,), DataType.FLOAT)
    stream = device.create_stream()
    first, second = Consumer(buffer), Consumer(buffer, max_version=(1, 0))
    first.done()
    device.allocator.release(buffer, stream)
    assert device.allocator.stats().in_use_bytes == 16
    second.done()
    assert device.allocator.stats().in_use_bytes == 0
    with pytest.raises(EpError, match="after it was released"):
        buffer.__dlpack__()
    with pytest.raises(EpError, match="after it was released"):
        buffer.data_ptr()
    stream.close()


def test_given_back_inside_the_allocator_of_all_places(device):
    """A capsule may be freed by the garbage collector, which runs wherever memory is asked for."""
    buffer = device.allocator.allocate((4,), DataType.FLOAT)
    consumer = Consumer(buffer)
    device.allocator.release(buffer)
    with device.allocator._arena._lock, device.allocator.lending._lock:
        consumer.done()
    assert device.allocator.stats().in_use_bytes == 0


def test_threads_lend_and_give_back(device):
    failures = []

    def work():
        with contextlib.ExitStack() as ends:
            ends.callback(gc.collect)
            try:
                for number in range(60):
                    buffer = device.allocator.allocate((number,), DataType.INT64)
                    consumer = Consumer(buffer, max_version=(1, 0))
                    device.allocator.release(buffer)
                    consumer.array(np.int64)[:] = number
                    assert (consumer.array(np.int64) == number).all()
                    consumer.done()
            except Exception as error:  # noqa: BLE001 - shown below
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    stats = device.allocator.stats()
    assert (stats.in_use_bytes, stats.allocations) == (0, stats.releases)


def test_imported_memory_is_given_back_in_the_order_of_a_stream(device):
    foreign = Foreign(X.copy())
    gate = threading.Event()
    stream = device.create_stream()
    buffer = device.import_dlpack(foreign)
    host = np.zeros(4, np.float32)
    stream.submit(gate.wait)
    device.data_transfer.copy(buffer, host, stream)
    device.allocator.release(buffer, stream)
    assert foreign.deleted == 0
    with pytest.raises(EpError, match="released"):
        device.allocator.release(buffer)
    gate.set()
    stream.synchronize()
    stream.close()
    np.testing.assert_array_equal(host, X)
    assert foreign.deleted == 1


def test_what_a_vendor_lends():
    """`ep_sdk.dlpack` by itself: an empty tensor, and one that DLPack has no type for."""
    told = []
    memory = np.zeros(4, np.int4 if hasattr(np, "int4") else ml_dtypes.int4)
    with pytest.raises(BufferError, match="can't be exported"):
        lend(memory.ctypes.data, (4,), DataType.INT4, (12, 0), lambda: told.append(1))
    assert told == [1]
    capsule = lend(X.ctypes.data, (0, 3), DataType.FLOAT, (12, 0), lambda: told.append(2), (1, 0))
    assert told == [1]
    del capsule
    assert told == [1, 2]


# ---------------------------------------------------------------- addresses


def test_addresses_as_a_script_for_onnx_runtime_binds_them(session):
    x, y = on(0), on(0, np.zeros(4, np.float32))
    binding = session.io_binding()
    binding.bind_input("x", "simulator", 0, np.float32, [4], x.data_ptr())
    binding.bind_output("y", "simulator", 0, np.float32, [4], y.data_ptr())
    assert binding.get_copies() == ()
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(y.numpy(), Y, rtol=1e-6)
    x.update_inplace(np.zeros(4, np.float32))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y.numpy(), [-1, -1, -1, -1])
    assert binding.get_outputs()[0].data_ptr() == y.data_ptr()


def test_addresses_on_a_device_that_isn_t_the_session_s(session):
    x, y = on(1), on(1, np.zeros(4, np.float32))
    binding = session.io_binding()
    binding.bind_input("x", "simulator", 1, np.float32, [4], x.data_ptr())
    binding.bind_output("y", "simulator", 1, np.float32, [4], y.data_ptr())
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(y.numpy(), Y, rtol=1e-6)


@pytest.mark.parametrize("shift", [0, 4, -4])
def test_addresses_that_overlap(session, shift):
    memory = on(0, np.zeros(16, np.float32))
    middle = memory.data_ptr() + 16
    binding = session.io_binding()
    binding.bind_input("x", "simulator", 0, np.float32, [4], middle)
    binding.bind_output("y", "simulator", 0, np.float32, [4], middle + shift)
    with pytest.raises(FeedError, match="overlaps that of input 'x'"):
        session.run_with_iobinding(binding)
    binding.bind_output("y", "simulator", 0, np.float32, [4], middle + 16)
    session.run_with_iobinding(binding)


def test_addresses_that_can_t_be(session):
    binding = session.io_binding()
    with pytest.raises(OptionError, match="buffer_ptr of 'x'"):
        binding.bind_input("x", "simulator", 0, np.float32, [4], 0)
    with pytest.raises(OptionError, match="a multiple of 4"):
        binding.bind_input("x", "simulator", 0, np.float32, [4], 4098)
    with pytest.raises(FeedError, match="expected 4 in shape"):
        binding.bind_input("x", "simulator", 0, np.float32, [5], 4096)
    with pytest.raises(OptionError, match="needs element_type and shape"):
        binding.bind_output("y", "simulator", 0, buffer_ptr=4096)


def test_addresses_where_the_provider_takes_none(session, monkeypatch):
    features = replace(SimulatorProvider.features, imports_dlpack=False)
    monkeypatch.setattr(SimulatorProvider, "features", features)
    binding = session.io_binding()
    with pytest.raises(NotSupportedError, match=r"simulator:0/device can't be bound"):
        binding.bind_input("x", "simulator", 0, np.float32, [4], 4096)
    with pytest.raises(NotSupportedError, match="Bind an OrtValue"):
        binding.bind_output("y", "simulator", 1, np.float32, [4], 4096)
    with pytest.raises(DLPackError, match="no provider here takes"):
        OrtValue.from_dlpack(Foreign(X))
