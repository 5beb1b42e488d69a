"""Native operations on 8-bit integers, against the kernels in numpy and against integer sums."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_native import (
    Compiled,
    check_same,
    compile_model,
    model_of,
    needs_native,
    on_every_level,
    random,
)
from onnx import helper

pytestmark = needs_native
node = helper.make_node

BYTES = (np.uint8, np.int8)
signs = pytest.mark.parametrize("left", BYTES)
weights_signs = pytest.mark.parametrize("right", BYTES)


def integers(dtype, *shape, seed=0):
    """Values of the whole range, its ends among them."""
    info = np.iinfo(dtype)
    values = np.random.default_rng([seed, *shape]).integers(info.min, info.max + 1, shape)
    flat = values.reshape(-1)
    flat[: flat.size // 8] = info.min
    flat[flat.size // 8 : flat.size // 4] = info.max
    return values.astype(dtype)


def scale(value):
    return np.array(value, np.float32)


def check_exact(nodes, feeds, level, constants, kinds=None, outputs=("y",)) -> Compiled:
    native = check_same(nodes, feeds, level, constants, outputs=outputs, tolerance=0.0)
    if kinds is not None:
        assert native.kinds == kinds
    return native


def check_within_a_step(nodes, feeds, level, constants, kinds, steps=1):
    """Sums in float32 round where integers don't, so that halves may go either way."""
    model = model_of(nodes, feeds, constants)
    (expected,) = compile_model(model, "none").run(feeds)
    native = compile_model(model, level)
    (found,) = native.run(feeds)
    (again,) = compile_model(model, level, threads=3).run(feeds)
    assert not native.refused
    assert native.kinds == kinds
    assert found.dtype == expected.dtype
    difference = np.abs(found.astype(np.int64) - expected.astype(np.int64))
    assert difference.max(initial=0) <= steps
    assert (difference != 0).mean() < 0.02
    assert len(np.unique(expected)) > 10
    np.testing.assert_array_equal(found, again)


# ---------------------------------------------------------------- exact products


@on_every_level
@signs
@weights_signs
@pytest.mark.parametrize("columns", [1, 5, 16, 17, 48, 63, 64, 65, 130])
def test_every_edge_of_a_tile(level, left, right, columns):
    nodes = [node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])]
    for rows in (1, 2, 5, 6, 7, 13):
        for depth in (1, 3, 4, 7, 64):
            a, b = integers(left, rows, depth), integers(right, depth, columns)
            zeros = {"az": np.iinfo(left).max, "bz": np.iinfo(right).min}
            constants = {
                "b": b,
                "az": np.array(zeros["az"], left),
                "bz": np.array(zeros["bz"], right),
            }
            native = compile_model(model_of(nodes, {"a": a}, constants), level)
            (found,) = native.run({"a": a})
            wide = a.astype(np.int64) - zeros["az"], b.astype(np.int64) - zeros["bz"]
            np.testing.assert_array_equal(found, (wide[0] @ wide[1]).astype(np.int32))
            assert native.kinds == ["integer_matmul"]
            assert not native.refused


@on_every_level
@signs
@weights_signs
def test_long_sums_of_extreme_values_do_not_saturate(level, left, right):
    """-128 times 255, 9000 times: pairs of products go beyond 16 bits."""
    nodes = [node("MatMulInteger", ["a", "b"], ["y"])]
    for a_value in (np.iinfo(left).min, np.iinfo(left).max):
        for b_value in (np.iinfo(right).min, np.iinfo(right).max):
            a = np.full((7, 9000), a_value, left)
            b = np.full((9000, 70), b_value, right)
            native = compile_model(model_of(nodes, {"a": a}, {"b": b}), level)
            (found,) = native.run({"a": a})
            assert (found == int(a_value) * int(b_value) * 9000).all()


@on_every_level
@signs
@weights_signs
def test_a_zero_point_per_column(level, left, right):
    nodes = [node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])]
    constants = {
        "b": integers(right, 30, 33),
        "az": np.array([7], left),
        "bz": integers(right, 33, seed=3),
    }
    check_exact(nodes, {"a": integers(left, 2, 200, 30)}, level, constants, ["integer_matmul"])


