"""Copies of cheap nodes and memory budgets on real providers: the answer stays, the plan is kept.

The right answer is the CPU provider's alone.
"""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from test_random_models import all_same, options_of
from test_two_providers import feeds, looping_model

from ep_core import InferenceSession
from ep_core.errors import AllocationError, PlacementError
from ep_tools.cli import main

DEAR_COPIES = "1e12,1e12,1e-7,1e-7,1e-3,1e10"
"""A device that is fast, and far away: operations and bytes in a second, then seconds."""
FAST = "1e13,1e13,1e-8,1e-8,1e-8,1e13"
"""A device that is faster than the CPU provider with anything."""


def simulator(**options):
    return ("simulator", {"speed": DEAR_COPIES, **options})


def text_model(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants.items()
    )
    return model


# ------------------------------------------------------------ nodes that run twice


SHAPES = """(float[N,2] x) => (float[N,2] y, float[2] z) {
    a = Relu(x)
    s = Shape(x)
    f = Cast<to = 1>(s)
    y = Mul(a, f)
    z = Erf(f)
}"""
"""The shape of x, as floats, is read on the device by Mul and on the host by Erf."""


def cost_options():
    options = options_of(99)
    options.placement_strategy = "cost"
    return options


def test_a_chain_of_cheap_nodes_runs_on_both_sides():
    options = cost_options()
    options.pin = {"op:Relu": "simulator", "op:Mul": "simulator"}
    model = text_model(SHAPES)
    with (
        InferenceSession(model, options_of(99), ["cpu"]) as alone,
        InferenceSession(model, options, [simulator(), "cpu"]) as both,
    ):
        report = both.get_placement()
        placed = report.nodes[""]
        assert sorted((node.op_type, node.provider) for node in placed) == [
            ("Cast", "cpu"),
            ("Cast", "simulator"),
            ("Erf", "cpu"),
            ("Mul", "simulator"),
            ("Relu", "simulator"),
            ("Shape", "cpu"),
            ("Shape", "simulator"),
        ]
        again = [node for node in placed if node.reason.startswith("a copy of")]
        assert [node.op_type for node in again] == ["Shape", "Cast"]
        assert all(re.search(r" \(copy for (cpu|simulator)\)$", node.node) for node in again)
        assert [copy.value for copy in report.copies] == ["x", "y"]
        for length in (3, 1, 0, 5):
            given = {"x": np.arange(2 * length, dtype=np.float32).reshape(length, 2) - 2}
            assert all_same(both.run(None, given), alone.run(None, given))


def test_what_fails_to_compile_is_placed_again_without_its_copy():
    options = cost_options()
    options.pin = {"op:Relu": "simulator", "op:Mul": "simulator"}
    providers = [simulator(fail_compile="Cast"), "cpu"]
    model = text_model(SHAPES)
    given = {"x": np.ones((3, 2), np.float32)}
    with (
        InferenceSession(model, options_of(99), ["cpu"]) as alone,
        InferenceSession(model, options, providers) as both,
    ):
        where = [n.provider for n in both.get_placement().nodes[""] if n.op_type == "Cast"]
        assert where == ["cpu"]
        assert all_same(both.run(None, given), alone.run(None, given))


def test_commands_show_the_copies(tmp_path, capsys):
    path = tmp_path / "shapes.onnx"
    onnx.save(text_model(SHAPES), path)
    where = ["--providers", "simulator,cpu", "--provider-option", f"simulator.speed={DEAR_COPIES}"]
    pins = ["--strategy", "cost", "--pin", "op:Relu=simulator", "--pin", "op:Mul=simulator"]
    page, parts = tmp_path / "page.html", tmp_path / "parts"
    forms = ["--html", str(page), "--save-partitions", str(parts), "--json", "-"]
    assert main(["explain", str(path), *where, *pins, *forms]) == 0
    document = json.loads(capsys.readouterr().out)
    names = [node["node"] for node in document["nodes"][""]]
    assert sum("(copy for " in name for name in names) == 2
    assert [copy["value"] for copy in document["copies"]] == ["x", "y"]
    assert "(copy for " in page.read_text()
    for part in parts.iterdir():
        onnx.checker.check_model(onnx.load(part), full_check=True)


