"""Products in bfloat16: operands are rounded as bfloat16 is, sums are in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cpu_native import compile_model, model_of, needs_native, on_every_level, random
from onnx import helper

pytestmark = needs_native
node = helper.make_node


def rounded(values):
    return values.astype(ml_dtypes.bfloat16).astype(np.float64)


def compile_both(model, level):
    return [compile_model(model, level, threads, precision="bf16") for threads in (1, 3)]


@on_every_level
@pytest.mark.parametrize("columns", [1, 17, 48, 100])
def test_matrices(level, columns):
    for rows, depth in ((1, 1), (3, 2), (7, 33), (9, 1601), (150, 64)):
        a, b = random(rows, depth), random(depth, columns)
        model = model_of([node("MatMul", ["a", "b"], ["y"])], {"a": a}, {"b": b})
        expected = rounded(a) @ rounded(b)
        bound = (depth + 2) * 1.2e-7 * (np.abs(rounded(a)) @ np.abs(rounded(b)))
        for native in compile_both(model, level):
            (found,) = native.run({"a": a})
            assert (np.abs(found - expected) <= bound).all()
            assert native.kinds == ["matmul"]
            assert not native.refused


@on_every_level
def test_what_follows_on_a_product_stays_in_float32(level):
    a, b, c = random(2, 5, 40), random(30, 40), random(30)
    nodes = [
        node("Transpose", ["b"], ["bt"]),
        node("MatMul", ["a", "bt"], ["p"]),
        node("Add", ["p", "c"], ["q"]),
        node("Sigmoid", ["q"], ["y"]),
    ]
    model = model_of(nodes[1:], {"a": a}, {"bt": np.ascontiguousarray(b.T), "c": c})
    expected = 1 / (1 + np.exp(-(rounded(a) @ rounded(b.T) + c)))
    for native in compile_both(model, level):
        np.testing.assert_allclose(native.run({"a": a})[0], expected, rtol=2e-5)
        assert native.kinds == ["matmul"]


@on_every_level
@pytest.mark.parametrize(
    ("shape", "weights", "attributes"),
    [
        ((2, 3, 9, 8), (5, 3, 3, 3), {"pads": [1, 2, 0, 1], "strides": [2, 1]}),
        ((1, 21, 7, 7), (70, 21, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 19, 5, 6), (33, 19, 1, 1), {}),
    ],
)
def test_convolutions(level, shape, weights, attributes):
    """Against the kernels in numpy, on operands that bfloat16 holds."""
    feeds = {"x": rounded(random(*shape)).astype(np.float32)}
    constants = {"w": rounded(random(*weights)).astype(np.float32), "b": random(weights[0])}
    model = model_of([node("Conv", ["x", "w", "b"], ["y"], **attributes)], feeds, constants)
    (expected,) = compile_model(model, "none").run(feeds)
    for native in compile_both(model, level):
        (found,) = native.run(feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
        assert "conv" in native.kinds
        assert not native.refused


@on_every_level
def test_rounding_is_to_even_and_keeps_what_is_not_finite(level):
    ones = np.array([[1.0]], np.float32)
    values = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -np.inf, np.nan, 3.4e38, -0.0]
    x = np.array(values, np.float32)[:, None]
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": x}, {"w": ones})
    (found,) = compile_model(model, level, precision="bf16").run({"x": x})
    np.testing.assert_array_equal(found[:, 0], rounded(x[:, 0]))


@on_every_level
def test_products_without_constant_weights_stay_in_float32(level):
    feeds = {"a": random(9, 20), "b": random(20, 30)}
    model = model_of([node("MatMul", ["a", "b"], ["y"])], feeds)
    (expected,) = compile_model(model, level).run(feeds)
    (found,) = compile_model(model, level, precision="bf16").run(feeds)
    np.testing.assert_array_equal(found, expected)