@on_every_level
def test_a_zero_point_that_comes_at_the_run(level):
    nodes = [node("MatMulInteger", ["a", "b", "az"], ["y"])]
    feeds = {"a": integers(np.uint8, 9, 30), "az": np.array(200, np.uint8)}
    native = check_exact(nodes, feeds, level, {"b": integers(np.int8, 30, 33)})
    other = {**feeds, "az": np.array(3, np.uint8)}
    wide = other["a"].astype(np.int64) - 3
    expected = wide @ integers(np.int8, 30, 33).astype(np.int64)
    np.testing.assert_array_equal(native.run(other)[0], expected)


@on_every_level
def test_zero_points_by_row_are_for_the_other_kernels(level):
    nodes = [node("MatMulInteger", ["a", "b", "az"], ["y"])]
    feeds = {"a": integers(np.uint8, 9, 30)}
    constants = {"b": integers(np.int8, 30, 33), "az": integers(np.uint8, 9)}
    model = model_of(nodes, feeds, constants)
    native = compile_model(model, level)
    np.testing.assert_array_equal(native.run(feeds)[0], compile_model(model, "none").run(feeds)[0])
    assert native.refused


@on_every_level
@signs
@weights_signs
@pytest.mark.parametrize(
    ("shape", "weights", "attributes"),
    [
        ((2, 3, 9, 8), (5, 3, 3, 3), {"pads": [1, 2, 0, 1], "strides": [2, 1]}),
        ((1, 20, 7, 7), (70, 20, 3, 3), {"pads": [1, 1, 1, 1], "dilations": [2, 2]}),
        ((2, 19, 5, 6), (33, 19, 1, 1), {}),
        ((1, 64, 6, 6), (64, 64, 1, 1), {"strides": [2, 2]}),
        ((2, 5, 30), (7, 5, 4), {"pads": [3, 1]}),
        ((1, 2, 5, 5), (3, 2, 1, 1), {"pads": [1, 1, 1, 1]}),
    ],
)
def test_integer_convolutions(level, left, right, shape, weights, attributes):
    """Padding counts as the zero point."""
    nodes = [node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **attributes)]
    constants = {
        "w": integers(right, *weights),
        "xz": np.array(np.iinfo(left).max - 3, left),
        "wz": np.array(np.iinfo(right).min + 5, right),
    }
    native = check_exact(nodes, {"x": integers(left, *shape)}, level, constants)
    assert "integer_conv" in native.kinds


# ---------------------------------------------------------------- quantised results


@on_every_level
@signs
@weights_signs
@pytest.mark.parametrize("result", BYTES)
def test_quantised_matrices(level, left, right, result):
    nodes = [node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])]
    constants = {
        "as": scale(0.02),
        "az": np.array(np.iinfo(left).max - 100, left),
        "b": integers(right, 40, 70),
        "bs": (np.arange(70) % 7 + 1).astype(np.float32) / 100,
        "bz": np.array(np.iinfo(right).min + 120, right),
        "ys": scale(1.7),
        "yz": np.array(9, result),
    }
    check_within_a_step(
        nodes, {"a": integers(left, 3, 50, 40)}, level, constants, ["integer_matmul"]
    )


@on_every_level
@pytest.mark.parametrize("result", BYTES)
def test_halves_round_to_even(level, result):
    nodes = [node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])]
    constants = {
        "as": scale(0.5),
        "az": np.array(0, np.int8),
        "b": np.ones((1, 3), np.int8),
        "bs": scale(1.0),
        "bz": np.array(0, np.int8),
        "ys": scale(1.0),
        "yz": np.array(4, result),
    }
    feeds = {"a": np.arange(-128, 128).astype(np.int8)[:, None]}
    native = check_exact(nodes, feeds, level, constants)
    column = native.run(feeds)[0][:, 0].astype(int)
    low, high = np.iinfo(result).min, np.iinfo(result).max
    expected = np.clip(np.rint(np.arange(-128, 128) / 2) + 4, low, high)
    np.testing.assert_array_equal(column, expected)


