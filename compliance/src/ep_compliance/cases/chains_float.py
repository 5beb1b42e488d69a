"""Chains of floats: convolutions, products, normalisations, attention, movement."""

from __future__ import annotations

import numpy as np

from ep_compliance.cases.chaining import Chain, chained

__all__ = ["batch_norm", "conv", "gelu"]


def conv(chain: Chain, x: str, inputs: int = 3, outputs: int = 4) -> str:
    """A convolution of 3 x 3 with bias that keeps the lengths."""
    weights = chain.constant(outputs, inputs, 3, 3)
    return chain.node("Conv", x, weights, chain.constant(outputs), pads=[1, 1, 1, 1])


def batch_norm(chain: Chain, x: str, channels: int) -> str:
    """A normalisation by constants."""
    scale, bias, mean = (chain.constant(channels) for _ in range(3))
    variance = chain.constant(channels, low=0.3, high=2)
    return chain.node("BatchNormalization", x, scale, bias, mean, variance)


@chained("conv-bn-relu")
def conv_bn_relu(chain: Chain) -> None:
    y = chain.node("Relu", batch_norm(chain, conv(chain, chain.input(2, 3, 6, 5)), 4))
    chain.output(y)


@chained("conv-bn-relu-shared")
def conv_bn_relu_shared(chain: Chain) -> None:
    middle = conv(chain, chain.input(2, 3, 6, 5))
    chain.output(chain.node("Relu", batch_norm(chain, middle, 4)), middle)


@chained("conv-bn-dynamic-weights")
def conv_bn_dynamic(chain: Chain) -> None:
    x, weights = chain.input(1, 3, 5, 5), chain.input(4, 3, 3, 3)
    chain.output(batch_norm(chain, chain.node("Conv", x, weights), 4))


@chained("conv-add-relu-residual")
def residual(chain: Chain) -> None:
    x = chain.input(1, 4, 5, 5)
    first = chain.node("Relu", conv(chain, x, 4, 4))
    chain.output(chain.node("Relu", chain.node("Add", conv(chain, first, 4, 4), x)))


@chained("conv-bias-add-broadcast")
def conv_bias(chain: Chain) -> None:
    weights = chain.constant(4, 3, 3, 3)
    y = chain.node("Conv", chain.input(1, 3, 5, 5), weights)
    chain.output(chain.node("Add", y, chain.constant(4, 1, 1)))


@chained("conv-add-not-a-bias")
def conv_not_bias(chain: Chain) -> None:
    # Three values along the width, beside a channel count of three.
    y = chain.node("Conv", chain.input(1, 2, 5, 5), chain.constant(3, 2, 3, 3))
    chain.output(chain.node("Add", y, chain.constant(3)))


@chained("conv-mul-channel")
def conv_mul(chain: Chain) -> None:
    chain.output(chain.node("Mul", conv(chain, chain.input(1, 3, 5, 5)), chain.constant(4, 1, 1)))


@chained("pad-conv")
def pad_conv(chain: Chain) -> None:
    pads = chain.integers(0, 0, 1, 2, 0, 0, 0, 1)
    padded = chain.node("Pad", chain.input(1, 3, 5, 5), pads)
    chain.output(conv(chain, padded))


@chained("pad-value-conv")
def pad_value_conv(chain: Chain) -> None:
    pads = chain.integers(0, 0, 1, 1, 0, 0, 1, 1)
    padded = chain.node("Pad", chain.input(1, 3, 5, 5), pads, chain.scalar(1.5))
    chain.output(conv(chain, padded))


@chained("conv-clip")
def conv_clip(chain: Chain) -> None:
    y = conv(chain, chain.input(1, 3, 5, 5))
    chain.output(chain.node("Clip", y, chain.scalar(0.0), chain.scalar(6.0)))


@chained("conv-hardswish")
def conv_hardswish(chain: Chain) -> None:
    y = conv(chain, chain.input(1, 3, 5, 5))
    gate = chain.node("HardSigmoid", y, alpha=1 / 6, beta=0.5)
    chain.output(chain.node("Mul", y, gate))


@chained("matmul-add")
def matmul_add(chain: Chain) -> None:
    y = chain.node("MatMul", chain.input(2, 3, 8), chain.constant(8, 5))
    chain.output(chain.node("Add", y, chain.constant(5)))


@chained("matmul-add-gelu")
def matmul_add_gelu(chain: Chain) -> None:
    y = chain.node("MatMul", chain.input(2, 3, 8), chain.constant(8, 6))
    chain.output(gelu(chain, chain.node("Add", chain.constant(6), y)))


def gelu(chain: Chain, x: str) -> str:
    """Gelu, written out with Erf."""
    halves = chain.node("Erf", chain.node("Div", x, chain.scalar(np.sqrt(2.0))))
    one = chain.node("Add", halves, chain.scalar(1.0))
    return chain.node("Mul", chain.node("Mul", x, one), chain.scalar(0.5))


