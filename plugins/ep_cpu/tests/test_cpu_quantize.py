"""Quantised arithmetic: rounding, saturation, granularity, and exact integer sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import run_op

RNG = np.random.default_rng(3)


def f32(*values):
    return np.array(values, np.float32)


def test_ties_go_to_even_and_results_saturate():
    x = f32(0.5, 1.5, 2.5, -0.5, 1000, -1000)
    one, zero = np.array(1, np.float32), np.array(0, np.int8)
    assert run_op("QuantizeLinear", [x, one, zero], 13)[0].tolist() == [0, 2, 2, 0, 127, -128]
    (found,) = run_op("QuantizeLinear", [x, one, np.array(128, np.uint8)], 13)
    assert found.tolist() == [128, 130, 130, 128, 255, 0]
    assert run_op("QuantizeLinear", [x, one], 13)[0].dtype == np.uint8


@pytest.mark.parametrize(("number", "low", "high"), [(21, 0, 15), (22, -8, 7), (5, -32768, 32767)])
def test_output_types(number, low, high):
    x = f32(-1e6, 0, 3, 1e6)
    (found,) = run_op("QuantizeLinear", [x, np.array(1, np.float32)], 21, output_dtype=number)
    assert found.astype(np.int32).tolist() == [low, 0, 3, high]


def test_granularity_per_axis_and_per_block():
    x = np.array([[2, 4], [8, 16]], np.float32)
    zero = np.zeros(2, np.int8)
    (found,) = run_op("QuantizeLinear", [x, f32(2, 4), zero], 13, axis=0)
    assert found.tolist() == [[1, 2], [2, 4]]
    (found,) = run_op("QuantizeLinear", [x, f32(2, 4), zero], 13, axis=1)
    assert found.tolist() == [[1, 1], [4, 4]]
    line = np.arange(5, dtype=np.float32).reshape(1, 5)
    scale = np.array([[1, 2, 4]], np.float32)
    codes = np.zeros((1, 3), np.int8)
    (found,) = run_op("QuantizeLinear", [line, scale, codes], 21, axis=1, block_size=2)
    assert found.tolist() == [[0, 1, 1, 2, 1]]
    (back,) = run_op("DequantizeLinear", [found, scale, codes], 21, axis=1, block_size=2)
    assert back.tolist() == [[0, 1, 2, 4, 4]]


def test_dequantize_of_wide_and_narrow_integers():
    x = np.array([-8, 7], ml_dtypes.int4)
    (found,) = run_op("DequantizeLinear", [x, np.array(0.5, np.float32)], 21)
    assert found.tolist() == [-4, 3.5]
    x = np.array([2**31 - 1, -3], np.int32)
    (found,) = run_op("DequantizeLinear", [x, np.array(2, np.float32)], 13)
    assert found.tolist() == [2.0**32, -6]


def test_dynamic_quantization():
    y, scale, zero = run_op(
        "DynamicQuantizeLinear", [f32(0, 2, -3, -2.5, 1.34, 0.5)], 11, outputs=3
    )
    # Range [-3, 2]: the scale is 5 / 255 and the zero point 3 / scale = 153.
    assert scale.item() == pytest.approx(5 / 255)
    assert zero.item() == 153
    assert y.tolist() == [153, 255, 0, 26, 221, 179]
    y, scale, zero = run_op("DynamicQuantizeLinear", [np.zeros(3, np.float32)], 11, outputs=3)
    assert (y.tolist(), scale.item(), zero.item()) == ([0, 0, 0], 1, 0)


@pytest.mark.parametrize("depth", [7, 258, 259, 3000])
def test_integer_products_are_exact(depth):
    a = RNG.integers(0, 256, (3, depth), dtype=np.uint8)
    b = RNG.integers(-128, 128, (depth, 4), dtype=np.int8)
    a_zero, b_zero = np.array(3, np.uint8), np.array([-2, 0, 1, 5], np.int8)
    exact = (a.astype(np.int64) - 3) @ (b.astype(np.int64) - b_zero)
    (found,) = run_op("MatMulInteger", [a, b, a_zero, b_zero], 10)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, exact)
    row_zero = np.array([0, 9, 255], np.uint8)
    (found,) = run_op("MatMulInteger", [a, b, row_zero], 10)
    np.testing.assert_array_equal(
        found, (a.astype(np.int64) - row_zero[:, None]) @ b.astype(np.int64)
    )


def test_integer_convolution_pads_with_the_zero_point():
    x = np.full((1, 1, 3, 3), 10, np.uint8)
    weight = np.ones((1, 1, 3, 3), np.uint8)
    (found,) = run_op("ConvInteger", [x, weight, np.array(4, np.uint8)], 10, pads=[1, 1, 1, 1])
    assert found.reshape(3, 3).tolist() == [[24, 36, 24], [36, 54, 36], [24, 36, 24]]


def test_quantized_convolution_against_floats():
    x = RNG.integers(0, 256, (1, 3, 6, 6), dtype=np.uint8)
    weight = RNG.integers(-128, 128, (4, 3, 3, 3), dtype=np.int8)
    bias = RNG.integers(-500, 500, 4, dtype=np.int32)
    scales = np.array([0.01, 0.02, 0.03, 0.04], np.float32)
    x_scale, y_scale = np.array(0.05, np.float32), np.array(1.5, np.float32)
    x_zero, y_zero = np.array(120, np.uint8), np.array(7, np.uint8)
    (found,) = run_op(
        "QLinearConv",
        [x, x_scale, x_zero, weight, scales, np.zeros(4, np.int8), y_scale, y_zero, bias],
        10,
    )
    shifted, filters = x.astype(np.float64) - 120, weight.astype(np.float64)
    sums = np.zeros((1, 4, 4, 4))
    for row, column in np.ndindex(3, 3):
        part = shifted[:, :, row : row + 4, column : column + 4]
        sums += np.einsum("nchw,mc->nmhw", part, filters[:, :, row, column])
    real = (sums + bias[:, None, None]) * 0.05 * scales.astype(np.float64)[:, None, None] / 1.5
    expected = np.clip(np.rint(real) + 7, 0, 255)
    assert np.abs(found.astype(np.int32) - expected).max() <= 1
    assert (found == expected).mean() > 0.98


def test_dynamic_quantized_lstm_is_near_the_float_one():
    steps, batch, width, hidden = 5, 2, 6, 4
    x = RNG.standard_normal((steps, batch, width)).astype(np.float32)
    codes_w = RNG.integers(-127, 128, (1, width, 4 * hidden), dtype=np.int8)
    codes_r = RNG.integers(-127, 128, (1, hidden, 4 * hidden), dtype=np.int8)
    scale = np.array([0.004], np.float32)
    zero = np.zeros(1, np.int8)
    bias = RNG.standard_normal((1, 8 * hidden)).astype(np.float32) * 0.1
    quantized = run_op(
        "DynamicQuantizeLSTM",
        [x, codes_w, codes_r, bias, None, None, None, None, scale, zero, scale, zero],
        14, outputs=3, domain="com.microsoft", hidden_size=hidden,
    )  # fmt: skip
    w = (codes_w.astype(np.float32) * scale).transpose(0, 2, 1)
    r = (codes_r.astype(np.float32) * scale).transpose(0, 2, 1)
    plain = run_op("LSTM", [x, w, r, bias], 14, outputs=3, hidden_size=hidden)
    for one, other in zip(quantized, plain, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=0.02)
