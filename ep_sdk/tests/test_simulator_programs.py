"""Partitions on the simulator: who owns which buffer, faults, threads, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import threading

import numpy as np
import onnx
import pytest

from ep_core import InferenceSession
from ep_core.errors import (
    AllocationError,
    CompileError,
    ContractError,
    DeviceLostError,
    EpError,
    RunError,
)
from ep_core.types import DataType
from ep_sdk import KernelTable
from ep_sdk.simulator.memory import MemoryPool
from ep_sdk.simulator.provider import SimulatorProvider
from ep_sdk.simulator.stream import SimulatorEvent, SimulatorStream
from ep_sdk.simulator.transfer import SimulatorTransfer

ONES = np.ones(4, np.float32)
CHAIN = (
    "(float[4] x) => (float[4] d) { a = Add(x, c) b = Mul(a, a) v = Identity(b)"
    " r = Reshape(v, shape) s = Reshape(r, back) d = Add(s, x) }"
)
NEG = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Neg(x) }'
CONSTANTS = {"c": ONES, "shape": np.array([2, 2]), "back": np.array([4])}


class Bench:
    """A compiled partition with a stream, and helpers to run it from host arrays."""

    def __init__(self, device, part, to_device, to_host):
        self.device = device
        self.part = part
        self.stream = device.create_stream()
        self._to_device = to_device
        self._to_host = to_host

    def up(self, array):
        return self._to_device(self.device, self.stream, array)

    def down(self, buffer):
        return self._to_host(self.device, self.stream, buffer)

    def free(self, *buffers):
        for buffer in buffers:
            self.device.allocator.release(buffer, self.stream)

    def run(self, *arrays, outputs=1):
        inputs = [self.up(array) for array in arrays]
        found = [None] * outputs
        try:
            self.part.run(inputs, found, self.stream)
            results = [self.down(buffer) for buffer in found]
        finally:
            self.free(*inputs, *(buffer for buffer in found if buffer is not None))
        return results

    @property
    def in_use(self):
        return self.device.allocator.stats().in_use_bytes


@pytest.fixture
def bench(simulator, graph_of, whole, to_device, to_host):
    def make(text=CHAIN, constants=CONSTANTS, **options):
        device = simulator(**options)
        part = device.compile(whole(graph_of(text, **constants)))
        return Bench(device, part, to_device, to_host)

    return make


def test_right_values_and_intermediates_are_released(bench):
    bench = bench()
    constants = bench.in_use
    assert constants == 16 + 2 * 8 + 8
    for _ in range(3):
        np.testing.assert_array_equal(bench.run(ONES * 2)[0], [11] * 4)
        bench.stream.synchronize()
        assert bench.in_use == constants
    bench.part.close()
    bench.part.close()
    assert bench.in_use == 0
    with pytest.raises(RunError, match="partition is closed"):
        bench.run(ONES)


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("(float[4] x) => (float[4] y) { y = Identity(x) }", 1),
        ("(float[4] x) => (float[2,2] y) { y = Reshape(x, shape) }", 1),
        ("(float[4] x) => (float[4] y) { y = Identity(c) z = Neg(x) }", 1),
        ("(float[4] x) => (float[4] a, float[4] y) { a = Neg(x) y = Identity(a) }", 2),
        ("(float[4] x) => (float[4] y) { a = Neg(x) b = Identity(a) y = Identity(b) }", 1),
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_outputs_share_memory_with_nothing(bench, text, outputs, given):
    bench = bench(text)
    x = bench.up(np.float32([1, 2, 3, 4]))
    before = bench.in_use
    shapes = [(2, 2)] if "Reshape" in text else [(4,)] * outputs
    found = [
        bench.device.allocator.allocate(shape, x.dtype, bench.stream) if given else None
        for shape in shapes
    ]
    memory = list(found)
    bench.part.run([x], found, bench.stream)
    blocks = {id(buffer._block) for buffer in (x, *found)}
    assert len(blocks) == 1 + outputs
    if given:
        assert all(a is b for a, b in zip(memory, found, strict=True))
    bench.stream.synchronize()
    assert bench.in_use == before + 16 * outputs
    bench.free(x, *found)


def test_the_last_kernel_writes_into_given_memory(bench):
    bench = bench("(float[4] x) => (float[4] z) { y = Neg(x) z = Add(y, y) }")
    assert list(bench.part.accepts_outputs) == [True]
    x = bench.up(ONES)
    memory = bench.device.allocator.allocate((4,), x.dtype, bench.stream)
    allocations = bench.device.allocator.stats().allocations
    outputs = [memory]
    bench.part.run([x], outputs, bench.stream)
    assert outputs[0] is memory
    assert bench.device.allocator.stats().allocations == allocations + 1
    np.testing.assert_array_equal(bench.down(memory), [-2] * 4)
    bench.free(x, memory)


@pytest.mark.parametrize(
    "text",
    [
        "(float[4] x) => (float[4] y) { y = Neg(x) }",
        "(float[4] x) => (float[4] y) { y = Identity(x) }",
    ],
)
def test_memory_that_doesn_t_fit(bench, text):
    bench = bench(text)
    x = bench.up(ONES)
    memory = bench.device.allocator.allocate((2, 4), x.dtype, bench.stream)
    with pytest.raises(RunError, match=r"memory given for .*output.* doesn't fit"):
        bench.part.run([x], [memory], bench.stream)
    bench.free(x, memory)


def test_a_stream_is_needed(bench):
    bench = bench()
    with pytest.raises(ContractError, match="without a stream"):
        bench.part.run([], [None], None)


def test_inputs_in_foreign_memory(bench, simulator):
    bench = bench()
    other = simulator("1")
    buffer = other.allocator.allocate((4,), DataType.FLOAT)
    for foreign in (buffer, ONES):
        with pytest.raises(ContractError, match=r"node .* \(Add\): .*foreign memory"):
            bench.part.run([foreign], [None], bench.stream)
    other.allocator.release(buffer)


def test_constants_stay_until_queued_work_has_read_them(bench):
    """close() right after run(): the work is still in the queue."""
    bench = bench(kernel_latency_us=20_000)
    x = bench.up(ONES)
    outputs = [None]
    bench.part.run([x], outputs, bench.stream)
    bench.part.close()
    np.testing.assert_array_equal(bench.down(outputs[0]), [5] * 4)
    bench.free(x, *outputs)


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("number", range(1, 8))
def test_a_failed_allocation_leaves_nothing_behind(bench, number):
    """Whichever allocation fails: one of three constants, the input, one of three results."""
    try:
        made = bench(fail_allocation_at=number)
    except AllocationError:
        assert number <= 3
        return
    if number == 4:
        with pytest.raises(AllocationError, match="failed as told"):
            made.up(ONES)
        return
    with pytest.raises(AllocationError, match="failed as told"):
        made.run(ONES)
    made.stream.synchronize()
    assert made.in_use == 40
    np.testing.assert_array_equal(made.run(ONES)[0], [5] * 4)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_failed_kernel_surfaces_at_synchronize_and_the_next_run_works(bench, number):
    bench = bench(fail_kernel_at=number)
    with pytest.raises(RunError, match=rf"node .*kernel {number} on simulator:0 failed as told"):
        bench.run(ONES)
    np.testing.assert_array_equal(bench.run(ONES)[0], [5] * 4)


def test_a_failed_copy(bench):
    with pytest.raises(RunError, match="copy 1 on simulator:0 failed as told"):
        bench(fail_copy_at=1)
    made = bench(fail_copy_at=4)
    with pytest.raises(RunError, match="copy 4 on simulator:0 failed as told"):
        made.run(ONES)
    np.testing.assert_array_equal(made.run(ONES)[0], [5] * 4)


@pytest.mark.parametrize(("option", "fails"), [("always", True), ("Mul", True), ("Sin,Cos", False)])
def test_compile_fails_as_told(bench, option, fails):
    if fails:
        with pytest.raises(CompileError, match="failed as told"):
            bench(fail_compile=option)
    else:
        bench(fail_compile=option)


def test_capability_raises_as_told(simulator, graph_of):
    graph = graph_of("(float[4] x) => (float[4] y) { y = Neg(x) }")
    with pytest.raises(RuntimeError, match="as told"):
        simulator(fail_capability=True).get_capability(graph)


def test_a_lost_device_refuses_everything_and_can_be_closed(bench, whole, graph_of, simulator):
    bench = bench(lose_device_at=2)
    device, stream = bench.device, bench.stream
    x = bench.up(ONES)
    outputs = [None]
    event = stream.record()
    # Losing it is noticed by the worker; how far the host has got by then is a matter of luck.
    with contextlib.suppress(DeviceLostError):
        bench.part.run([x], outputs, stream)
    with pytest.raises(DeviceLostError):
        stream.synchronize()
    graph = graph_of("(float[4] x) => (float[4] y) { y = Neg(x) }")
    for call in (
        lambda: device.allocator.allocate((4,), x.dtype, stream),
        lambda: device.data_transfer.copy(ONES, x, stream),
        lambda: bench.part.run([x], [None], stream),
        lambda: device.compile(whole(graph)),
        device.create_stream,
        stream.record,
        stream.synchronize,
        lambda: stream.wait(event),
        event.synchronize,
    ):
        with pytest.raises(DeviceLostError, match="simulator:0 is lost"):
            call()
    assert device.get_capability(graph).nodes[0].supported
    bench.free(x, *(buffer for buffer in outputs if buffer is not None))
    bench.part.close()
    stream.close()
    device.close()
    fresh = simulator()
    fresh.create_stream().synchronize()


def test_losing_the_device_with_work_queued_hangs_nobody(bench):
    bench = bench(lose_device_at=1, kernel_latency_us=5_000)
    other = bench.device.create_stream()
    x = bench.up(ONES)
    outputs = [None]
    bench.part.run([x], outputs, bench.stream)
    other.wait(bench.stream.record())
    with pytest.raises(DeviceLostError):
        other.synchronize()
    bench.free(x, *outputs)
    bench.device.close()


# ---------------------------------------------------------------- threads and growth


def test_eight_threads_in_one_partition(bench, to_device, to_host):
    bench = bench(kernel_latency_us=20)
    wrong = []

    def work(seed):
        mine = Bench(bench.device, bench.part, to_device, to_host)
        for _ in range(30):
            (result,) = mine.run(np.full(4, seed, np.float32))
            if not (result == (seed + 1) ** 2 + seed).all():
                wrong.append((seed, result))
        mine.stream.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    bench.stream.synchronize()
    assert bench.in_use == 40


def test_a_thousand_runs_leave_nothing(bench):
    bench = bench()
    bench.run(ONES)
    bench.stream.synchronize()
    before = (bench.in_use, threading.active_count())
    for _ in range(1000):
        bench.run(ONES)
    bench.stream.synchronize()
    assert (bench.in_use, threading.active_count()) == before
    gc.collect()
    objects = len(gc.get_objects())
    for _ in range(300):
        bench.run(ONES)
    gc.collect()
    assert len(gc.get_objects()) - objects < 100


def test_a_thousand_lives_of_a_provider_leave_nothing(simulator, graph_of, whole):
    from ep_sdk.simulator import INFO, ep_provider_factory

    factory = ep_provider_factory()
    (device, _) = factory.devices()
    options = {name: spec.default for name, spec in INFO.options.items()}
    subgraph = whole(graph_of(CHAIN, **CONSTANTS))
    threads = threading.active_count()
    for cycle in range(1000):
        provider = factory.create(device, options)
        part = provider.compile(subgraph)
        if cycle % 10 == 0:
            provider.create_stream()
        if cycle % 2:
            part.close()
        provider.close()
        assert provider.allocator.stats().in_use_bytes == 0
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    "option", ["fail_allocation_at", "fail_copy_at", "fail_kernel_at", "lose_device_at"]
)
def test_every_fault_at_every_place_is_an_ep_error_and_leaks_nothing(bench, option):
    """Leaks and threads are checked when the fixture closes the devices."""
    for number in range(1, 12):
        try:
            made = bench(**{option: number})
            made.run(ONES)
        except EpError:
            pass
        else:
            assert number >= 4


def test_outputs_that_nobody_asked_for_are_released(simulator, graph_of, whole, to_device, to_host):
    """The kernel returns two buffers; the model wants the first."""
    table = KernelTable({"": 21})

    @table.kernel("Split")
    def make(node):
        def kernel(stream, x):
            allocator = node.provider.allocator
            halves = [allocator.allocate((4,), x.dtype, stream) for _ in range(2)]
            for half in halves:
                node.provider.data_transfer.copy(x, half, stream)
            return tuple(halves)

        return kernel

    plain = simulator()
    cls = type("Splitting", (SimulatorProvider,), {"table": table})
    device = cls(plain.info, plain.device, plain.options)
    graph = graph_of("(float[4] x) => (float[4] a) { a, b = Split(x) }")
    graph = graph.replace(nodes=(graph.nodes[0].replace(outputs=("a", "")),))
    bench = Bench(device, device.compile(whole(graph)), to_device, to_host)
    np.testing.assert_array_equal(bench.run(ONES)[0], ONES)
    device.close()
    assert bench.in_use == 0


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (SimulatorStream, "record"),
        (SimulatorEvent, "synchronize"),
        (MemoryPool, "allocate"),
        (SimulatorTransfer, "copy"),
        (SimulatorProvider, "create_stream"),
    ],
)
@pytest.mark.parametrize(("raised", "error"), [(OSError, RunError), (MemoryError, AllocationError)])
def test_any_exception_of_any_part_becomes_our_error(monkeypatch, cls, name, raised, error):
    def broken(*arguments, **options):
        raise raised("odd")

    model = onnx.parser.parse_model(NEG)
    with InferenceSession(model, providers=["simulator"]) as session:
        with monkeypatch.context() as patch:
            patch.setattr(cls, name, broken)
            with pytest.raises(error, match="odd"):
                session.run(None, {"x": ONES})
        np.testing.assert_array_equal(session.run(None, {"x": ONES})[0], -ONES)
        allocator = session._candidates[0].provider.allocator
    assert allocator.stats().in_use_bytes == 0


def test_can_copy_that_raises_is_a_broken_contract(monkeypatch):
    def broken(*arguments):
        raise OSError("odd")

    monkeypatch.setattr(SimulatorTransfer, "can_copy", broken)
    model = onnx.parser.parse_model(NEG)
    with pytest.raises(ContractError, match="can_copy of provider 'simulator' raised OSError: odd"):
        InferenceSession(model, providers=["simulator"])