def shapes_model(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A random model full of shapes that are computed with, and pins of what isn't cheap."""
    pools = {"wide": ["x"], "ints": [], "floats": []}
    nodes, pins = [], {}

    def some(kind: str) -> str:
        return pools[kind][int(rng.integers(len(pools[kind])))]

    def add(op_type: str, inputs: list[str], kind: str, **attributes) -> None:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        pools[kind].append(name)
        if kind == "wide":
            pins[name] = ("simulator", "cpu")[int(rng.integers(2))]

    add("Shape", ["x"], "ints")
    add("Cast", ["v0"], "floats", to=TensorProto.FLOAT)
    for choice in rng.integers(7, size=int(rng.integers(6, 16))):
        match choice:
            case 0:
                add("Shape", [some("wide")], "ints")
            case 1:
                add("Cast", [some("ints")], "floats", to=TensorProto.FLOAT)
            case 2:
                add("Add", [some("ints"), some("ints")], "ints")
            case 3:
                add("Gather", [some("ints"), "turn"], "ints")
            case 4:
                add("Relu", [some("wide")], "wide")
            case 5:
                add("Mul", [some("wide"), some("floats")], "wide")
            case 6:
                add("Sub", [some("wide"), some("wide")], "wide")
    types = {"wide": (TensorProto.FLOAT, ["N", 2]), "ints": (TensorProto.INT64, [2])}
    types["floats"] = (TensorProto.FLOAT, [2])
    read = {name for node in nodes for name in node.input}
    outputs = [
        helper.make_tensor_value_info(name, *types[kind])
        for kind, names in pools.items()
        for name in names
        if name not in read
    ]
    inputs = [helper.make_tensor_value_info("x", *types["wide"])]
    turn = numpy_helper.from_array(np.array([1, 0]), "turn")
    graph = helper.make_graph(nodes, "shapes", inputs, outputs, [turn])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, pins


def test_random_models_with_copies_of_nodes_give_what_the_cpu_gives():
    again = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        model, pins = shapes_model(rng)
        options = cost_options()
        options.graph_optimization_level = 0
        options.pin = pins
        with (
            InferenceSession(model, options_of(0), ["cpu"]) as alone,
            InferenceSession(model, options, [simulator(), "cpu"]) as both,
        ):
            report = both.get_placement()
            again += sum(node.reason.startswith("a copy of") for node in report.nodes[""])
            # Each copy of the plan was predicted.
            assert all(copy.seconds is not None for copy in report.copies), seed
            for length in (2, 0, 3):
                given = {"x": rng.integers(-4, 5, (length, 2)).astype(np.float32)}
                assert all_same(both.run(None, given), alone.run(None, given)), seed
    assert again > 30


# ------------------------------------------------------------ memory


HALVES = """(float[256,256] x) => (float[256] y) {
    a = Relu(x)
    b = Neg(a)
    c = Abs(b)
    d = ReduceSum<keepdims = 0>(c, axes)
    e = Neg(d)
    y = Abs(e)
}"""
"""Values of 256 KiB, and then of 1 KiB."""


def halves() -> onnx.ModelProto:
    return text_model(HALVES, axes=np.array([0]))


@pytest.mark.parametrize("strategy", ["auto", "greedy", "cost"])
def test_what_does_not_fit_goes_elsewhere(strategy):
    """A device of 600 KiB: x and two values at a time are more."""
    options = options_of(0)
    options.placement_strategy = strategy
    small = [("simulator", {"capacity": 600 * 1024, "speed": FAST}), "cpu"]
    given = {"x": np.random.default_rng(0).integers(-9, 9, (256, 256)).astype(np.float32)}
    with (
        InferenceSession(halves(), options_of(0), ["cpu"]) as alone,
        InferenceSession(halves(), options, small) as session,
    ):
        report = session.get_placement()
        counts = [node.provider for node in report.nodes[""]].count("simulator")
        assert 0 < counts < 6
        assert "memory budget of simulator" in report.basis
        for _ in range(3):
            assert all_same(session.run(None, given), alone.run(None, given))


def test_greedy_without_a_budget_runs_out_of_memory():
    options = options_of(0)
    options.placement_strategy = "greedy"
    options.memory_limits = {"simulator": 2**40}
    small = [("simulator", {"capacity": 600 * 1024}), "cpu"]
    with InferenceSession(halves(), options, small) as session:
        assert {node.provider for node in session.get_placement().nodes[""]} == {"simulator"}
        with pytest.raises(AllocationError):
            session.run(None, {"x": np.zeros((256, 256), np.float32)})


def test_constants_count_and_the_caller_says_how_much_there_is():
    rng = np.random.default_rng(1)
    weights = {f"w{i}": rng.integers(-2, 3, (64, 64)).astype(np.float32) for i in range(4)}
    model = text_model(
        """(float[1,64] x) => (float[1,64] y) {
            a = MatMul(x, w0) b = MatMul(a, w1) c = MatMul(b, w2) y = MatMul(c, w3)
        }""",
        **weights,
    )
    options = options_of(0)
    options.memory_limits = {"SimulatorExecutionProvider": 40_000}  # two weights of 16 KiB
    given = {"x": rng.integers(-2, 3, (1, 64)).astype(np.float32)}
    with (
        InferenceSession(model, options_of(0), ["cpu"]) as alone,
        InferenceSession(model, options, ["simulator", "cpu"]) as session,
    ):
        providers = [node.provider for node in session.get_placement().nodes[""]]
        assert providers == ["simulator", "simulator", "cpu", "cpu"]
        assert all_same(session.run(None, given), alone.run(None, given))
    options.pin = {"*": "simulator"}
    with pytest.raises(PlacementError, match=r"memory limit of 'simulator', 40000 bytes.*pinned"):
        InferenceSession(model, options, ["simulator", "cpu"])


def layered_model(rng: np.random.Generator) -> onnx.ModelProto:
    """Random nodes on values of 1 KiB, a quarter of them with weights of as much."""
    names, nodes, weights = ["x"], [], []
    for index in range(int(rng.integers(6, 25))):
        op_type = ("MatMul", "Add", "Relu", "Neg", "Erf")[int(rng.integers(5))]
        inputs = [names[int(rng.integers(max(0, len(names) - 4), len(names)))]]
        if op_type == "Add":
            inputs.append(names[int(rng.integers(max(0, len(names) - 4), len(names)))])
        if op_type == "MatMul":
            weight = rng.integers(-1, 2, (16, 16)).astype(np.float32)
            weights.append(numpy_helper.from_array(weight, f"w{index}"))
            inputs.append(f"w{index}")
        nodes.append(helper.make_node(op_type, inputs, [f"v{index}"]))
        names.append(f"v{index}")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [16, 16]) for n in ("x", names[-1])]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("devices", [("simulator",), ("simulator:0", "simulator:1")])
