"""Native operators on other types than float32, and masks that are made of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from cpu_native import check_same, needs_native, on_every_level, random
from onnx import helper

pytestmark = needs_native
node = helper.make_node


def behind_a_product(nodes, feeds, level, constants=None):
    """Native only pays beside something that computes, so a product goes along."""
    weights = {**(constants or {}), "weights": random(4, 4), "rows": random(2, 4)}
    product = node("MatMul", ["rows2", "weights"], ["z"])
    shifted = node("Add", ["rows", "shift"], ["rows2"])
    return check_same(
        [*nodes, shifted, product],
        {**feeds, "shift": random(1, 4)},
        level,
        weights,
        outputs=("y", "z"),
    )


@on_every_level
@pytest.mark.parametrize("op_type", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int32])
def test_comparisons(level, op_type, kind):
    a = np.array([[1, 2, 3], [3, 2, -1]]).astype(kind)
    feeds = {"a": a, "b": a[:1, ::-1].copy()}
    native = behind_a_product([node(op_type, ["a", "b"], ["y"])], feeds, level)
    assert "comparison" in native.kinds


@on_every_level
def test_comparisons_with_nan(level):
    feeds = {"a": np.array([np.nan, 1], np.float32), "b": np.array([np.nan, np.nan], np.float32)}
    for op_type in ("Equal", "GreaterOrEqual"):
        behind_a_product([node(op_type, ["a", "b"], ["y"])], feeds, level)


@on_every_level
@pytest.mark.parametrize("op_type", ["And", "Or", "Xor"])
def test_logic(level, op_type):
    zero = {"zero": np.array(0, np.float32)}
    nodes = [
        node("Greater", ["a", "zero"], ["p"]),
        node("Less", ["b", "zero"], ["q"]),
        node("Not", ["q"], ["r"]),
        node(op_type, ["p", "r"], ["y"]),
    ]
    feeds = {"a": random(5, 1), "b": random(1, 6)}
    native = behind_a_product(nodes, feeds, level, zero)
    assert {"logic", "test"} <= set(native.kinds)


@on_every_level
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_integer_arithmetic(level, op_type, kind):
    a = np.array([[7, -7, np.iinfo(kind).max], [5, -9, np.iinfo(kind).min]], kind)
    b = np.array([2, -3, 5], kind)
    native = behind_a_product([node(op_type, ["a", "b"], ["y"])], {"a": a, "b": b}, level)
    assert "integer_arithmetic" in native.kinds


CASTS = [
    (np.int64, onnx.TensorProto.FLOAT),
    (np.int64, onnx.TensorProto.INT32),
    (np.int64, onnx.TensorProto.BOOL),
    (np.int32, onnx.TensorProto.INT64),
    (np.float32, onnx.TensorProto.DOUBLE),
    (np.float64, onnx.TensorProto.FLOAT),
    (np.float32, onnx.TensorProto.BOOL),
    (np.float32, onnx.TensorProto.INT64),
    (np.float32, onnx.TensorProto.INT32),
]


@on_every_level
@pytest.mark.parametrize(("kind", "to"), CASTS)
def test_casts(level, kind, to):
    x = np.array([0, 1, -1, 2, 255, 256, -129, 2**24 + 1, 0.5, -2.5]).astype(kind)
    native = behind_a_product([node("Cast", ["x"], ["y"], to=to)], {"x": x}, level)
    assert "cast" in native.kinds


@on_every_level
def test_where_broadcasts(level):
    nodes = [
        node("IsNaN", ["x"], ["nan"]),
        node("Where", ["nan", "other", "x"], ["y"]),
    ]
    x = random(3, 4)
    x[1, 2] = np.nan
    native = behind_a_product(nodes, {"x": x, "other": random(2, 1, 4)}, level)
    assert "where" in native.kinds


@on_every_level
def test_padding(level):
    constants = {"pads": np.array([0, 1, 2, 2, 0, 3], np.int64), "value": np.array(7, np.float32)}
    for names in (["pads"], ["pads", "value"]):
        nodes = [node("Pad", ["x", *names], ["y"])]
        native = behind_a_product(nodes, {"x": random(2, 3, 4)}, level, constants)
        assert "pad" in native.kinds
    constants = {"pads": np.array([2, 1], np.int64), "axes": np.array([-1], np.int64)}
    nodes = [node("Pad", ["x", "pads", "", "axes"], ["y"])]
    behind_a_product(nodes, {"x": random(2, 3, 4)}, level, constants)


@on_every_level
def test_a_causal_mask_made_of_ranges(level):
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Squeeze", ["s"], ["n"]),
        node("Range", ["zero", "n", "one"], ["r"]),
        node("Unsqueeze", ["r", "ones"], ["column"]),
        node("GreaterOrEqual", ["column", "r"], ["seen"]),
        node("Concat", ["s", "s"], ["square"], axis=0),
        node("ConstantOfShape", ["square"], ["zeros"]),
        node("Where", ["seen", "zeros", "low"], ["mask"]),
        node("MatMul", ["x", "weights"], ["p"]),
        node("Add", ["p", "mask"], ["y"]),
    ]
    constants = {
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "ones": np.array([1], np.int64),
        "low": np.array(-1e9, np.float32),
        "weights": random(5, 7),
    }
    native = check_same(nodes, {"x": random(7, 5)}, level, constants, shapes={"x": ["n", 5]})
    assert len(native.segments) == 1


@on_every_level
@pytest.mark.parametrize("bounds", [(1, 8, 2), (5, -3, -3), (3, 3, 1), (0, -4, 1), (0, 7, 7)])
@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_ranges(level, bounds, kind):
    constants = {name: np.array(v, kind) for name, v in zip("abc", bounds, strict=True)}
    native = behind_a_product([node("Range", ["a", "b", "c"], ["y"])], {}, level, constants)
    assert "range" in native.kinds
