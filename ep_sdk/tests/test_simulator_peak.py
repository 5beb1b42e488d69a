"""Planned memory against what the simulator's allocator measures, and runs that take no more."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ep_core import InferenceSession, OrtValue, SessionOptions
from ep_core.contracts import PartitionMemory
from ep_core.errors import ProviderError
from ep_core.levels import GraphOptimizationLevel
from ep_core.report import MemoryPeak
from ep_sdk.simulator.provider import SimulatorProvider

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
HOST, ZERO, ONE = "cpu/host", "simulator:0/device", "simulator:1/device"

VIEWS = """
g (float[4,6] x) => (float[24] flat, float[6,4] turned) {
    all = Constant<value_ints=[24]>()
    flat = Reshape(x, all)
    a = Neg(x)
    b = Exp(a)
    shape = Constant<value_ints=[6,4]>()
    turned = Reshape(b, shape)
}
"""
SCAN = """
g (float[4] start, float[3,4] xs) => (float[4] last, float[3,4] all, float[4] twice) {
    last, all = Scan <num_scan_inputs = 1, body = body
        (float[4] before, float[4] x) => (float[4] after, float[4] step) {
            large = Concat<axis=0>(before, x, before, x)
            sum = ReduceSum<keepdims=1>(large)
            after = Add(before, sum)
            step = Neg(after)
        }>(start, xs)
    twice = Add(last, last)
}
"""
LOOP = """
g (float[4] x, int64 count) => (float[4] total) {
    total = Loop (count, , x) <body = body
        (int64 i, bool go, float[4] before) => (bool more, float[4] after) {
            more = Identity(go)
            after = Add(before, x)
        }>
}
"""
BRANCH = """
g (float[4] x, bool choice) => (float[4] y) {
    y = If (choice) <
        then_branch = small () => (float[4] one) { one = Neg(x) },
        else_branch = large () => (float[4] two) {
            c = Concat<axis=0>(x, x, x)
            d = Exp(c)
            e = ReduceSum<keepdims=1>(d)
            two = Add(x, e)
        }>
}
"""
FREE = "g (float[N] x) => (float[N] y) { a = Exp(x) b = Add(a, x) y = Neg(b) }"


@pytest.fixture
def session():
    opened = []

    def make(text_or_model, *, pins=(), free=(), devices=("0",), **options):
        settings = SessionOptions()
        settings.disable_cpu_fallback = True
        for name, length in free:
            settings.add_free_dimension_override_by_name(name, length)
        if pins:
            settings.pin = dict(pins)
            settings.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        model = text_or_model
        if isinstance(model, str):
            model = onnx.parser.parse_model(HEAD + model)
        wanted = [("simulator", {"device_id": number, **options}) for number in devices]
        opened.append(InferenceSession(model.SerializeToString(), settings, wanted))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def feeds_of(session):
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
    return {item.name: np.ones(item.shape, kinds[item.type]) for item in session.get_inputs()}


def measured(session, memory=ZERO):
    return session.get_memory().devices[memory]


def planned(session, memory=ZERO) -> MemoryPeak:
    return session.get_placement().peak_bytes[memory]


def total(peak: MemoryPeak) -> int:
    assert peak.unknown == ""
    return peak.constant_bytes + peak.run_bytes


def grown(seed, *, nodes=14, side=8) -> onnx.ModelProto:
    """A random graph of static shapes, with views, constants, and values that live long."""
    generator = np.random.default_rng(seed)
    square, flat = [side, side], [side * side]
    values = {"x0": square, "x1": square}
    shapes = {
        "to_flat": helper.make_tensor("to_flat", TensorProto.INT64, [1], flat),
        "to_square": helper.make_tensor("to_square", TensorProto.INT64, [2], square),
    }
    weight = generator.random(square, np.float32)
    initializers = [*shapes.values(), onnx.numpy_helper.from_array(weight, "w")]
    steps = []
    for number in range(nodes):
        name = f"n{number}"
        source = str(generator.choice(sorted(values)))
        kind = values[source]
        like = str(generator.choice(sorted(n for n, shape in values.items() if shape == kind)))
        choices = [("Neg", [source], kind), ("Add", [source, like], kind)]
        if kind == square:
            choices += [
                ("MatMul", [source, "w"], square),
                ("Transpose", [source], square),
                ("Reshape", [source, "to_flat"], flat),
            ]
        else:
            choices.append(("Reshape", [source, "to_square"], square))
        operator, inputs, shape = choices[int(generator.integers(len(choices)))]
        values[name] = shape
        steps.append(helper.make_node(operator, inputs, [name], name))
    read = {name for step in steps for name in step.input}
    ends = [name for name in values if name.startswith("n") and name not in read]
    ends += [name for name in values if name.startswith("n") and generator.random() < 0.15]

    def infos(names):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, values[n]) for n in names]

    graph = helper.make_graph(
        steps, "grown", infos(["x0", "x1"]), infos(dict.fromkeys(ends)), initializers
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


# ---------------------------------------------------------------- planned is what is measured


@pytest.mark.parametrize("seed", range(12))
def test_the_plan_is_the_peak_to_the_byte(session, seed):
    one = session(grown(seed))
    feeds = feeds_of(one)
    for _ in range(3):
        one.run(None, feeds)
    assert total(planned(one)) == measured(one).peak_bytes
    assert planned(one).constant_bytes == measured(one).in_use_bytes


@pytest.mark.parametrize("seed", range(12))
def test_on_two_devices_the_plan_is_the_peak(session, seed):
    model = grown(seed)
    names = [node.name for node in model.graph.node]
    pins = {name: f"simulator:{index // 4 % 2}" for index, name in enumerate(names)}
    one = session(model, pins=pins, devices=("0", "1"))
    assert len(one.get_placement().partitions) > 1
    feeds = feeds_of(one)
    for _ in range(3):
        one.run(None, feeds)
    for memory in (ZERO, ONE):
        assert total(planned(one, memory)) == measured(one, memory).peak_bytes


def test_outputs_that_are_views_are_copied_in_the_end(session):
    one = session(VIEWS)
    one.run(None, feeds_of(one))
    assert total(planned(one)) == measured(one).peak_bytes


@pytest.mark.parametrize(
    ("text", "host"),
    # In a round of the Scan: the states and all results of before and after, twice over.
    [(SCAN, 2 * (16 + 48) + 4 * 16), (BRANCH, 16)],
    ids=["scan", "branch"],
)
def test_bodies_count(session, text, host):
    one = session(text)
    feeds = feeds_of(one)
    peaks = []
    for choice in (True, False):
        if "choice" in feeds:
            feeds["choice"] = np.array(choice)
        one.run(None, feeds)
        peaks.append(measured(one).peak_bytes)
    assert total(planned(one)) == max(peaks)
    assert planned(one, HOST).run_bytes <= host


def test_a_loop_whose_values_may_grow_isn_t_planned(session):
    peak = planned(session(LOOP))
    assert peak.run_bytes is None
    assert peak.unknown == "the size of 'before' isn't known before the run"


def test_the_host_s_part(session):
    """Results, and what loops keep; feeds are the caller's."""
    one = session(VIEWS)
    assert planned(one, HOST) == MemoryPeak(0, 2 * 96)


