"""com.microsoft: fused convolutions, products and activations against the formulas behind them."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import UnsupportedError, run_op

from ep_core.errors import RunError

RNG = np.random.default_rng(11)


def run(op_type, inputs, **attributes):
    return run_op(op_type, inputs, 17, domain="com.microsoft", **attributes)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def convolved(x, weight, bias):
    """A 2-D convolution without padding, by its definition."""
    rows, columns = (x.shape[2 + i] - weight.shape[2 + i] + 1 for i in range(2))
    result = np.zeros((x.shape[0], weight.shape[0], rows, columns))
    for i, j in itertools.product(range(weight.shape[2]), range(weight.shape[3])):
        part = x[:, :, i : i + rows, j : j + columns].astype(np.float64)
        result += np.einsum("nchw,mc->nmhw", part, weight[:, :, i, j])
    return result + bias[:, None, None]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_by_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "": ([], lambda x: x),
    "Relu": ([], lambda x: np.maximum(x, 0)),
    "Tanh": ([], np.tanh),
    "Sigmoid": ([], sigmoid),
    "LeakyRelu": ([0.2], lambda x: np.where(x < 0, 0.2 * x, x)),
    "Clip": ([-0.5, 0.75], lambda x: np.clip(x, -0.5, 0.75)),
    "HardSigmoid": ([0.3, 0.4], lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    "HardSwish": ([], lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("residual", [False, True])
def test_convolution_residual_activation(name, residual):
    parameters, function = ACTIVATIONS[name]
    x, weight, bias = normal(2, 3, 5, 6), normal(4, 3, 2, 3), normal(4)
    extra = normal(2, 4, 4, 4) if residual else None
    expected = function(convolved(x, weight, bias) + (0 if extra is None else extra))
    attributes = {"activation": name} if name else {}
    if parameters:
        attributes["activation_params"] = parameters
    (found,) = run("FusedConv", [x, weight, bias, extra], **attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    last = [x.transpose(0, 2, 3, 1), weight, bias]
    last.append(None if extra is None else extra.transpose(0, 2, 3, 1))
    (found,) = run("NhwcFusedConv", last, **attributes)
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected, rtol=1e-4, atol=1e-5)


def test_channels_last_convolution_takes_both_layouts_of_the_weight():
    x, weight, bias = normal(1, 4, 5, 3), normal(6, 3, 2, 2), normal(6)
    expected = convolved(x.transpose(0, 3, 1, 2), weight, bias).transpose(0, 2, 3, 1)
    for layout in (weight, weight.transpose(0, 2, 3, 1)):
        (found,) = run("NhwcConv", [x, layout, bias], kernel_shape=[2, 2])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(RunError, match="layout"):
        run("NhwcConv", [x, normal(6, 3, 3, 3), bias])


def test_activations_that_are_not_known_are_refused_before_the_run():
    x, weight = normal(1, 3, 5, 5), normal(4, 3, 3, 3)
    for attributes in (
        {"activation": "Swish"},
        {"activation": "LeakyRelu"},
        {"activation": "Relu", "activation_params": [1.0]},
    ):
        with pytest.raises(UnsupportedError, match="activation"):
            run("FusedConv", [x, weight], **attributes)
    with pytest.raises(UnsupportedError, match="Clip"):
        run("FusedGemm", [normal(2, 3), normal(3, 4)], activation="Clip")


def test_a_residual_of_another_shape_is_an_error():
    x, weight = normal(1, 3, 5, 5), normal(4, 3, 3, 3)
    with pytest.raises(RunError, match="residual"):
        run("FusedConv", [x, weight, None, normal(1, 4, 1, 1)], shapes=False)


@pytest.mark.parametrize("flags", list(itertools.product([0, 1], repeat=4)))
def test_matrix_products_with_turned_operands(flags):
    trans_a, trans_b, batch_a, batch_b = flags
    left, right = normal(3, 5, 2, 4), normal(3, 5, 4, 6)

    def given(x, last, batch):
        x = x.swapaxes(-1, -2) if last else x
        # What is given has its rows in front; the operator moves them behind the batch axes.
        return np.moveaxis(x, -2, 0) if batch else x

    a, b = given(left, trans_a, batch_a), given(right, trans_b, batch_b)
    (found,) = run(
        "FusedMatMul", [a, b], transA=trans_a, transB=trans_b, transBatchA=batch_a,
        transBatchB=batch_b, alpha=0.5,
    )  # fmt: skip
    np.testing.assert_allclose(found, 0.5 * left @ right, rtol=1e-4, atol=1e-5)


def test_products_of_vectors_and_of_16_bit_floats():
    a, b = normal(4), normal(3, 4, 2)
    (found,) = run("FusedMatMul", [a, b], transA=1)
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-6)
    half = normal(5, 64).astype(np.float16)
    (found,) = run("FusedMatMul", [half, half], transB=1, alpha=0.25)
    assert found.dtype == np.float16
    wide = half.astype(np.float64)
    np.testing.assert_allclose(found, 0.25 * wide @ wide.T, rtol=2e-3, atol=2e-3)
    (found,) = run("TransposeMatMul", [normal(4, 3).astype(ml_dtypes.bfloat16)] * 2, transA=1)
    assert found.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("name", "parameters", "function"),
    [
        ("Relu", {}, lambda x: np.maximum(x, 0)),
        ("Elu", {"alpha": 0.5}, lambda x: np.where(x < 0, 0.5 * np.expm1(x), x)),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
        (
            "Selu",
            {"alpha": 1.5, "gamma": 1.25},
            lambda x: 1.25 * np.where(x < 0, 1.5 * np.expm1(x), x),
        ),
    ],
)
def test_gemm_and_product_with_activation(name, parameters, function):
    a, b, c = normal(3, 4), normal(5, 4), normal(5)
    named = {f"activation_{key}": value for key, value in parameters.items()}
    (found,) = run("FusedGemm", [a, b, c], transB=1, alpha=0.5, beta=2.0, activation=name, **named)
    np.testing.assert_allclose(found, function(0.5 * a @ b.T + 2 * c), rtol=1e-4, atol=1e-5)
    (found,) = run("FusedMatMulActivation", [a, b], transB=1, activation=name, **named)
    np.testing.assert_allclose(found, function(a @ b.T), rtol=1e-4, atol=1e-5)


def test_gelu_family():
    x, bias = normal(2, 3, 8), normal(8)
    (found,) = run("FastGelu", [x])
    np.testing.assert_allclose(found, gelu_by_tanh(x), rtol=1e-4, atol=1e-6)
    (found,) = run("FastGelu", [x, bias])
    np.testing.assert_allclose(found, gelu_by_tanh(x + bias), rtol=1e-4, atol=1e-6)
    (found,) = run("BiasSplitGelu", [x, bias])
    left, right = np.split((x + bias).astype(np.float64), 2, axis=-1)
    np.testing.assert_allclose(found, left * gelu(right), rtol=1e-4, atol=1e-6)
    weight = normal(8, 5)
    (found,) = run("GemmFastGelu", [x, weight, bias[:5]])
    np.testing.assert_allclose(found, gelu_by_tanh(x @ weight + bias[:5]), rtol=1e-4, atol=1e-5)
    with pytest.raises(RunError, match="one row"):
        run("FastGelu", [x, bias[:3]], shapes=False)


def test_swiglu_clamps_and_splits():
    gate, up = normal(4, 6) * 4, normal(4, 6) * 4
    clamped, factor = np.minimum(gate, 2), np.clip(up, -2, 2)
    expected = clamped * sigmoid(1.5 * clamped) * (factor + 1)
    attributes = {"activation_alpha": 1.5, "activation_beta": 1.0, "limit": 2.0}
    (found,) = run("SwiGLU", [gate, up], **attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    (found,) = run("SwiGLU", [np.concatenate([gate, up], axis=1)], **attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_biases_and_softmax():
    x, bias, skip = normal(2, 3, 8), normal(8), normal(2, 3, 8)
    (found,) = run("BiasAdd", [x, bias, skip])
    np.testing.assert_allclose(found, x + bias + skip, rtol=1e-5, atol=1e-6)
    scores, inner, outer = normal(2, 3, 4, 5), normal(2, 1, 1, 5), normal(4, 5)
    for mask, flag in ((inner, 1), (outer, 0)):
        (found,) = run("BiasSoftmax", [scores, mask], axis=3, is_inner_broadcast=flag)
        weights = np.exp((scores + mask).astype(np.float64))
        expected = weights / weights.sum(axis=3, keepdims=True)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    (found,) = run("BiasSoftmax", [scores, inner], axis=2, is_inner_broadcast=1)
    assert found.sum(axis=(2, 3)) == pytest.approx(np.ones((2, 3)), abs=1e-5)


def test_transposed_convolution_with_pads_as_an_input():
    x, weight = normal(1, 2, 4), normal(2, 3, 3)
    (found,) = run("ConvTransposeWithDynamicPads", [x, weight, np.array([1, 0])], strides=[2])
    full = np.zeros((1, 3, 9))
    for place in range(4):
        full[:, :, 2 * place : 2 * place + 3] += np.einsum("nc,cmk->nmk", x[:, :, place], weight)
    np.testing.assert_allclose(found, full[:, :, 1:], rtol=1e-4, atol=1e-5)
