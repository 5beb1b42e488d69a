"""Faults that widely used runtimes had in moving elements, in loops and in optimising."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fault_models import FLOATS, f32, i64, make_model, one, run
from onnx import helper

from ep_core import GraphOptimizationLevel, InferenceSession, SessionOptions
from ep_core.errors import EpError

NAN = math.nan
INF = math.inf


X23 = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize("opset", [11, 24])
def test_sequences_of_strings_lose_the_split_axis(opset):
    words = np.array(["a", "bc", "def"], dtype=object)
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
        helper.make_node("SequenceAt", ["s", "first"], ["a"]),
        helper.make_node("SequenceAt", ["s", "last"], ["b"]),
        helper.make_node("SequenceLength", ["s"], ["n"]),
    ]
    constants = {"first": np.array(0, np.int64), "last": np.array(-1, np.int64)}
    a, b, count = run(nodes, {"x": words}, ["a", "b", "n"], opset, constants)
    assert (a.shape, a.item(), b.item(), count.item()) == ((), "a", "def", 3)
    table = np.array([["a", "b"], ["c", "d"]], dtype=object)
    for axis, keep, shape in ((0, 0, (2,)), (1, 0, (2,)), (1, 1, (2, 1)), (-1, 0, (2,))):
        nodes[0] = helper.make_node("SplitToSequence", ["x"], ["s"], axis=axis, keepdims=keep)
        a, b, _ = run(nodes, {"x": table}, ["a", "b", "n"], opset, constants)
        assert a.shape == shape
        assert a.reshape(-1).tolist() == (["a", "b"] if axis == 0 else ["a", "c"])


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8, np.bool_, np.float64])
@pytest.mark.parametrize("opset", [13, 18, 21])
def test_negative_pads_crop(dtype, opset):
    """Rows 1 and 2 with one column in front and two cut off behind."""
    x = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
    fill = np.array(1, dtype)
    found = one("Pad", {"x": x}, opset, {"p": i64(-1, 1, 0, -2), "v": fill})
    assert found.tolist() == [[1, *x[1, :2].tolist()], [1, *x[2, :2].tolist()]]
    found = one("Pad", {"x": x}, opset, {"p": i64(-1, -1, -1, -1)})
    assert found.tolist() == x[1:2, 1:3].tolist()


@pytest.mark.parametrize(
    ("mode", "pads", "expected"),
    [
        ("edge", [-2, 2], [2, 3, 4, 5, 5, 5]),
        ("edge", [2, -1], [0, 0, 0, 1, 2, 3, 4]),
        ("reflect", [-2, 2], [2, 3, 4, 5, 4, 3]),
        ("reflect", [-1, 3], [1, 2, 3, 4, 5, 4, 3, 2]),
        ("wrap", [-2, 2], [2, 3, 4, 5, 2, 3]),
        ("wrap", [2, -1], [3, 4, 0, 1, 2, 3, 4]),
    ],
)
def test_cropping_at_one_end_and_growing_at_the_other(mode, pads, expected):
    """0 1 2 3 4 5 is cropped first, and what is left grows."""
    found = one("Pad", {"x": f32(0, 1, 2, 3, 4, 5)}, 19, {"p": i64(*pads)}, mode=mode)
    assert found.tolist() == expected


def test_old_pad_attributes_crop_too():
    found = one("Pad", {"x": X23}, 2, pads=[0, -1, -1, 1], value=7.0)
    assert found.tolist() == [[2, 3, 7]]


@pytest.mark.parametrize("trip", [0, 1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
@pytest.mark.parametrize("opset", [11, 13, 16])
def test_loops_of_any_length(trip, dtype, opset):
    """The carried value doubles each time; the scan output collects it before that."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s_in", "s_in"], ["s_out"]),
            helper.make_node("Identity", ["c_in"], ["c_out"]),
            helper.make_node("Identity", ["s_in"], ["seen"]),
        ],
        "body",
        [info("i", 7, []), info("c_in", 9, []), info("s_in", kind, [2])],
        [info("c_out", 9, []), info("s_out", kind, [2]), info("seen", kind, [2])],
    )
    nodes = [
        helper.make_node("Loop", ["m", "go", "s0"], ["s", "scan"], body=body),
        helper.make_node("Add", ["s", "s0"], ["t"]),
    ]
    feeds = {"m": np.array(trip, np.int64), "go": np.array(True), "s0": np.array([1, 2], dtype)}
    last, scan, after = run(nodes, feeds, ["s", "scan", "t"], opset)
    assert last.tolist() == [2**trip, 2 * 2**trip]
    assert scan.shape == (trip, 2)
    assert scan.tolist() == [[2**i, 2 * 2**i] for i in range(trip)]
    assert scan.dtype == dtype
    assert after.tolist() == [1 + 2**trip, 2 + 2 * 2**trip]
    feeds["go"] = np.array(False)
    last, scan, _ = run(nodes, feeds, ["s", "scan", "t"], opset)
    assert (last.tolist(), scan.shape) == ([1, 2], (0, 2))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, -1])
def test_scattered_maxima_and_minima_propagate_nan(dtype, axis):
    x = np.array([1, NAN, 3, 4], dtype)
    feeds = {"x": x, "i": i64(0, 1, 2), "u": np.array([NAN, 5, 2], dtype)}
    for reduction, third in (("max", 3), ("min", 2)):
        found = one("ScatterElements", feeds, 18, axis=axis, reduction=reduction)
        np.testing.assert_array_equal(found.astype(np.float32), f32(NAN, NAN, third, 4))
        nd = {**feeds, "i": i64(0, 1, 2)[:, None]}
        found = one("ScatterND", nd, 18, reduction=reduction)
        np.testing.assert_array_equal(found.astype(np.float32), f32(NAN, NAN, third, 4))


