"""Fusions into convolutions and matrix products: equal up to rounding; look-alikes stay."""

from __future__ import annotations

import numpy as np
import pytest
from pass_equivalence import apply, check_near, check_untouched, graph, numbers

BATCH_NORM = "ConvBNFusion"
SCALE = "ConvScaleFusion"
GEMM = "MatMulAddFusion"
PAD = "PadFusion"


# ---------------------------------------------------------------- convolutions


def normalised(convolution, weights, *, line="b = BatchNormalization(a, s, o, m, v)", **more):
    channels = 6
    constants = {
        "w": weights,
        "s": numbers(channels),
        "o": numbers(channels),
        "m": numbers(channels),
        "v": np.abs(numbers(channels)),
        **more,
    }
    body = f"a = {convolution}\n{line}\ny = Relu(b)"
    used = {
        n: array for n, array in constants.items() if any(f"{x}{n}" in body for x in (" ", "("))
    }
    return graph("(float[2,4,5,5] x) => (float[R] y)", body, **used)


@pytest.mark.parametrize(
    ("convolution", "shape"),
    [
        ("Conv(x, w)", (6, 4, 3, 3)),
        ("Conv(x, w, c)", (6, 4, 3, 3)),
        ("Conv<group=2>(x, w, c)", (6, 2, 3, 3)),
        ("ConvTranspose(x, w, c)", (4, 6, 3, 3)),
    ],
)
def test_batch_normalisation_goes_into_the_weights(convolution, shape):
    before = normalised(convolution, numbers(*shape), c=numbers(6))
    check_near(BATCH_NORM, before, f"{convolution.split('<')[0].split('(')[0]} Relu", rtol=2e-5)


def test_channels_of_a_grouped_transposed_convolution_are_counted_group_by_group():
    # onnx.reference can't compute this one, so the weights are worked out by hand.
    before = normalised("ConvTranspose<group=2>(x, w)", numbers(4, 3, 3, 3))
    old = {name: item.numpy() for name, item in before.initializers.items()}
    after = apply(BATCH_NORM, before)
    (node, _) = after.nodes
    weights, bias = (after.initializers[name].numpy() for name in node.inputs[1:])
    for group in range(2):
        for channel in range(3):
            output = 3 * group + channel
            factor = old["s"][output] / np.sqrt(old["v"][output] + 1e-5)
            for source in (2 * group, 2 * group + 1):
                expected = old["w"][source, channel] * factor
                np.testing.assert_allclose(weights[source, channel], expected, rtol=1e-5)
            np.testing.assert_allclose(
                bias[output], old["o"][output] - old["m"][output] * factor, rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("b = BatchNormalization<training_mode=1>(a, s, o, m, v)", {}),
        ("b = BatchNormalization(a, x1, o, m, v)", {}),
        ("b = BatchNormalization(a, s, o, m, v)\nz = Relu(a)", {}),
        ("b = BatchNormalization(a, s, o, m, v)", {"v": np.full(6, -1, np.float32)}),
        ("b = BatchNormalization(a, s, o, m, v)", {"s": np.full(6, 3e38, np.float32)}),
    ],
    ids=["training", "fed scale", "read twice", "NaN", "overflow"],
)
def test_other_batch_normalisations_stay(line, values):
    if "x1" in line:
        before = graph(
            "(float[2,4,5,5] x, float[6] x1) => (float[R] y)",
            f"a = Conv(x, w)\n{line}\ny = Relu(b)",
            w=numbers(6, 4, 3, 3),
            **{name: np.abs(numbers(6)) for name in "omv"},
        )
    else:
        before = normalised("Conv(x, w)", 100 * numbers(6, 4, 3, 3), line=line, **values)
    check_untouched(BATCH_NORM, before)


def test_weights_that_others_read_keep_their_values():
    body = """a = Conv(x, w)
        b = BatchNormalization(a, s, o, m, v)
        d = Conv(x, w)
        y = Add(b, d)"""
    constants = {name: np.abs(numbers(4)) for name in "somv"}
    before = graph("(float[1,2,5] x) => (float[R] y)", body, w=numbers(4, 2, 3), **constants)
    check_near(BATCH_NORM, before, "Conv Conv Add")


@pytest.mark.parametrize("convolution", ["Conv(x, w)", "Conv(x, w, c)"])
@pytest.mark.parametrize("operation", ["Mul(a, k)", "Mul(k, a)", "Add(a, k)"])
@pytest.mark.parametrize("shape", [(), (1,), (6, 1, 1), (1, 6, 1, 1), (1, 1, 1, 1)])
def test_a_constant_per_channel_goes_into_the_weights(convolution, operation, shape):
    body = f"a = {convolution}\nb = {operation}\ny = Relu(b)"
    constants = {"w": numbers(6, 4, 3, 3), "k": numbers(*shape), "c": numbers(6)}
    used = {name: array for name, array in constants.items() if name != "c" or ", c)" in body}
    check_near(SCALE, graph("(float[2,4,5,5] x) => (float[R] y)", body, **used), "Conv Relu")


def test_a_product_without_bias_gets_none():
    before = graph(
        "(float[1,2,5] x) => (float[R] y)",
        "a = Conv(x, w)\ny = Mul(a, k)",
        w=numbers(4, 2, 3),
        k=np.float32(2),
    )
    assert len(check_near(SCALE, before, "Conv").nodes[0].inputs) == 2


