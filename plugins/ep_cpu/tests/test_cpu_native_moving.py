"""Native operators that move elements, reductions, normalisation, and shapes that are computed."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_native import check_same, compile_model, model_of, needs_native, on_every_level, random
from onnx import helper

pytestmark = needs_native
node = helper.make_node


def integers(*values):
    return np.array(values, np.int64)


@on_every_level
@pytest.mark.parametrize("width", [1, 7, 16, 65, 384])
def test_layer_normalization(level, width):
    """Numbers far from 0 as well: the variance is that of the distances from the mean."""
    nodes = [node("LayerNormalization", ["x", "s", "b"], ["y"])]
    feeds = {"x": random(3, 5, width) + 100 * random(3, 5, 1)}
    constants = {"s": random(width), "b": random(width, seed=1)}
    check_same(nodes, feeds, level, constants, tolerance=3e-5)


@on_every_level
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("width", [1, 5, 16, 100])
def test_softmax(level, op_type, width):
    x = random(6, 3, width) * 30
    x[0, 0, 0] = -np.inf if width > 1 else 0
    check_same([node(op_type, ["x"], ["y"])], {"x": x}, level)


@on_every_level
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_softmax_over_other_axes(level, op_type, axis):
    native = check_same(
        [node(op_type, ["x"], ["y"], axis=axis)], {"x": random(3, 20, 5, 30)}, level
    )
    assert native.kinds == ["softmax"]


@on_every_level
@pytest.mark.parametrize(
    "op_type", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1"]
)
@pytest.mark.parametrize("axes", [(-1,), (1,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions(level, op_type, axes, keep):
    nodes = [node(op_type, ["x", "axes"], ["y"], keepdims=keep)]
    check_same(nodes, {"x": random(4, 9, 37)}, level, {"axes": integers(*axes)})


@on_every_level
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((5, 7), (1, 0)),
        ((40, 33), (1, 0)),
        ((2, 3, 4, 5), (0, 2, 1, 3)),
        ((2, 17, 18, 19), (0, 2, 3, 1)),
        ((2, 17, 18, 19), (0, 3, 1, 2)),
        ((2, 3, 4, 5), (3, 2, 1, 0)),
        ((2, 3, 4, 5), (3, 1, 0, 2)),
        ((1, 3, 1, 5), (2, 3, 0, 1)),
        ((0, 3), (1, 0)),
    ],
)
def test_transposes(level, shape, order):
    for x in (random(*shape), random(*shape).astype(np.float64)):
        check_same([node("Transpose", ["x"], ["y"], perm=order)], {"x": x}, level)


@on_every_level
@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((1,), (5,), (0,), (1,)),
        ((0, 2), (100, -1), (1, 2), (2, 1)),
        ((-1,), (-100,), (1,), (-2,)),
        ((5,), (2,), (0,), (1,)),
        ((3, 1), (0, 6), (-1, 0), (-1, 3)),
    ],
)
def test_slices(level, starts, ends, axes, steps):
    constants = {
        "starts": integers(*starts),
        "ends": integers(*ends),
        "axes": integers(*axes),
        "steps": integers(*steps),
    }
    check_same([node("Slice", ["x", *constants], ["y"])], {"x": random(7, 8, 9)}, level, constants)


@on_every_level
def test_gather_concat_split_expand(level):
    nodes = [
        node("Gather", ["table", "i"], ["g"]),
        node("Split", ["g"], ["p", "q"], axis=2, num_outputs=2),
        node("Concat", ["q", "p", "q"], ["c"], axis=-1),
        node("Expand", ["c", "shape"], ["y"]),
    ]
    constants = {"table": random(10, 8), "shape": integers(3, 1, 1, 1)}
    check_same(nodes, {"i": np.array([[0, -1], [9, 3]], np.int64)}, level, constants)


@on_every_level
def test_an_index_out_of_range_is_reported_with_the_node(level):
    from ep_core.errors import RunError

    nodes = [node("Gather", ["table", "i"], ["y"], name="look_up")]
    model = model_of(nodes, {"i": integers(0)}, {"table": random(10, 8)})
    compiled = compile_model(model, level)
    with pytest.raises(RunError, match="look_up"):
        compiled.run({"i": integers(10)})
    assert compiled.run({"i": integers(3)})[0].shape == (1, 8)


@on_every_level
def test_shapes_that_a_model_computes_are_worked_out_while_planning(level):
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Mul", ["n", "two"], ["m"]),
        node("Unsqueeze", ["m", "zeros"], ["mm"]),
        node("Concat", ["mm", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["r"]),
        node("Add", ["r", "one"], ["y"]),
    ]
    constants = {
        "zero": np.array(0, np.int64),
        "two": np.array(2, np.int64),
        "zeros": integers(0),
        "rest": integers(-1),
        "one": np.array(1, np.float32),
    }
    for count in (1, 3):
        native = check_same(
            nodes, {"x": random(count, 6)}, level, constants, shapes={"x": ["n", 6]}
        )
        assert len(native.segments) == 1


@on_every_level
def test_inputs_of_any_layout(level):
    x = random(6, 8)
    nodes = [node("Relu", ["x"], ["y"])]
    compiled = compile_model(model_of(nodes, {"x": x.T}), level)
    for view in (x.T, np.asfortranarray(x.T), np.ascontiguousarray(x.T), x[::-1].T):
        np.testing.assert_array_equal(compiled.run({"x": view})[0], np.maximum(view, 0))
    assert not compiled.refused


@on_every_level
def test_views_and_inputs_share_no_memory(level):
    x = random(6, 8)
    nodes = [
        node("Reshape", ["x", "s"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("Reshape", ["r", "t"], ["y"]),
    ]
    constants = {"s": integers(48), "t": integers(8, 6)}
    native = check_same(nodes, {"x": x}, level, constants, outputs=("a", "r", "y"))
    found = native.run({"x": x})
    for i, one in enumerate(found):
        assert not np.may_share_memory(one, x)
        for other in found[i + 1 :]:
            assert not np.may_share_memory(one, other)


@on_every_level
def test_wrong_shapes_are_left_to_the_other_kernels(level):
    from ep_core.errors import RunError

    nodes = [node("MatMul", ["a", "b"], ["y"], name="product")]
    feeds = {"a": random(2, 3), "b": random(3, 4)}
    model = model_of(nodes, feeds, shapes={"a": ["n", "k"], "b": ["k", "m"]})
    compiled = compile_model(model, level)
    with pytest.raises(RunError, match="product"):
        compiled.run({"a": random(2, 3), "b": random(4, 4)})
    assert compiled.refused
