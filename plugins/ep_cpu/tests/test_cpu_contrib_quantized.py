"""com.microsoft: packed weights and 8-bit operators against float64 and exact integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import UnsupportedError, run_op

from ep_core.errors import RunError

RNG = np.random.default_rng(16)


def run(op_type, inputs, **attributes):
    return run_op(op_type, inputs, 17, domain="com.microsoft", **attributes)


def f32(value):
    return np.array(value, np.float32)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def packed(codes, bits):
    """Codes of the last axis into bytes, the first code in the lowest bits."""
    per_byte = 8 // bits
    missing = -codes.shape[-1] % per_byte
    filled = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    groups = filled.reshape(*codes.shape[:-1], -1, per_byte)
    return (groups << (bits * np.arange(per_byte))).sum(axis=-1).astype(np.uint8)


# ---------------------------------------------------------------- packed weights


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("columns", [48, 40])
def test_product_with_a_packed_weight(bits, columns):
    rows, block = 5, 16
    blocks = -(-columns // block)
    codes = RNG.integers(0, 1 << bits, (rows, blocks * block))
    zeros = RNG.integers(0, 1 << bits, (rows, blocks))
    scales, bias, x = np.abs(normal(rows, blocks)), normal(rows), normal(2, 3, columns)
    weight = packed(codes.reshape(rows, blocks, block), bits)
    attributes = {"K": columns, "N": rows, "bits": bits, "block_size": block}
    groups = RNG.integers(0, blocks, columns).astype(np.int32)
    for zero, given in (
        (np.full_like(zeros, 1 << (bits - 1)), None),
        (zeros, packed(zeros, bits)),
        (zeros + 0.5, (zeros + 0.5).astype(np.float32)),
    ):
        for order, index in ((np.arange(columns) // block, None), (groups, groups)):
            real = (codes[:, :columns] - zero[:, order]) * scales[:, order].astype(np.float64)
            (found,) = run("MatMulNBits", [x, weight, scales, given, index, bias], **attributes)
            np.testing.assert_allclose(found, x @ real.T + bias, rtol=1e-3, atol=1e-3)
    half = [x.astype(np.float16), weight, scales.astype(np.float16)]
    assert run("MatMulNBits", half, **attributes)[0].dtype == np.float16


def test_packed_weights_of_wrong_sizes():
    x, weight, scales = normal(2, 32), np.zeros((5, 2, 8), np.uint8), normal(5, 2)
    attributes = {"K": 32, "N": 5, "block_size": 16, "shapes": False}
    run("MatMulNBits", [x, weight, scales], **attributes)
    zeros, groups = np.zeros((5, 2), np.uint8), np.full(32, 2, np.int32)
    for inputs in (
        [x[:, :31], weight, scales],
        [x, weight[:, :1], scales],
        [x, weight, scales[:4]],
        [x, weight, scales, zeros],
        [x, weight, scales, None, groups],
    ):
        with pytest.raises(RunError):
            run("MatMulNBits", inputs, **attributes)
    with pytest.raises(UnsupportedError, match="3 bits"):
        run("MatMulNBits", [x, weight, scales], bits=3, **attributes)
    with pytest.raises(UnsupportedError, match="prepacked"):
        run("MatMulNBits", [x, weight, scales], weight_prepacked=1, **attributes)


def test_four_bit_floats_of_bitsandbytes():
    """NF4 holds 1 and -1 at its ends and 0 at code 7; FP4 has its sign in the top bit."""
    x = np.eye(32, dtype=np.float32)
    codes = np.arange(96) % 16
    data = (codes[0::2] << 4 | codes[1::2]).astype(np.uint8)
    scale = np.array([2.0, 1.0, 4.0], np.float32)
    attributes = {"K": 32, "N": 3, "block_size": 32}
    (weight,) = run("MatMulBnb4", [x, data, scale], quant_type=1, **attributes)
    assert weight[[0, 7, 15], 0].tolist() == [-2.0, 0.0, 2.0]
    assert (np.diff(weight[:16], axis=0) > 0).all()
    (weight,) = run("MatMulBnb4", [x, data, scale], quant_type=0, **attributes)
    np.testing.assert_allclose(weight[:8], -weight[8:16])
    magnitudes = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3]) / 12
    np.testing.assert_allclose(weight[:8, 1], magnitudes, rtol=1e-6)


@pytest.mark.parametrize("kind", ["uint8-2", "uint8-4", "uint8-8", "int4", "uint4"])
def test_rows_of_packed_blocks(kind):
    name, _, bits = kind.partition("-")
    bits = int(bits or 4)
    codes = RNG.integers(0, 1 << bits, (6, 40))
    zeros = RNG.integers(0, 1 << bits, (6, 3))
    scales = np.abs(normal(6, 3))
    default = 1 << (bits - 1)
    if name == "uint8":
        data, points = packed(codes, bits), packed(zeros, bits)
    else:
        shift = 8 if name == "int4" else 0
        codes, zeros, default = codes - shift, zeros - shift, 0
        data, points = (x.astype(getattr(ml_dtypes, name)) for x in (codes, zeros))
    places = np.array([[0, 5], [-1, 2]])
    for zero, given in ((np.full_like(zeros, default), None), (zeros, points)):
        block = np.arange(40) // 16
        real = (codes - zero[:, block]) * scales[:, block]
        (found,) = run(
            "GatherBlockQuantized", [data, places, scales, given], block_size=16, bits=bits
        )
        np.testing.assert_allclose(found, real[places], rtol=1e-5, atol=1e-6)
    outside = np.array([0, 6, -7], np.int32)
    (found,) = run("GatherBlockQuantized", [data, outside, scales], block_size=16, bits=bits)
    assert found[1:].tolist() == np.zeros((2, 40)).tolist()
    with pytest.raises(RunError, match="scales"):
        run("GatherBlockQuantized", [data, outside, scales[:5]], block_size=16, bits=bits)


def test_blocks_along_the_gathered_and_along_other_axes():
    codes = RNG.integers(0, 16, (32, 3, 4))
    data, places = codes.astype(ml_dtypes.uint4), np.array([31, 0, 17])
    scales = np.abs(normal(2, 3, 4))
    (found,) = run(
        "GatherBlockQuantized", [data, places, scales], block_size=16, quantize_axis=0,
        gather_axis=0,
    )  # fmt: skip
    np.testing.assert_allclose(found, codes[places] * scales[places // 16], rtol=1e-5)
    (found,) = run(
        "GatherBlockQuantized", [data, np.array([2, 2]), scales], block_size=16, quantize_axis=0,
        gather_axis=2,
    )  # fmt: skip
    real = codes * np.repeat(scales, 16, axis=0)
    np.testing.assert_allclose(found, real[:, :, [2, 2]], rtol=1e-5)


def test_rows_of_narrow_floats_share_scales():
    data = normal(5, 32).astype(ml_dtypes.float8_e4m3fn)
    (found,) = run("GatherBlockQuantized", [data, np.array([4, 1]), f32([[0.5]])], block_size=0)
    np.testing.assert_allclose(found, data[[4, 1]].astype(np.float32) * 0.5)


# ---------------------------------------------------------------- 8-bit operators


def real(codes, scale, zero):
    return (codes.astype(np.float64) - zero) * scale


def close(found, values, scale, zero):
    """Each code is a nearest one; a float32 sum may fall on the other side of a half."""
    info = np.iinfo(found.dtype)
    exact = np.clip(np.asarray(values) / scale + zero, info.min, info.max)
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() <= 0.5 + 1e-3


KINDS = pytest.mark.parametrize("dtype", [np.uint8, np.int8])


def codes(dtype, *shape):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


@KINDS
def test_sums_products_and_choices(dtype):
    a, b = codes(dtype, 2, 3, 40), codes(dtype, 3, 1)
    zeros = [np.array(value, dtype) for value in (5, 60, 20)]
    pair = [a, f32(0.1), zeros[0], b, f32(0.2), zeros[1]]
    x, y = real(a, 0.1, 5), real(b, 0.2, 60)
    close(run("QLinearAdd", [*pair, f32(0.3), zeros[2]])[0], x + y, 0.3, 20)
    close(run("QLinearMul", [*pair, f32(2.5), zeros[2]])[0], x * y, 2.5, 20)
    bare = [a, f32(0.1), None, b, f32(0.2), None, f32(0.3)]
    close(run("QLinearAdd", bare)[0], real(a, 0.1, 0) + real(b, 0.2, 0), 0.3, 0)
    condition = RNG.random((2, 3, 40)) > 0.5
    (found,) = run("QLinearWhere", [condition, *pair, f32(0.15), zeros[2]])
    close(found, np.where(condition, x, y), 0.15, 20)


@KINDS
def test_functions_of_every_code(dtype):
    info = np.iinfo(dtype)
    x = np.arange(info.min, info.max + 1).astype(dtype)
    zero, y_zero = np.array(30, dtype), np.array(-128 if dtype == np.int8 else 0, dtype)
    scales = f32(0.05), f32(1 / 256)
    (found,) = run("QLinearSigmoid", [x, scales[0], zero, scales[1], y_zero])
    close(found, 1 / (1 + np.exp(-real(x, 0.05, 30))), 1 / 256, int(y_zero))
    (found,) = run("QLinearLeakyRelu", [x, scales[0], zero, f32(0.06), zero], alpha=0.25)
    values = real(x, 0.05, 30)
    close(found, np.where(values < 0, values * 0.25, values), 0.06, 30)


@KINDS
def test_concatenation_of_different_scales(dtype):
    parts = [codes(dtype, 2, width) for width in (3, 5)]
    zero = np.array(9, dtype)
    inputs = [f32(0.2), np.array(4, dtype), parts[0], f32(0.2), np.array(4, dtype)]
    (found,) = run("QLinearConcat", [*inputs, parts[1], f32(0.11), zero], axis=-1)
    np.testing.assert_array_equal(found[:, :3], parts[0])
    close(found[:, 3:], real(parts[1], 0.11, 9), 0.2, 4)


@KINDS
@pytest.mark.parametrize(
    ("opset", "axis", "over"), [(13, 1, (1,)), (12, 1, (1, 2)), (13, -1, (2,))]
)
def test_softmax_over_an_axis_or_the_rest(dtype, opset, axis, over):
    x, zero = codes(dtype, 2, 3, 6), np.array(-128 if dtype == np.int8 else 0, dtype)
    inputs = [x, f32(0.02), np.array(7, dtype), f32(1 / 256), zero]
    (found,) = run_softmax(inputs, opset, axis)
    weights = np.exp(real(x, 0.02, 7))
    close(found, weights / weights.sum(axis=over, keepdims=True), 1 / 256, int(zero))


def run_softmax(inputs, opset, axis):
    """`opset` is an attribute here, and an argument of the harness."""
    from cpu_harness import run_model
    from onnx import helper

    names = [f"in{i}" for i in range(5)]
    attributes = {"opset": opset, "axis": axis, "domain": "com.microsoft"}
    node = helper.make_node("QLinearSoftmax", names, ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    output = helper.make_tensor_value_info("y", infos[0].type.tensor_type.elem_type, None)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "one", infos, [output])
    return run_model(helper.make_model(graph, opset_imports=imports, ir_version=8), inputs)


@KINDS
def test_means(dtype):
    x = codes(dtype, 2, 3, 4, 5)
    inputs = [x, f32(0.1), np.array(9, dtype), f32(0.03), np.array(4, dtype)]
    values = real(x, 0.1, 9)
    (found,) = run("QLinearGlobalAveragePool", inputs)
    close(found, values.mean(axis=(2, 3), keepdims=True), 0.03, 4)
    (found,) = run("QLinearGlobalAveragePool", inputs, channels_last=1)
    close(found, values.mean(axis=(1, 2), keepdims=True), 0.03, 4)
    (found,) = run("QLinearReduceMean", inputs, axes=[-1, 0], keepdims=0)
    close(found, values.mean(axis=(0, 3)), 0.03, 4)
    (found,) = run("QLinearAveragePool", inputs, kernel_shape=[2, 2], strides=[2, 1])
    windows = [values[:, :, i : i + 3 : 2, j : j + 4] for i in (0, 1) for j in (0, 1)]
    close(found, sum(windows) / 4, 0.03, 4)
    last = [x.transpose(0, 2, 3, 1), *inputs[1:]]
    (turned,) = run(
        "QLinearAveragePool", last, kernel_shape=[2, 2], strides=[2, 1], channels_last=1
    )
    np.testing.assert_array_equal(turned.transpose(0, 3, 1, 2), found)


@KINDS
def test_maxima_and_convolutions_with_channels_last(dtype):
    x = codes(dtype, 1, 4, 5, 3)
    (found,) = run("NhwcMaxPool", [x], kernel_shape=[2, 3], strides=[1, 2])
    windows = [x[:, i : i + 3, j : j + 3 : 2] for i in range(2) for j in range(3)]
    np.testing.assert_array_equal(found, np.maximum.reduce(windows))
    weight = codes(np.int8, 2, 3, 1, 1)
    zero = np.array(0, np.int8)
    (found,) = run(
        "QLinearConv",
        [x, f32(0.1), np.array(3, dtype), weight, f32(0.01), zero, f32(0.9), np.array(8, dtype)],
        channels_last=1,
    )
    close(found, real(x, 0.1, 3) @ real(weight[:, :, 0, 0], 0.01, 0).T, 0.9, 8)


@KINDS
@pytest.mark.parametrize("turned", [False, True])
def test_gemm_of_codes(dtype, turned):
    a, b = codes(dtype, 3, 6), codes(np.int8, 6, 4)
    scales, zeros = np.abs(normal(4)) * 0.1, codes(np.int8, 4)
    c = RNG.integers(-900, 900, 4).astype(np.int32)
    given = [
        a.T if turned else a,
        f32(0.05),
        np.array(7, dtype),
        b.T if turned else b,
        scales,
        zeros,
    ]
    flags = {"transA": int(turned), "transB": int(turned), "alpha": 0.5}
    whole = (a.astype(np.int64) - 7) @ (b.astype(np.int64) - zeros) + c
    values = whole * 0.5 * 0.05 * scales.astype(np.float64)
    (found,) = run("QGemm", [*given, c], **flags)
    np.testing.assert_allclose(found, values, rtol=1e-5)
    (found,) = run("QGemm", [*given, c, f32(0.7), np.array(11, dtype)], **flags)
    close(found, values, 0.7, 11)


def test_integer_products_keep_the_type_of_their_scales():
    a, b = codes(np.uint8, 2, 3, 8), codes(np.int8, 8, 5)
    scale = np.array(0.001, np.float16)
    bias = normal(5).astype(np.float16)
    (found,) = run("MatMulIntegerToFloat", [a, b, scale, scale, None, None, bias])
    assert found.dtype == np.float16
    whole = a.astype(np.int64) @ b.astype(np.int64)
    expected = whole * float(scale) ** 2 + bias.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