@chained("not-quite-gelu")
def not_gelu(chain: Chain) -> None:
    x = chain.input(4, 6)
    halves = chain.node("Erf", chain.node("Div", x, chain.scalar(1.5)))
    one = chain.node("Add", halves, chain.scalar(1.0))
    chain.output(chain.node("Mul", chain.node("Mul", x, one), chain.scalar(0.5)))


@chained("gelu-tanh")
def gelu_tanh(chain: Chain) -> None:
    x = chain.input(4, 6)
    cube = chain.node("Pow", x, chain.scalar(3.0))
    inner = chain.node("Add", x, chain.node("Mul", cube, chain.scalar(0.044715)))
    scaled = chain.node("Mul", inner, chain.scalar(np.sqrt(2 / np.pi)))
    one = chain.node("Add", chain.node("Tanh", scaled), chain.scalar(1.0))
    chain.output(chain.node("Mul", chain.node("Mul", x, one), chain.scalar(0.5)))


@chained("gemm-relu")
def gemm_relu(chain: Chain) -> None:
    y = chain.node("Gemm", chain.input(3, 5), chain.constant(4, 5), chain.constant(4), transB=1)
    chain.output(chain.node("Relu", y))


@chained("gemm-gemm")
def gemm_gemm(chain: Chain) -> None:
    y = chain.node("Gemm", chain.input(3, 5), chain.constant(5, 4), chain.constant(4))
    chain.output(chain.node("Gemm", y, chain.constant(4, 2), chain.constant(2)))


@chained("transpose-matmul")
def transpose_matmul(chain: Chain) -> None:
    turned = chain.node("Transpose", chain.input(2, 4, 3), perm=[0, 2, 1])
    chain.output(chain.node("MatMul", turned, chain.input(2, 4, 5)))


@chained("transpose-matmul-wrong-axes")
def transpose_matmul_wrong(chain: Chain) -> None:
    turned = chain.node("Transpose", chain.input(3, 2, 4), perm=[1, 0, 2])
    chain.output(chain.node("MatMul", turned, chain.input(2, 4, 5)))


@chained("double-transpose")
def double_transpose(chain: Chain) -> None:
    once = chain.node("Transpose", chain.input(2, 3, 4), perm=[2, 0, 1])
    chain.output(chain.node("Transpose", once, perm=[1, 2, 0]))


@chained("double-transpose-not-inverse")
def double_transpose_not(chain: Chain) -> None:
    once = chain.node("Transpose", chain.input(2, 3, 4), perm=[2, 0, 1])
    chain.output(chain.node("Transpose", once, perm=[2, 0, 1]))


@chained("transpose-elementwise-transpose")
def transpose_relu_transpose(chain: Chain) -> None:
    once = chain.node("Transpose", chain.input(1, 3, 4, 5), perm=[0, 2, 3, 1])
    shifted = chain.node("Add", chain.node("Relu", once), chain.constant(3))
    chain.output(chain.node("Transpose", shifted, perm=[0, 3, 1, 2]))


@chained("x-sigmoid-x")
def silu(chain: Chain) -> None:
    x = chain.input(3, 7)
    chain.output(chain.node("Mul", x, chain.node("Sigmoid", x)))


@chained("x-sigmoid-y")
def gate(chain: Chain) -> None:
    x, y = chain.input(3, 7), chain.input(3, 7)
    chain.output(chain.node("Mul", x, chain.node("Sigmoid", y)))


@chained("layer-norm")
def layer_norm(chain: Chain) -> None:
    chain.output(_layer_norm(chain, chain.input(2, 3, 8), -1))


@chained("layer-norm-other-axis")
def layer_norm_other(chain: Chain) -> None:
    # Scale and bias go over the last axis, the mean over another of the same length.
    chain.output(_layer_norm(chain, chain.input(2, 8, 8), 1))


def _layer_norm(chain: Chain, x: str, axis: int) -> str:
    mean = chain.node("ReduceMean", x, chain.integers(axis))
    centred = chain.node("Sub", x, mean)
    squares = chain.node("Pow", centred, chain.scalar(2.0))
    variance = chain.node("ReduceMean", squares, chain.integers(axis))
    deviation = chain.node("Sqrt", chain.node("Add", variance, chain.scalar(1e-3)))
    normal = chain.node("Div", centred, deviation)
    scaled = chain.node("Mul", normal, chain.constant(8))
    return chain.node("Add", scaled, chain.constant(8))


@chained("skip-layer-norm")
def skip_layer_norm(chain: Chain) -> None:
    added = chain.node("Add", chain.input(2, 3, 8), chain.input(2, 3, 8))
    scale, bias = chain.constant(8), chain.constant(8)
    chain.output(chain.node("LayerNormalization", added, scale, bias), added)