@on_every_level
@signs
@pytest.mark.parametrize("bias", [False, True])
def test_quantised_convolutions(level, left, bias):
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", *(["b"] if bias else [])]
    nodes = [node("QLinearConv", names, ["y"], pads=[1, 1, 1, 1])]
    constants = {
        "xs": scale(0.02),
        "xz": np.array(17, left),
        "w": integers(np.int8, 24, 20, 3, 3),
        "ws": (np.arange(24) % 5 + 1).astype(np.float32) / 300,
        "wz": np.zeros(24, np.int8),
        "ys": scale(1.3),
        "yz": np.array(100, np.uint8),
    }
    if bias:
        constants["b"] = np.random.default_rng(0).integers(-90000, 90000, 24).astype(np.int32)
    kinds = ["transpose", "integer_conv", "transpose"]
    check_within_a_step(nodes, {"x": integers(left, 2, 20, 9, 9)}, level, constants, kinds)


# ---------------------------------------------------------------- to 8 bits and back


@on_every_level
@pytest.mark.parametrize("result", BYTES)
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_conversions(level, result, axis):
    x = random(4, 5, 19) * 40
    x[0, 0, :6] = [0.5, 1.5, 2.5, -0.5, 1e30, -1e30]
    if axis is None:
        constants = {"s": scale(1.0), "z": np.array(5, result)}
        attributes = {}
    else:
        count = x.shape[axis]
        constants = {
            "s": (np.arange(count) + 1).astype(np.float32) / 4,
            "z": integers(result, count),
        }
        attributes = {"axis": axis}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    check_exact(nodes, {"x": x}, level, constants, ["quantise", "dequantise"], outputs=("y", "q"))


@on_every_level
def test_wide_integers_to_floats(level):
    values = np.array([2**31 - 1, -(2**31), 0, 123456789], np.int32)
    nodes = [node("DequantizeLinear", ["x", "s"], ["y"])]
    check_exact(nodes, {"x": values}, level, {"s": scale(0.37)}, ["dequantise"])


@on_every_level
@pytest.mark.parametrize("kind", ["both", "positive", "negative", "zero", "long"])
def test_scales_that_come_of_the_values(level, kind):
    x = {
        "both": random(7, 19),
        "positive": np.abs(random(7, 19)) + 3,
        "negative": -np.abs(random(7, 19)) - 3,
        "zero": np.zeros((7, 19), np.float32),
        "long": random(5, 40000),
    }[kind]
    nodes = [node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])]
    check_exact(nodes, {"x": x}, level, {}, ["dynamic_quantise"], outputs=("y", "s", "z"))


@on_every_level
def test_values_that_are_not_finite_are_for_the_other_kernels(level):
    from ep_core.errors import RunError

    feeds = {"x": np.array([1, np.nan, 3], np.float32)}
    nodes = [node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])]
    native = compile_model(model_of(nodes, feeds, outputs=("y", "s", "z")), level)
    with pytest.raises(RunError):
        native.run(feeds)


# ---------------------------------------------------------------- groups


def conversion(name, suffix):
    return node("DequantizeLinear", [name, name + "s", name + "z"], [name + suffix])


