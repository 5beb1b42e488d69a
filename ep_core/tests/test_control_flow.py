"""If, Loop and Scan run by the core: captures, nesting, zero rounds, sequences, scan axes.

Right values follow from the operators' documentation and are written out by hand.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import InvalidModelError, RunError


def run(model, feeds, **arguments):
    with InferenceSession(model, providers=["cpu"], **arguments) as session:
        return session.run(None, feeds)


IF_MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
choose (bool c, float[N] x, float[N] y) => (float[N] z)
{
  d = Add(x, y)
  z = If(c) <
    then_branch = g1 () => (float[N] t) { t = Mul(d, x) },
    else_branch = g2 () => (float[N] y) { }
  >
}
"""


@pytest.mark.parametrize("level", [0, 99])
def test_if_with_captures_and_a_branch_that_only_passes_on(provide, level):
    provide()
    options = SessionOptions()
    options.graph_optimization_level = level
    x = np.array([1, 2], np.float32)
    y = np.array([3, 4], np.float32)
    model = parser.parse_model(IF_MODEL)
    with InferenceSession(model, options, providers=["cpu"]) as session:
        (z,) = session.run(None, {"c": np.array(True), "x": x, "y": y})
        np.testing.assert_array_equal(z, (x + y) * x)
        (z,) = session.run(None, {"c": np.array([False]).reshape(()), "x": x, "y": y})
        np.testing.assert_array_equal(z, y)
        assert not np.shares_memory(z, y)


HELD = """
<ir_version: 8, opset_import: ["" : 17]>
keep (bool c, float[2] x) => (seq(float[2]) kept, float[2] last)
{
  a = Neg(x)
  kept = If(c) <
    then_branch = g1 () => (seq(float[2]) s) { s = SequenceConstruct(a, a) },
    else_branch = g2 () => (seq(float[2]) s) { s = SequenceConstruct(a) }
  >
  b = Abs(x)
  last = Neg(b)
}
"""


def test_what_a_sequence_of_a_body_holds_is_not_used_again(provide):
    """A partition may put its input into a sequence; that memory isn't the next run's."""
    provide(accepts_outputs=True)
    x = np.array([1, 2], np.float32)
    options = SessionOptions()
    options.graph_optimization_level = 0
    with InferenceSession(parser.parse_model(HELD), options, providers=["cpu"]) as session:
        kept, last = session.run(None, {"c": np.array(True), "x": x})
        session.run(None, {"c": np.array(False), "x": x * 10})
        np.testing.assert_array_equal(kept, [-x, -x])
        np.testing.assert_array_equal(last, -x)


