"""Operators that nobody runs become the function their schema has; others stay whole."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import PlacementError

GELU = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[4] x) => (float[4] y) { y = Gelu(x) }
"""
X = np.array([-1, 0, 0.5, 3], np.float32)
RIGHT = [-0.15865525, 0.0, 0.34573123, 2.9959503]  # x * Phi(x), Phi the normal distribution
PARTS = {"CastLike", "Cast", "Sqrt", "Div", "Erf", "Sum", "Mul", "Identity"}


def placed(session: InferenceSession) -> dict[str, str]:
    return {p.op_type: p.provider for p in session.get_placement().nodes[""]}


@pytest.mark.parametrize("level", [0, 99])
def test_a_function_nobody_has_is_expanded(provide, level):
    provide("cpu", PARTS)
    options = SessionOptions()
    options.graph_optimization_level = level
    with InferenceSession(parser.parse_model(GELU), options, providers=["cpu"]) as session:
        assert "Gelu" not in placed(session)
        assert placed(session)["Erf"] == "cpu"
        np.testing.assert_allclose(session.run(None, {"x": X})[0], RIGHT, rtol=1e-5)


def test_a_function_that_somebody_has_stays_whole(provide):
    provide("fast", PARTS)
    provide("cpu")
    with InferenceSession(parser.parse_model(GELU), providers=["fast", "cpu"]) as session:
        assert placed(session) == {"Gelu": "cpu"}


def test_a_function_whose_parts_nobody_has_is_an_error(provide):
    provide("cpu", {"Relu"})
    with pytest.raises(PlacementError, match="Gelu"):
        InferenceSession(parser.parse_model(GELU), providers=["cpu"])


def sequence_map_model():
    """Two maps over one sequence whose bodies use equal names, and capture an outer value."""
    vi = helper.make_tensor_value_info

    def body(op_type: str):
        return helper.make_graph(
            [helper.make_node(op_type, ["item", "w"], ["made"])],
            "body",
            [vi("item", TensorProto.FLOAT, [2])],
            [vi("made", TensorProto.FLOAT, [2])],
        )

    graph = helper.make_graph(
        [
            helper.make_node("SequenceConstruct", ["x", "w", "x"], ["s"]),
            helper.make_node("SequenceMap", ["s"], ["added"], body=body("Add")),
            helper.make_node("SequenceMap", ["added"], ["made"], body=body("Mul")),
            helper.make_node("ConcatFromSequence", ["made"], ["y"], axis=0, new_axis=1),
        ],
        "maps",
        [vi("x", TensorProto.FLOAT, [2]), vi("w", TensorProto.FLOAT, [2])],
        [vi("y", TensorProto.FLOAT, [None, 2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("level", [0, 99])
def test_sequence_map_runs_as_a_loop(provide, level):
    provide()
    options = SessionOptions()
    options.graph_optimization_level = level
    x, w = np.array([1, 2], np.float32), np.array([10, 100], np.float32)
    with InferenceSession(sequence_map_model(), options, providers=["cpu"]) as session:
        (y,) = session.run(None, {"x": x, "w": w})
    np.testing.assert_array_equal(y, [(v + w) * w for v in (x, w, x)])


def test_a_function_inside_a_body_is_expanded(provide):
    text = """
    <ir_version: 10, opset_import: ["" : 20]>
    g (bool c, float[4] x) => (float[4] y)
    {
      y = If(c) <
        then_branch = a () => (float[4] t) { t = Gelu(x) },
        else_branch = b () => (float[4] e) { e = Erf(x) }
      >
    }
    """
    provide("cpu", PARTS)
    with InferenceSession(parser.parse_model(text), providers=["cpu"]) as session:
        (y,) = session.run(None, {"c": np.array(True), "x": X})
    np.testing.assert_allclose(y, RIGHT, rtol=1e-5)