def test_scattering_twice_into_one_place():
    feeds = {"x": f32(1, 1), "i": i64(0, 0, -1), "u": f32(5, NAN, 2)}
    for reduction in ("max", "min"):
        found = one("ScatterElements", feeds, 18, reduction=reduction)
        assert np.isnan(found[0])
    whole = {
        "x": np.array([1, 1], np.int32),
        "i": i64(0, 0, -1),
        "u": np.array([5, 7, 2], np.int32),
    }
    assert one("ScatterElements", whole, 18, reduction="add").tolist() == [13, 3]
    assert one("ScatterElements", whole, 18, reduction="mul").tolist() == [35, 2]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("opset", [11, 13, 18, 19])
def test_resize_to_one_with_pytorch_half_pixel(mode, opset):
    """pytorch_half_pixel puts the only sample of an axis at 0, so that it is the first pixel."""
    x = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    node = helper.make_node(
        "Resize", ["x", "roi", "scales", "size"], ["y"], mode=mode, nearest_mode="floor",
        coordinate_transformation_mode="pytorch_half_pixel",
    )  # fmt: skip
    nothing = np.zeros(0, np.float32)
    roi = {"roi": nothing, "scales": nothing}
    found = run([node], {"x": x}, ["y"], opset, {**roi, "size": i64(1, 1, 1, 1)})[0]
    assert found.tolist() == [[[[1]]]]
    # One row; along the columns half_pixel as usual: samples at 0.5 and 2.5.
    found = run([node], {"x": x}, ["y"], opset, {**roi, "size": i64(1, 1, 1, 2)})[0]
    middle = {"nearest": [1, 3], "linear": [1.5, 3.5]}
    if mode in middle:
        assert found.reshape(-1).tolist() == middle[mode]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16])
@pytest.mark.parametrize(("time_axis", "batch_axis"), [(0, 1), (1, 0)])
def test_lengths_of_reversed_sequences_must_fit(dtype, time_axis, batch_axis):
    x = np.arange(6).reshape(3, 2).astype(dtype)
    if time_axis == 1:
        x = x.T
    settings = {"time_axis": time_axis, "batch_axis": batch_axis}
    found = one("ReverseSequence", {"x": x, "n": i64(3, 1)}, 10, **settings)
    expected = np.array([[4, 1], [2, 3], [0, 5]]).astype(dtype)
    assert found.tolist() == (expected.T if time_axis == 1 else expected).tolist()
    for lengths in (i64(4, 1), i64(3, -1), i64(1, 2**40)):
        with pytest.raises(EpError, match="length"):
            one("ReverseSequence", {"x": x, "n": lengths}, 10, **settings)
    with pytest.raises(EpError):
        one("ReverseSequence", {"x": x, "n": i64(1, 1, 1)}, 10, **settings)


# ---------------------------------------------------------------- optimisation


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_neutral_arithmetic_between_identities(dtype):
    """x -> Identity; times 1 / 1; plus 0: the input, at every level of optimisation."""
    x = np.array([[1, -2], [3.5, 4]], dtype)
    nodes = [
        helper.make_node("Identity", ["x"], ["mid"]),
        helper.make_node("Div", ["c1", "c2"], ["one"]),
        helper.make_node("Mul", ["mid", "one"], ["w"]),
        helper.make_node("Add", ["w", "zero"], ["y"]),
    ]
    constants = {"c1": np.array(1, dtype), "c2": np.array(1, dtype), "zero": np.array(0, dtype)}
    model = make_model(nodes, {"x": x}, ["y"], 17, constants).SerializeToString()
    for level in GraphOptimizationLevel:
        settings = SessionOptions()
        settings.graph_optimization_level = level
        (found,) = InferenceSession(model, settings).run(None, {"x": x})
        assert found.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("op_type", "constant"),
    [("Mul", np.ones((2, 1, 2), np.float32)), ("Add", np.zeros((3, 2, 2), np.float32)),
     ("Sub", np.zeros((2, 2, 2), np.float32)), ("Div", np.ones((1, 2, 2), np.float32))],
)  # fmt: skip
def test_a_neutral_constant_may_still_change_the_shape(op_type, constant):
    x = f32(1, 2, 3, 4).reshape(2, 2)
    found = one(op_type, {"x": x}, 17, {"c": constant})
    assert (
        found.tolist() == np.broadcast_to(x, np.broadcast_shapes((2, 2), constant.shape)).tolist()
    )


def test_not_neutral_though_it_looks_like_it():
    """0 * x isn't 0 for NaN, x - x isn't 0, 0 - x isn't x, and 1 / x isn't x."""
    x = f32(NAN, INF, 2)
    zero, unit = {"c": f32(0)[0]}, {"c": f32(1)[0]}
    np.testing.assert_array_equal(one("Mul", {"x": x}, 17, zero), f32(NAN, NAN, 0))
    node = helper.make_node("Sub", ["x", "x"], ["y"])
    np.testing.assert_array_equal(run([node], {"x": x}, ["y"], 17)[0], f32(NAN, NAN, 0))
    node = helper.make_node("Sub", ["c", "x"], ["y"])
    np.testing.assert_array_equal(run([node], {"x": x}, ["y"], 17, zero)[0], f32(NAN, -INF, -2))
    node = helper.make_node("Div", ["c", "x"], ["y"])
    np.testing.assert_array_equal(run([node], {"x": x}, ["y"], 17, unit)[0], f32(NAN, 0, 0.5))