def loop_model(*, trips: bool, condition: bool):
    """s starts at x; each round: s = s + w (captured); scan output s * i; goes on while s < 100."""
    vi = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s_in", "w"], ["s_out"]),
            helper.make_node("Cast", ["i"], ["fi"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["s_out", "fi"], ["scan"]),
            helper.make_node("ReduceMax", ["s_out"], ["top"], keepdims=0),
            helper.make_node("Less", ["top", "hundred"], ["more"]),
        ],
        "body",
        [
            vi("i", TensorProto.INT64, []),
            vi("more_in", TensorProto.BOOL, []),
            vi("s_in", TensorProto.FLOAT, [2]),
        ],
        [
            vi("more", TensorProto.BOOL, []),
            vi("s_out", TensorProto.FLOAT, [2]),
            vi("scan", TensorProto.FLOAT, [2]),
        ],
    )
    inputs = [vi("x", TensorProto.FLOAT, [2]), vi("w", TensorProto.FLOAT, [2])]
    if trips:
        inputs.append(vi("m", TensorProto.INT64, []))
    if condition:
        inputs.append(vi("c", TensorProto.BOOL, []))
    node = helper.make_node(
        "Loop",
        ["m" if trips else "", "c" if condition else "", "x"],
        ["last", "all"],
        body=body,
    )
    graph = helper.make_graph(
        [node],
        "g",
        inputs,
        [vi("last", TensorProto.FLOAT, [2]), vi("all", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor("hundred", TensorProto.FLOAT, [], [100.0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X = np.array([1, 2], np.float32)
W = np.array([10, 20], np.float32)


def test_loop_by_trip_count(provide):
    provide()
    last, scanned = run(
        loop_model(trips=True, condition=False), {"x": X, "w": W, "m": np.array(3, np.int64)}
    )
    np.testing.assert_array_equal(last, [31, 62])
    np.testing.assert_array_equal(scanned, [[0, 0], [21, 42], [62, 124]])


def test_loop_by_condition(provide):
    provide()
    last, scanned = run(
        loop_model(trips=False, condition=True), {"x": X, "w": W, "c": np.array(True)}
    )
    np.testing.assert_array_equal(last, [51, 102])
    assert scanned.shape == (5, 2)


@pytest.mark.parametrize("trips", [0, -3])
def test_loop_of_no_rounds(provide, trips):
    provide()
    last, scanned = run(
        loop_model(trips=True, condition=False), {"x": X, "w": W, "m": np.array(trips, np.int64)}
    )
    np.testing.assert_array_equal(last, X)
    assert not np.shares_memory(last, X)
    assert scanned.shape == (0, 2)
    assert scanned.dtype == np.float32


def test_loop_whose_condition_is_false_from_the_start(provide):
    provide()
    last, scanned = run(
        loop_model(trips=True, condition=True),
        {"x": X, "w": W, "m": np.array(5, np.int64), "c": np.array(False)},
    )
    np.testing.assert_array_equal(last, X)
    assert scanned.shape == (0, 2)


def test_condition_that_is_no_single_bool(provide):
    provide()
    model = parser.parse_model(IF_MODEL.replace("bool c", "bool[K] c"))
    feeds = {"c": np.array([True, False]), "x": X, "y": X}
    with pytest.raises(RunError, match="one bool"):
        run(model, feeds)


def scan_model(**attributes):
    """Running sum over the scanned axis; outputs final sum and all partial sums."""
    vi = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "item"], ["sum_out"]),
            helper.make_node("Identity", ["sum_out"], ["part"]),
        ],
        "body",
        [vi("sum_in", TensorProto.FLOAT, [2]), vi("item", TensorProto.FLOAT, [2])],
        [vi("sum_out", TensorProto.FLOAT, [2]), vi("part", TensorProto.FLOAT, [2])],
    )
    node = helper.make_node(
        "Scan", ["start", "x"], ["total", "parts"], body=body, num_scan_inputs=1, **attributes
    )
    graph = helper.make_graph(
        [node],
        "g",
        [vi("start", TensorProto.FLOAT, [2]), vi("x", TensorProto.FLOAT, [None, None])],
        [vi("total", TensorProto.FLOAT, [2]), vi("parts", TensorProto.FLOAT, [None, None])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_scan_forward(provide):
    provide()
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    total, parts = run(scan_model(), {"start": np.zeros(2, np.float32), "x": x})
    np.testing.assert_array_equal(total, [9, 12])
    np.testing.assert_array_equal(parts, [[1, 2], [4, 6], [9, 12]])


def test_scan_reversed_along_other_axes(provide):
    provide()
    x = np.array([[1, 3, 5], [2, 4, 6]], np.float32)
    model = scan_model(
        scan_input_axes=[-1],
        scan_output_axes=[1],
        scan_input_directions=[1],
        scan_output_directions=[1],
    )
    total, parts = run(model, {"start": np.zeros(2, np.float32), "x": x})
    np.testing.assert_array_equal(total, [9, 12])
    # rounds see 5,6 then 3,4 then 1,2; outputs are stored last first
    np.testing.assert_array_equal(parts, [[9, 8, 5], [12, 10, 6]])


def test_scan_of_nothing(provide):
    provide()
    total, parts = run(
        scan_model(), {"start": np.ones(2, np.float32), "x": np.empty((0, 2), np.float32)}
    )
    np.testing.assert_array_equal(total, [1, 1])
    assert parts.shape == (0, 2)


def test_nested_loops_capture_from_two_levels(provide):
    """y = sum over i<m of sum over j<i of (x + i)."""
    vi = helper.make_tensor_value_info
    inner = helper.make_graph(
        [
            helper.make_node("Add", ["a_in", "step"], ["a_out"]),
            helper.make_node("Identity", ["jc_in"], ["jc_out"]),
        ],
        "inner",
        [
            vi("j", TensorProto.INT64, []),
            vi("jc_in", TensorProto.BOOL, []),
            vi("a_in", TensorProto.FLOAT, []),
        ],
        [vi("jc_out", TensorProto.BOOL, []), vi("a_out", TensorProto.FLOAT, [])],
    )
    outer = helper.make_graph(
        [
            helper.make_node("Cast", ["i"], ["fi"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["x", "fi"], ["step"]),
            helper.make_node("Loop", ["i", "", "s_in"], ["s_out"], body=inner),
            helper.make_node("Identity", ["ic_in"], ["ic_out"]),
        ],
        "outer",
        [
            vi("i", TensorProto.INT64, []),
            vi("ic_in", TensorProto.BOOL, []),
            vi("s_in", TensorProto.FLOAT, []),
        ],
        [vi("ic_out", TensorProto.BOOL, []), vi("s_out", TensorProto.FLOAT, [])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["m", "", "zero"], ["y"], body=outer)],
        "g",
        [vi("m", TensorProto.INT64, []), vi("x", TensorProto.FLOAT, [])],
        [vi("y", TensorProto.FLOAT, [])],
        [helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    provide()
    (y,) = run(model, {"m": np.array(4, np.int64), "x": np.array(0.5, np.float32)})
    assert y == sum(0.5 + i for i in range(4) for _ in range(i))


def test_bodies_are_placed_like_graphs(provide):
    provide("fast", {"Mul"})
    provide("cpu")
    with InferenceSession(parser.parse_model(IF_MODEL), providers=["fast", "cpu"]) as session:
        nodes = session.get_placement().nodes
        (scope,) = (name for name in nodes if name.endswith("then_branch"))
        assert [p.provider for p in nodes[scope]] == ["fast"]
        assert any(p.provider == "core" and p.op_type == "If" for p in nodes[""])


NO_ROUNDS = """
<ir_version: 8, opset_import: ["" : 17]>
g (int64 m, float[N] x) => (float[N] last, float[R, K, 3] rows)
{
  last, rows = Loop (m, , x) <body = b
    (int64 i, bool go, float[M] s) => (bool go, float[M] t, float[2, 3] row) {
      t = Neg(s)
      row = Reshape(x, shape)
    }>
}
"""


@pytest.mark.parametrize("level", [0, 99])
def test_without_rounds_lengths_come_from_what_the_body_declares(provide, level):
    """Inference can't tell [2, 3], because the shape is an input that may be overridden."""
    model = parser.parse_model(NO_ROUNDS)
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [2, 3])
    model.graph.initializer.append(shape)
    model.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [2]))
    options = SessionOptions()
    options.graph_optimization_level = level
    provide()
    x = np.arange(6, dtype=np.float32)
    for trips in (0, 2):
        feeds = {"m": np.array(trips), "x": x}
        _, rows = run(model, feeds, sess_options=options)
        assert (rows.shape, rows.dtype) == ((trips, 2, 3), np.float32)


def scan_8(*, lengths, states=(2, 4), sequence=(2, 3, 4)):
    """Scan of operator set 8: s = s + e; gives the last s and each -s."""
    vi = helper.make_tensor_value_info
    float_ = TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Neg", ["t"], ["o"])],
        "body",
        [vi("s", float_, [4]), vi("e", float_, [4])],
        [vi("t", float_, [4]), vi("o", float_, [4])],
    )
    scan = helper.make_node("Scan", ["l", "s", "x"], ["last", "all"], body=body, num_scan_inputs=1)
    graph = helper.make_graph(
        [scan],
        "g",
        [
            vi("l", TensorProto.INT64, [None]),
            vi("s", float_, [None] * len(states)),
            vi("x", float_, [None] * len(sequence)),
        ],
        [vi("last", float_, None), vi("all", float_, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=8)
    feeds = {
        "l": np.array(lengths, np.int64),
        "s": np.zeros(states, np.float32),
        "x": np.ones(sequence, np.float32),
    }
    return run(model, feeds)


def test_scan_8_fills_short_sequences_up_with_zeros(provide):
    provide()
    last, rounds = scan_8(lengths=[3, 1])
    np.testing.assert_array_equal(last[:, 0], [3, 1])
    np.testing.assert_array_equal(rounds[:, :, 0], [[-1, -2, -3], [-1, 0, 0]])


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"lengths": [3]}, r"sequence_lens.*2 lengths, one per batch; got \(1,\)"),
        ({"lengths": [3, 4]}, r"sequence_lens.*expected 0\.\.3; got 4"),
        ({"lengths": [1, 1], "sequence": (2,)}, "a batch axis, then in scan inputs a sequence"),
        ({"lengths": [1, 1], "states": ()}, "a batch axis, then in scan inputs a sequence axis"),
        ({"lengths": [1, 1], "states": (3, 4)}, r"one batch size above 0; got \[2, 3\]"),
    ],
)
def test_scan_8_says_which_input_does_not_fit(provide, shapes, words):
    provide()
    with pytest.raises(RunError, match=words):
        scan_8(**shapes)


@pytest.mark.parametrize(
    ("attributes", "error", "words"),
    [
        ({"scan_input_axes": [0, 1]}, InvalidModelError, "scan_input_axes.*expected 1 entries"),
        ({"scan_output_axes": [0, 0]}, InvalidModelError, "scan_output_axes.*expected 1 entries"),
        ({"scan_input_directions": [0, 1]}, InvalidModelError, "directions.*expected 1 entries"),
        ({"scan_output_axes": [5]}, RunError, "axis of a scan output.*5"),
        ({"scan_input_axes": [5]}, RunError, "scan axis.*5"),
    ],
)
def test_axes_of_scan_that_do_not_fit(provide, attributes, error, words):
    vi = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Neg", ["e"], ["o"])],
        "body",
        [vi("e", TensorProto.FLOAT, None)],
        [vi("o", TensorProto.FLOAT, None)],
    )
    scan = helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1, **attributes)
    graph = helper.make_graph(
        [scan], "g", [vi("x", TensorProto.FLOAT, [3, 4])], [vi("y", TensorProto.FLOAT, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    provide()
    with pytest.raises(error, match=words):
        run(model, {"x": np.ones((3, 4), np.float32)})