@pytest.mark.parametrize("shape", [(3,), (6,), (3, 3), (1, 6, 3, 3), (2, 1, 1, 1), (1, 1, 1, 1, 1)])
def test_constants_that_vary_within_a_channel_stay(shape):
    body = "a = Conv(x, w)\nb = Mul(a, k)\ny = Relu(b)"
    shapes = {"x": "2,4,5,5" if shape != (6,) else "2,4,5,8"}
    before = graph(
        f"(float[{shapes['x']}] x) => (float[R] y)", body, w=numbers(6, 4, 3, 3), k=numbers(*shape)
    )
    check_untouched(SCALE, before)


def test_a_convolution_that_is_an_output_or_captured_stays():
    body = "y = Conv(x, w)\nz = Mul(y, k)"
    arrays = {"w": numbers(4, 2, 3), "k": np.float32(2)}
    check_untouched(SCALE, graph("(float[1,2,5] x) => (float[R] y, float[R] z)", body, **arrays))
    captured = """a = Conv(x, w)
        b = Mul(a, k)
        y = If(c) <
            then_branch = t () => (float[R] p) { p = Neg(a) },
            else_branch = e () => (float[R] p) { p = Neg(b) }
        >"""
    check_untouched(SCALE, graph("(float[1,2,5] x, bool c) => (float[R] y)", captured, **arrays))


# ---------------------------------------------------------------- matrices


@pytest.mark.parametrize(
    "bias", [("k", ()), ("k", (1,)), ("k", (5,)), ("k", (1, 5)), ("k", (1, 1)), ("b", None)]
)
@pytest.mark.parametrize("swap", [False, True])
def test_a_matrix_product_and_a_bias_become_gemm(bias, swap):
    name, shape = bias
    constants = {"w": numbers(3, 5)} | ({"k": numbers(*shape)} if shape is not None else {})
    inputs = f"{name}, a" if swap else f"a, {name}"
    before = graph(
        "(float[N,3] x, float[5] b) => (float[R] y)",
        f"a = MatMul(x, w)\ny = Add({inputs})",
        **constants,
    )
    check_near(GEMM, before, "Gemm")


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("(float[2,4,3] x, float[3,5] w, float[5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[3] x, float[3,5] w, float[5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[4,3] x, float[3,5] w, float[2,4,5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[1,3] x, float[3,5] w, float[4,5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[4,3] x, float[3,5] w, float[N] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[N,3] x, float[3,5] w, float[N,5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(int32[4,3] x, int32[3,5] w, int32[5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[4,3] x, float[3,5] w, float[5] b)", "a = MatMul(x, w)\ny = Add(a, b)\nz = Neg(a)"),
        ("(float[4,3] x, float[3,4] w, float[5] b)", "a = MatMul(x, w)\ny = Add(a, a)"),
    ],
)
def test_other_sums_of_products_stay(signature, body):
    check_untouched(GEMM, graph(f"{signature} => (float[R] y)", body))


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize(
    ("pad", "node", "constants"),
    [
        ("Pad(x, p)", "Conv(a, w)", {"p": [0, 0, 1, 2, 0, 0, 3, 0]}),
        ("Pad(x, p, z)", "Conv<pads=[1,0,0,2]>(a, w)", {"p": [0, 0, 1, 2, 0, 0, 3, 0], "z": 0.0}),
        ("Pad(x, p)", 'Conv<auto_pad="VALID">(a, w)', {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p, , e)", "Conv(a, w)", {"p": [1, 2, 3, 0], "e": [-1, 2]}),
        ("Pad(x, p)", "AveragePool<kernel_shape=[3,3]>(a)", {"p": [0, 0, 1, 2, 0, 0, 2, 0]}),
        (
            "Pad(x, p)",
            "AveragePool<kernel_shape=[3,3],strides=[2,1],count_include_pad=1>(a)",
            {"p": [0, 0, 1, 1, 0, 0, 1, 1]},
        ),
    ],
)
def test_zeros_around_the_input_become_pads(pad, node, constants):
    arrays = {n: np.float32(v) if n == "z" else np.int64(v) for n, v in constants.items()}
    if "w)" in node:
        arrays["w"] = numbers(3, 2, 3, 3)
    before = graph(
        "(float[1,2,5,5] x) => (float[R] y)", f"a = {pad}\ny = {node}", opset=18, **arrays
    )
    check_near(PAD, before, node.split("<")[0].split("(")[0])


@pytest.mark.parametrize(
    ("pad", "node", "constants"),
    [
        ('Pad<mode="reflect">(x, p)', "Conv(a, w)", {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p, z)", "Conv(a, w)", {"p": [0, 0, 1, 1, 0, 0, 1, 1], "z": 1.0}),
        ("Pad(x, p)", "Conv(a, w)", {"p": [0, 1, 1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p)", "Conv(a, w)", {"p": [0, 0, -1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p)", 'Conv<auto_pad="SAME_UPPER">(a, w)', {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p)", "MaxPool<kernel_shape=[3,3]>(a)", {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        (
            "Pad(x, p)",
            "AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(a)",
            {"p": [0, 0, 1, 1, 0, 0, 1, 1]},
        ),
        (
            "Pad(x, p)",
            "AveragePool<kernel_shape=[3,3],ceil_mode=1>(a)",
            {"p": [0, 0, 1, 1, 0, 0, 1, 1]},
        ),
        ("Pad(x, p)", "AveragePool<kernel_shape=[2,2]>(a)", {"p": [0, 0, 2, 2, 0, 0, 2, 2]}),
    ],
)
def test_other_padding_stays(pad, node, constants):
    arrays = {n: np.float32(v) if n == "z" else np.int64(v) for n, v in constants.items()}
    if "w)" in node:
        arrays["w"] = numbers(3, 3 if arrays["p"][1] else 2, 3, 3)
    before = graph(
        "(float[1,2,5,5] x) => (float[R] y)", f"a = {pad}\ny = {node}", opset=18, **arrays
    )
    check_untouched(PAD, before)