def test_planned_memory_stays_within_the_limits(devices):
    """What is predicted when nodes are placed is no less than what the plan then takes."""
    used = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = layered_model(rng)
        options = options_of(1)
        options.placement_strategy = ("greedy", "cost")[seed % 2]
        options.memory_limits = {name: int(rng.integers(2, 16)) * 1024 for name in devices}
        fast = {"speed": FAST}
        providers = [("simulator", {"device_id": str(n), **fast}) for n in range(len(devices))]
        with (
            InferenceSession(model, options_of(1), ["cpu"]) as alone,
            InferenceSession(model, options, [*providers, "cpu"]) as session,
        ):
            for number, limit in enumerate(options.memory_limits.values()):
                planned = session.get_placement().peak_bytes.get(f"simulator:{number}/device")
                if planned is not None:
                    used += planned.constant_bytes + planned.run_bytes > 0
                    assert planned.constant_bytes + planned.run_bytes <= limit, seed
            given = {"x": rng.integers(-1, 2, (16, 16)).astype(np.float32)}
            for got, right in zip(session.run(None, given), alone.run(None, given), strict=True):
                np.testing.assert_allclose(got, right, rtol=1e-4)
    assert used > 20


@pytest.mark.parametrize("limit", [0, 600, 1200, 10**9])
def test_bodies_get_what_the_graphs_around_them_leave(limit):
    options = options_of(99)
    options.memory_limits = {"simulator": limit}
    model = looping_model()
    with (
        InferenceSession(model, options_of(99), ["cpu"]) as alone,
        InferenceSession(model, options, ["simulator", "cpu"]) as session,
    ):
        nodes = [node for found in session.get_placement().nodes.values() for node in found]
        assert any(node.provider == "simulator" for node in nodes) == (limit > 0)
        for seed in range(4):
            given = feeds(seed)
            for got, right in zip(session.run(None, given), alone.run(None, given), strict=True):
                np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def test_a_command_takes_the_limit(tmp_path, capsys):
    path = tmp_path / "halves.onnx"
    onnx.save(halves(), path)
    where = ["--providers", "simulator,cpu", "--level", "0"]
    assert main(["explain", str(path), *where, "--memory-limit", "simulator=600KiB", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["basis"].endswith("memory budget of simulator")
    assert main(["check", str(path), *where, "--memory-limit", "simulator=1K"]) in (0, 1)
    capsys.readouterr()
    pinned = [*where, "--memory-limit", "simulator=600k", "--pin", "*=simulator"]
    assert main(["explain", str(path), *pinned]) == 1
    assert "the memory limit of 'simulator', 614400 bytes, contradicts" in capsys.readouterr().err
