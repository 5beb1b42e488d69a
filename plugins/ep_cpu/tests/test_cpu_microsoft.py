"""Operators of com.microsoft against the formulas that define them."""

from __future__ import annotations

import math

import numpy as np
from cpu_harness import run_op

RNG = np.random.default_rng(2)


def run(op_type, inputs, **attributes):
    return run_op(op_type, inputs, 14, domain="com.microsoft", **attributes)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def test_gelus():
    x, bias = normal(3, 8), normal(8)
    np.testing.assert_allclose(run("Gelu", [x])[0], gelu(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run("BiasGelu", [x, bias])[0], gelu(x + bias), rtol=1e-5, atol=1e-6)
    quick = x / (1 + np.exp(-1.702 * x))
    np.testing.assert_allclose(run("QuickGelu", [x])[0], quick, rtol=1e-5)


def test_fused_matmul_transposes_and_scales():
    a, b = normal(2, 4, 3), normal(2, 5, 4)
    (found,) = run("FusedMatMul", [a, b], transA=1, transB=1, alpha=0.5)
    expected = 0.5 * a.transpose(0, 2, 1) @ b.transpose(0, 2, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_skip_layer_normalization():
    x, skip, gamma, beta, bias = (*(normal(2, 3, 8) for _ in range(2)), *(normal(8) for _ in "abc"))
    y, mean, inverse, total = run(
        "SkipLayerNormalization", [x, skip, gamma, beta, bias], outputs=4, epsilon=1e-5
    )
    summed = x.astype(np.float64) + skip + bias
    centre = summed.mean(axis=-1, keepdims=True)
    factor = 1 / np.sqrt(summed.var(axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, (summed - centre) * factor * gamma + beta, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, centre, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(inverse, factor, rtol=1e-4)
    np.testing.assert_allclose(total, summed, rtol=1e-5, atol=1e-6)


def test_integer_products_scaled_to_floats():
    a = RNG.integers(0, 256, (3, 5), dtype=np.uint8)
    b = RNG.integers(-128, 128, (5, 4), dtype=np.int8)
    a_scale, b_scale = np.array(0.5, np.float32), np.array([1, 2, 3, 4], np.float32)
    a_zero, bias = np.array(7, np.uint8), normal(4)
    (found,) = run("MatMulIntegerToFloat", [a, b, a_scale, b_scale, a_zero, None, bias])
    expected = (a.astype(np.float64) - 7) @ b * 0.5 * b_scale + bias
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_dynamically_quantized_product_is_near_the_float_one():
    a, b = normal(4, 16), RNG.integers(-127, 128, (16, 3), dtype=np.int8)
    scale = np.array(0.01, np.float32)
    (found,) = run("DynamicQuantizeMatMul", [a, b, scale])
    np.testing.assert_allclose(found, a @ (b * scale), atol=0.1)