@chained("rms-norm")
def rms_norm(chain: Chain) -> None:
    x = chain.input(2, 3, 8)
    power = chain.node("ReduceMean", chain.node("Mul", x, x), chain.integers(-1))
    root = chain.node("Sqrt", chain.node("Add", power, chain.scalar(1e-3)))
    chain.output(chain.node("Mul", chain.node("Div", x, root), chain.constant(8)))


@chained("attention")
def attention(chain: Chain) -> None:
    q, k, v = (chain.input(2, 2, 3, 4) for _ in range(3))
    turned = chain.node("Transpose", k, perm=[0, 1, 3, 2])
    scores = chain.node("Mul", chain.node("MatMul", q, turned), chain.scalar(0.5))
    masked = chain.node("Add", scores, chain.input(2, 1, 3, 3))
    weights = chain.node("Softmax", masked, axis=-1)
    chain.output(chain.node("MatMul", weights, v))


@chained("attention-softmax-over-queries")
def attention_other_axis(chain: Chain) -> None:
    q, k, v = (chain.input(2, 2, 3, 4) for _ in range(3))
    turned = chain.node("Transpose", k, perm=[0, 1, 3, 2])
    weights = chain.node("Softmax", chain.node("MatMul", q, turned), axis=-2)
    chain.output(chain.node("MatMul", weights, v))


@chained("scale-shift")
def scale_shift(chain: Chain) -> None:
    scaled = chain.node("Mul", chain.input(2, 3, 4), chain.constant(3, 1))
    chain.output(chain.node("Add", scaled, chain.constant(4)))


@chained("clip-clip")
def clip_clip(chain: Chain) -> None:
    once = chain.node("Clip", chain.input(3, 7), chain.scalar(-1.0), chain.scalar(2.0))
    chain.output(chain.node("Clip", once, chain.scalar(-0.5), chain.scalar(3.0)))


@chained("reshape-reshape")
def reshape_reshape(chain: Chain) -> None:
    once = chain.node("Reshape", chain.input(2, 3, 4), chain.integers(6, 4))
    chain.output(chain.node("Reshape", once, chain.integers(0, 2, -1)))


@chained("squeeze-unsqueeze")
def squeeze_unsqueeze(chain: Chain) -> None:
    once = chain.node("Squeeze", chain.input(2, 1, 3, 1), chain.integers(1))
    chain.output(chain.node("Unsqueeze", once, chain.integers(0)))


@chained("concat-split")
def concat_split(chain: Chain) -> None:
    joined = chain.node("Concat", chain.input(2, 3), chain.input(2, 3), axis=1)
    first, second = chain.nodes("Split", 2, joined, axis=1, num_outputs=2)
    chain.output(second, first)


@chained("slice-concat")
def slice_concat(chain: Chain) -> None:
    x = chain.input(1, 2, 4, 4)
    parts = []
    for row in (0, 1):
        starts, ends = chain.integers(row), chain.integers(9)
        parts.append(chain.node("Slice", x, starts, ends, chain.integers(2), chain.integers(2)))
    chain.output(chain.node("Concat", *parts, axis=1))


@chained("shape-gather-reshape")
def shape_reshape(chain: Chain) -> None:
    x = chain.input(2, 3, 4)
    rows = chain.node("Gather", chain.node("Shape", x), chain.integers(0))
    target = chain.node("Concat", rows, chain.integers(-1), axis=0)
    chain.output(chain.node("Reshape", x, target))


@chained("identity-everywhere")
def identities(chain: Chain) -> None:
    x = chain.node("Identity", chain.input(3, 4))
    y = chain.node("Identity", chain.node("Relu", x))
    chain.output(chain.node("Identity", y), y, x)


@chained("same-twice")
def same_twice(chain: Chain) -> None:
    x = chain.input(3, 4)
    first, second = chain.node("Exp", x), chain.node("Exp", x)
    chain.output(chain.node("Sub", first, second), first)


@chained("mul-zero-nan")
def mul_zero(chain: Chain) -> None:
    # 0 * x isn't 0 where x is infinite.
    big = chain.node("Exp", chain.input(8, low=-200, high=200))
    chain.output(chain.node("Mul", big, chain.scalar(0.0)))


@chained("add-negative-zero")
def add_zero(chain: Chain) -> None:
    # x + 0 isn't x where x is -0.
    negative = chain.node("Neg", chain.node("Relu", chain.input(8)))
    chain.output(chain.node("Add", negative, chain.scalar(0.0)))


@chained("average-pool-flatten-gemm")
def head(chain: Chain) -> None:
    flat = chain.node("Flatten", chain.node("GlobalAveragePool", chain.input(2, 4, 3, 3)))
    y = chain.node("Gemm", flat, chain.constant(4, 3), chain.constant(3))
    chain.output(chain.node("LogSoftmax", y, axis=1))