@on_every_level
@signs
@pytest.mark.parametrize("per_filter", [False, True])
@pytest.mark.parametrize("between", [None, "Relu", "Clip"])
def test_a_convolution_between_conversions(level, left, per_filter, between):
    nodes = [
        conversion("x", "f"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        node("DequantizeLinear", ["b", "bs"], ["bf"], axis=0),
        node("Conv", ["xf", "wf", "bf"], ["c"], pads=[1, 1, 1, 1]),
    ]
    last = "c"
    if between is not None:
        inputs = ["c", "low", "high"] if between == "Clip" else ["c"]
        nodes.append(node(between, inputs, ["r"]))
        last = "r"
    nodes.append(node("QuantizeLinear", [last, "ys", "yz"], ["y"]))
    ws = np.arange(1, 25) / 3000 if per_filter else np.array(1 / 300)
    constants = {
        "xs": scale(0.02),
        "xz": np.array(17, left),
        "w": integers(np.int8, 24, 20, 3, 3),
        "ws": ws.astype(np.float32),
        "wz": np.zeros(ws.shape, np.int8),
        "b": np.random.default_rng(0).integers(-9000, 9000, 24).astype(np.int32),
        "bs": (ws * 0.02).astype(np.float32),
        "ys": scale(0.3),
        "yz": np.array(30, np.uint8),
        "low": scale(-3.0),
        "high": scale(41.0),
    }
    feeds = {"x": integers(left, 2, 20, 9, 9)}
    kinds = ["transpose", "integer_conv", "transpose"]
    check_within_a_step(nodes, feeds, level, constants, kinds)


@on_every_level
@signs
@pytest.mark.parametrize("relu", [False, True])
def test_a_residual_is_added_where_the_product_is_rounded(level, left, relu):
    nodes = [
        conversion("x", "f"),
        node("DequantizeLinear", ["w", "ws"], ["wf"]),
        node("Conv", ["xf", "wf"], ["c"]),
        node("QuantizeLinear", ["c", "cs", "cz"], ["cq"]),
        node("DequantizeLinear", ["cq", "cs", "cz"], ["cf"]),
        node("Add", ["cf", "xf"], ["s"]),
        *([node("Relu", ["s"], ["r"])] if relu else []),
        node("QuantizeLinear", ["r" if relu else "s", "ys", "yz"], ["y"]),
    ]
    constants = {
        "xs": scale(0.05),
        "xz": np.array(17, left),
        "w": integers(np.int8, 20, 20, 1, 1),
        "ws": scale(0.004),
        "cs": scale(0.11),
        "cz": np.array(-20, np.int8),
        "ys": scale(0.13),
        "yz": np.array(60, np.uint8),
    }
    feeds = {"x": integers(left, 2, 20, 9, 9)}
    kinds = ["transpose", "integer_conv", "transpose"]
    check_within_a_step(nodes, feeds, level, constants, kinds, steps=2)


@on_every_level
@signs
@weights_signs
def test_sums_of_quantised_tensors(level, left, right):
    nodes = [
        conversion("a", "f"),
        conversion("b", "f"),
        node("Add", ["af", "bf"], ["s"]),
        node("Relu", ["s"], ["r"]),
        node("QuantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    constants = {
        "as": scale(0.05),
        "az": np.array(17, left),
        "bs": scale(0.031),
        "bz": np.array(90, right),
        "ys": scale(0.07),
        "yz": np.array(-100, np.int8),
    }
    feeds = {"a": integers(left, 3, 37), "b": integers(right, 3, 37, seed=1)}
    check_within_a_step(nodes, feeds, level, constants, ["add_bytes"])


@on_every_level
@pytest.mark.parametrize("gemm", [False, True])
def test_matrices_between_conversions(level, gemm):
    product = (
        node("Gemm", ["af", "wf", "b"], ["p"], transB=1)
        if gemm
        else node("MatMul", ["af", "wf"], ["p"])
    )
    nodes = [
        conversion("a", "f"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0 if gemm else 1),
        product,
        node("QuantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    constants = {
        "as": scale(0.05),
        "az": np.array(17, np.uint8),
        "w": integers(np.int8, *((33, 40) if gemm else (40, 33))),
        "ws": (np.arange(33) % 5 + 1).astype(np.float32) / 500,
        "wz": integers(np.int8, 33, seed=2),
        "b": random(33),
        "ys": scale(1.0),
        "yz": np.array(128, np.uint8),
    }
    feeds = {"a": integers(np.uint8, 21, 40)}
    check_within_a_step(nodes, feeds, level, constants, ["integer_matmul"])


@on_every_level
def test_activations_that_are_quantised_as_they_come(level):
    """Two products share one conversion and have scales of their own."""
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    constants = {"half": scale(0.5)}
    for name, shape in (("u", (40, 33)), ("v", (40, 33))):
        constants[name] = integers(np.int8, *shape, seed=ord(name))
        constants[name + "z"] = np.array(0, np.int8)
        constants[name + "s"] = scale(0.01 if name == "u" else 0.003)
        constants[name + "b"] = random(33, seed=ord(name))
        nodes += [
            node("MatMulInteger", ["q", name, "z", name + "z"], [name + "i"]),
            node("Cast", [name + "i"], [name + "c"], to=1),
            node("Mul", ["s", name + "s"], [name + "f"]),
            node("Mul", [name + "c", name + "f"], [name + "m"]),
            node("Add", [name + "b", name + "m"], [name + "y"]),
        ]
    nodes += [node("Sigmoid", ["uy"], ["t"]), node("Mul", ["t", "vy"], ["y"])]
    native = check_same(nodes, {"x": random(2, 21, 40)}, level, constants)
    assert native.kinds.count("integer_matmul") == 2
    assert set(native.kinds) <= {"dynamic_quantise", "integer_matmul", "elementwise"}


@on_every_level
def test_scales_by_column_behind_an_integer_product(level):
    nodes = [
        node("MatMulInteger", ["a", "b"], ["i"]),
        node("Cast", ["i"], ["c"], to=1),
        node("Mul", ["c", "s"], ["y"]),
    ]
    constants = {"b": integers(np.int8, 30, 30), "s": np.abs(random(30))}
    native = check_same(nodes, {"a": integers(np.uint8, 30, 30)}, level, constants)
    assert native.kinds == ["integer_matmul"]
    constants["s"] = np.abs(random(30, 1))  # by row: not what a product scales by
    native = check_same(nodes, {"a": integers(np.uint8, 30, 30)}, level, constants)
    assert native.kinds == ["integer_matmul", "cast", "elementwise"]


@on_every_level
@signs
def test_pooling_and_moving_stay_in_8_bits(level, left):
    constants = {"xs": scale(0.05), "xz": np.array(17, left)}
    nodes = [
        conversion("x", "f"),
        node("MaxPool", ["xf"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["p", "xs", "xz"], ["q"]),
        node("DequantizeLinear", ["q", "xs", "xz"], ["qf"]),
        node("Flatten", ["qf"], ["f"]),
        node("QuantizeLinear", ["f", "xs", "xz"], ["y"]),
    ]
    feeds = {"x": integers(left, 2, 20, 9, 9)}
    kinds = ["transpose", "pool_bytes", "transpose", "flatten"]
    check_exact(nodes, feeds, level, constants, kinds)


@on_every_level
def test_weights_of_groups_are_converted_once(level):
    """A depthwise convolution stays in float32, on weights that are constants by then."""
    nodes = [
        conversion("x", "f"),
        node("DequantizeLinear", ["w", "ws"], ["wf"], axis=0),
        node("Conv", ["xf", "wf"], ["c"], group=20, pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    constants = {
        "xs": scale(0.05),
        "xz": np.array(17, np.uint8),
        "w": integers(np.int8, 20, 1, 3, 3),
        "ws": (np.arange(20) + 1).astype(np.float32) / 500,
        "ys": scale(0.5),
        "yz": np.array(128, np.uint8),
    }
    kinds = ["transpose", "dequantise", "depthwise", "quantise", "transpose"]
    kinds = ["dequantise", "transpose", "depthwise", "quantise", "transpose"]
    check_within_a_step(nodes, {"x": integers(np.uint8, 2, 20, 9, 9)}, level, constants, kinds)


@on_every_level
def test_byte_transposes(level):
    for order in ([0, 2, 3, 1], [0, 3, 1, 2], [3, 2, 1, 0]):
        nodes = [
            node("Transpose", ["x"], ["t"], perm=order),
            node("DequantizeLinear", ["t", "s"], ["y"]),
        ]
        feeds = {"x": integers(np.uint8, 2, 5, 17, 300)}
        check_exact(nodes, feeds, level, {"s": scale(1.0)}, ["transpose", "dequantise"])