def test_what_isn_t_known_beforehand(session):
    one = session(FREE)
    assert planned(one).run_bytes is None
    assert planned(one).constant_bytes == 0
    assert "isn't known before the run" in planned(one).unknown
    fixed = session(FREE, free=[("N", 100)])
    fixed.run(None, {"x": np.ones(100, np.float32)})
    assert planned(fixed) == MemoryPeak(0, 1200)
    assert measured(fixed).peak_bytes == 1200


def test_runs_at_the_same_time_take_as_much_each(session):
    one = session(grown(3), kernel_latency_us=200)
    feeds = feeds_of(one)
    threads = [threading.Thread(target=one.run, args=(None, feeds)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    peak = planned(one)
    assert measured(one).peak_bytes <= peak.constant_bytes + 3 * peak.run_bytes


# ---------------------------------------------------------------- partitions


def partition_of(simulator, graph_of, whole, text):
    provider = simulator()
    return provider, provider.compile(whole(graph_of(text)))


def test_what_a_partition_tells(simulator, graph_of, whole):
    provider, part = partition_of(
        simulator,
        graph_of,
        whole,
        "(float[8] x) => (float[8] y) <float[8] w = {1,2,3,4,5,6,7,8}>"
        "{ a = Exp(x) b = Concat<axis=0>(a, a) c = ReduceSum<keepdims=0>(b) d = Add(a, c)"
        "  y = Mul(d, w) }",
    )
    # a and b together are more than what is there when y is made.
    stages = ((100, ()), (32, (0,)))
    assert provider.get_partition_memory(part) == PartitionMemory(32, 100, 32, 100, stages)


def test_a_partition_of_another(simulator):
    with pytest.raises(ProviderError, match="doesn't know another one's partition"):
        simulator().get_partition_memory(object())


def test_a_provider_that_fails_to_tell(session, monkeypatch):
    def fail(self, partition):
        raise ValueError("no idea")

    monkeypatch.setattr(SimulatorProvider, "get_partition_memory", fail)
    one = session(VIEWS)
    one.run(None, feeds_of(one))
    peak = planned(one)
    assert (peak.constant_bytes, peak.run_bytes) == (None, None)
    assert peak.unknown == "get_partition_memory of simulator raised ValueError: no idea"
    monkeypatch.setattr(SimulatorProvider, "get_partition_memory", lambda self, partition: 3)
    assert planned(session(VIEWS)).unknown == "get_partition_memory of simulator gave a int"


def test_the_report_shows_it(session):
    one = session(VIEWS)
    report = one.get_placement()
    assert f"memory {ZERO}: 24 B for constants, at most 384 B in a run" in str(report)
    assert report.to_dict()["peak_bytes"][ZERO] == {
        "constant_bytes": 24,
        "run_bytes": 384,
        "unknown": "",
    }
    assert one.get_memory().planned == report.peak_bytes
    unknown = session(FREE).get_placement()
    assert ", an unknown amount in a run (" in str(unknown)


# ---------------------------------------------------------------- nothing new after the first run


def test_runs_of_equal_shapes_take_no_new_memory(session):
    one = session(FREE)
    x = np.ones(50, np.float32)
    one.run(None, {"x": x})
    first = measured(one)
    for _ in range(20):
        one.run(None, {"x": x})
    last = measured(one)
    assert last.device_allocations == first.device_allocations
    assert last.reserved_bytes == first.reserved_bytes
    assert last.allocations > first.allocations
    one.run(None, {"x": np.ones(5000, np.float32)})
    assert measured(one).device_allocations > last.device_allocations


def test_bound_runs_take_no_new_memory(session):
    one = session("g (float[64] x) => (float[64] y) { a = Exp(x) b = Add(a, x) y = Neg(b) }")
    x = OrtValue.ortvalue_from_numpy(np.ones(64, np.float32), "simulator")
    y = OrtValue.ortvalue_from_shape_and_type([64], np.float32, "simulator")
    for give in (True, False):
        binding = one.io_binding()
        binding.bind_ortvalue_input("x", x)
        if give:
            binding.bind_ortvalue_output("y", y)
        else:
            binding.bind_output("y", "simulator")
        one.run_with_iobinding(binding)
        first = measured(one)
        for _ in range(10):
            one.run_with_iobinding(binding)
        last = measured(one)
        assert last.device_allocations == first.device_allocations
        per_run = 2 if give else 3
        assert last.allocations - first.allocations == 10 * per_run


def test_threads_take_no_more_than_a_first_run_each(session):
    one = session(grown(5))
    loaded = measured(one).device_allocations
    feeds = feeds_of(one)
    one.run(None, feeds)
    first = measured(one).device_allocations - loaded
    failures = []

    def work():
        try:
            for _ in range(25):
                one.run(None, feeds)
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert measured(one).device_allocations - loaded <= 4 * first
