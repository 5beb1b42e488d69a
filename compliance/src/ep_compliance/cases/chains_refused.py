"""Chains that look like a fusion and must not be fused, or not as usual: twins of the others.

A bias of another rank, an attribute that changes the meaning, an intermediate result that somebody
else reads too, an identity that isn't one.
"""

from __future__ import annotations

import numpy as np

from ep_compliance.cases.chaining import Chain, chained
from ep_compliance.cases.chains_float import batch_norm, conv, gelu

__all__: list[str] = []


# ---------------------------------------------------------------- who else reads it


@chained("matmul-add-gelu-shared")
def matmul_add_gelu_shared(chain: Chain) -> None:
    product = chain.node("MatMul", chain.input(2, 3, 8), chain.constant(8, 6))
    added = chain.node("Add", product, chain.constant(6))
    chain.output(gelu(chain, added), product, added)


@chained("conv-relu-shared-by-add")
def conv_relu_shared(chain: Chain) -> None:
    middle = conv(chain, chain.input(1, 4, 5, 5), 4, 4)
    chain.output(chain.node("Add", chain.node("Relu", middle), middle))


@chained("residual-of-itself")
def residual_of_itself(chain: Chain) -> None:
    y = conv(chain, chain.input(1, 4, 5, 5), 4, 4)
    chain.output(chain.node("Relu", chain.node("Add", y, y)))


@chained("residual-broadcast")
def residual_broadcast(chain: Chain) -> None:
    # The other side of the sum is larger than the convolution's result.
    y = conv(chain, chain.input(1, 3, 5, 5))
    chain.output(chain.node("Relu", chain.node("Add", y, chain.input(2, 4, 5, 5))))


@chained("residual-chain-outputs")
def residual_chain(chain: Chain) -> None:
    x = chain.input(2, 3, 6)
    first = chain.node("Add", x, chain.node("MatMul", x, chain.constant(6, 6)))
    second = chain.node("Add", first, chain.node("MatMul", first, chain.constant(6, 6)))
    chain.output(second, first)


@chained("x-sigmoid-x-shared")
def silu_shared(chain: Chain) -> None:
    x = chain.input(3, 7)
    gate = chain.node("Sigmoid", x)
    chain.output(chain.node("Mul", x, gate), gate)


@chained("layer-norm-shared")
def layer_norm_shared(chain: Chain) -> None:
    x = chain.input(2, 3, 8)
    centred = chain.node("Sub", x, chain.node("ReduceMean", x, chain.integers(-1)))
    squares = chain.node("Pow", centred, chain.scalar(2.0))
    variance = chain.node("ReduceMean", squares, chain.integers(-1))
    deviation = chain.node("Sqrt", chain.node("Add", variance, chain.scalar(1e-3)))
    normal = chain.node("Div", centred, deviation)
    scaled = chain.node("Add", chain.node("Mul", normal, chain.constant(8)), chain.constant(8))
    chain.output(scaled, variance, centred)


@chained("transpose-matmul-shared")
def transpose_matmul_shared(chain: Chain) -> None:
    turned = chain.node("Transpose", chain.input(2, 4, 3), perm=[0, 2, 1])
    chain.output(chain.node("MatMul", turned, chain.input(2, 4, 5)), turned)


@chained("pad-conv-shared")
def pad_conv_shared(chain: Chain) -> None:
    padded = chain.node("Pad", chain.input(1, 3, 5, 5), chain.integers(0, 0, 1, 1, 0, 0, 1, 1))
    chain.output(conv(chain, padded), padded)


@chained("weights-shared-by-batch-norms")
def weights_shared(chain: Chain) -> None:
    # Folding one normalisation into the weights would change the other convolution.
    weights, bias = chain.constant(3, 3, 3, 3), chain.constant(3)
    x = chain.input(1, 3, 5, 5)
    first = chain.node("Conv", x, weights, bias, pads=[1, 1, 1, 1])
    second = chain.node("Conv", first, weights, bias)
    chain.output(batch_norm(chain, first, 3), batch_norm(chain, second, 3))


# ---------------------------------------------------------------- a bias of another rank


@chained("matmul-add-matrix")
def matmul_add_matrix(chain: Chain) -> None:
    y = chain.node("MatMul", chain.input(3, 8), chain.constant(8, 3))
    chain.output(chain.node("Add", y, chain.constant(3, 3)))


@chained("matmul-add-column")
def matmul_add_column(chain: Chain) -> None:
    # As many values as columns, and yet one for each row.
    y = chain.node("MatMul", chain.input(4, 8), chain.constant(8, 4))
    chain.output(chain.node("Add", y, chain.constant(4, 1)))


@chained("matmul-add-higher-rank")
def matmul_add_higher(chain: Chain) -> None:
    y = chain.node("MatMul", chain.input(3, 8), chain.constant(8, 4))
    chain.output(chain.node("Add", y, chain.constant(2, 1, 4)))


@chained("matmul-add-scalar")
def matmul_add_scalar(chain: Chain) -> None:
    y = chain.node("MatMul", chain.input(3, 8), chain.constant(8, 4))
    chain.output(chain.node("Add", y, chain.constant(1)))


@chained("matmul-vector-add")
def matmul_vector(chain: Chain) -> None:
    y = chain.node("MatMul", chain.input(3, 8), chain.constant(8))
    chain.output(chain.node("Add", y, chain.constant(3)))


@chained("conv-add-whole-image")
def conv_add_image(chain: Chain) -> None:
    y = chain.node("Conv", chain.input(2, 3, 5, 5), chain.constant(4, 3, 3, 3))
    chain.output(chain.node("Add", y, chain.constant(1, 4, 3, 3)))


@chained("conv-mul-batch")
def conv_mul_batch(chain: Chain) -> None:
    # One factor for each image, of which there are as many as channels.
    y = conv(chain, chain.input(4, 3, 5, 5))
    chain.output(chain.node("Mul", y, chain.constant(4, 1, 1, 1)))


# ---------------------------------------------------------------- attributes


@chained("gemm-alpha-beta-add")
def gemm_factors(chain: Chain) -> None:
    inputs = [chain.input(5, 3), chain.constant(5, 4), chain.constant(3, 1)]
    y = chain.node("Gemm", *inputs, transA=1, alpha=0.5, beta=2.0)
    chain.output(chain.node("Add", y, chain.constant(4)))


@chained("batch-norm-padded-conv")
def norm_conv(chain: Chain) -> None:
    # The padding isn't normalised, so the normalisation can't go into weights and bias.
    chain.output(conv(chain, batch_norm(chain, chain.input(1, 3, 5, 5), 3)))


@chained("depthwise-conv-bn")
def depthwise(chain: Chain) -> None:
    weights = chain.constant(6, 1, 3, 3)
    y = chain.node("Conv", chain.input(1, 3, 6, 6), weights, group=3, strides=[2, 1])
    chain.output(batch_norm(chain, y, 6))


@chained("conv-transpose-bn")
def conv_transpose_bn(chain: Chain) -> None:
    # Output channels are the second axis of the weights, and times the groups.
    weights = chain.constant(4, 3, 3, 3)
    y = chain.node("ConvTranspose", chain.input(1, 4, 4, 4), weights, group=2, strides=[2, 2])
    chain.output(chain.node("Relu", batch_norm(chain, y, 6)))


@chained("pad-reflect-conv")
def pad_reflect(chain: Chain) -> None:
    pads = chain.integers(0, 0, 1, 1, 0, 0, 1, 1)
    chain.output(conv(chain, chain.node("Pad", chain.input(1, 3, 5, 5), pads, mode="reflect")))


@chained("pad-channels-conv")
def pad_channels(chain: Chain) -> None:
    pads = chain.integers(0, 1, 0, 0, 0, 0, 1, 1)
    chain.output(conv(chain, chain.node("Pad", chain.input(1, 2, 5, 5), pads)))


@chained("pad-negative-conv")
def pad_negative(chain: Chain) -> None:
    pads = chain.integers(0, 0, -1, 1, 0, 0, 1, -1)
    chain.output(conv(chain, chain.node("Pad", chain.input(1, 3, 6, 6), pads)))


@chained("pad-average-pool")
def pad_average(chain: Chain) -> None:
    # These zeros count as values of the image, padding of the pool doesn't.
    padded = chain.node("Pad", chain.input(1, 2, 5, 5), chain.integers(0, 0, 1, 1, 0, 0, 1, 1))
    chain.output(chain.node("AveragePool", padded, kernel_shape=[3, 3], strides=[2, 2]))


@chained("pad-max-pool")
def pad_max(chain: Chain) -> None:
    # Below zero the padding of Pad wins, that of the pool never does.
    negative = chain.input(1, 2, 5, 5, low=-3, high=-1)
    padded = chain.node("Pad", negative, chain.integers(0, 0, 1, 1, 0, 0, 1, 1))
    chain.output(chain.node("MaxPool", padded, kernel_shape=[2, 2]))


@chained("conv-clip-above-zero")
def conv_clip_above(chain: Chain) -> None:
    y = chain.node("Relu", conv(chain, chain.input(1, 3, 5, 5)))
    chain.output(chain.node("Clip", y, chain.scalar(0.25), chain.scalar(0.5)))


@chained("relu-clip-below-zero")
def relu_clip_below(chain: Chain) -> None:
    y = chain.node("Relu", chain.input(3, 5))
    chain.output(chain.node("Clip", y, chain.scalar(-2.0), chain.scalar(-1.0)))


@chained("layer-norm-two-axes")
def layer_norm_two_axes(chain: Chain) -> None:
    x, axes = chain.input(2, 3, 4), chain.integers(-2, -1)
    centred = chain.node("Sub", x, chain.node("ReduceMean", x, axes))
    variance = chain.node("ReduceMean", chain.node("Mul", centred, centred), axes)
    deviation = chain.node("Sqrt", chain.node("Add", variance, chain.scalar(1e-3)))
    chain.output(chain.node("Mul", chain.node("Div", centred, deviation), chain.constant(4)))


@chained("rms-norm-sum")
def rms_norm_sum(chain: Chain) -> None:
    # A sum where the pattern has a mean.
    x = chain.input(2, 3, 8)
    power = chain.node("ReduceSum", chain.node("Mul", x, x), chain.integers(-1))
    root = chain.node("Sqrt", chain.node("Add", power, chain.scalar(1e-3)))
    chain.output(chain.node("Mul", chain.node("Div", x, root), chain.constant(8)))


@chained("attention-masked")
def attention_masked(chain: Chain) -> None:
    q, k, v = (chain.input(1, 2, 4, 4) for _ in range(3))
    scores = chain.node("MatMul", q, chain.node("Transpose", k, perm=[0, 1, 3, 2]))
    lower = np.tril(np.ones((4, 4), bool))
    masked = chain.node("Where", chain.stored(lower), scores, chain.scalar(-1e4))
    weights = chain.node("Softmax", chain.node("Div", masked, chain.scalar(2.0)), axis=-1)
    chain.output(chain.node("MatMul", weights, v), weights)


# ---------------------------------------------------------------- no identities


@chained("mul-one-broadcast")
def mul_one(chain: Chain) -> None:
    # A product with ones that makes the value larger.
    ones = chain.stored(np.ones((3, 1), chain.dtype.numpy))
    chain.output(chain.node("Mul", chain.node("Relu", chain.input(4)), ones))


@chained("reshape-zero-keeps")
def reshape_zero(chain: Chain) -> None:
    turned = chain.node("Transpose", chain.input(2, 3, 4), perm=[1, 0, 2])
    chain.output(chain.node("Reshape", turned, chain.integers(0, 0, 4)))


@chained("transpose-of-ones")
def transpose_ones(chain: Chain) -> None:
    # Moves no element, and yet isn't the same shape.
    once = chain.node("Transpose", chain.input(1, 5, 1), perm=[2, 0, 1])
    chain.output(chain.node("Add", once, chain.constant(1, 1, 5)))


@chained("split-concat-swapped")
def split_concat(chain: Chain) -> None:
    first, second = chain.nodes("Split", 2, chain.input(2, 6), axis=1, num_outputs=2)
    chain.output(chain.node("Concat", second, first, axis=1))


@chained("slice-slice-reverse")
def slice_slice(chain: Chain) -> None:
    x = chain.input(7)
    back = [chain.integers(n) for n in (-1, -(2**31), 0, -1)]
    once = chain.node("Slice", x, *back)
    chain.output(chain.node("Slice", once, *(chain.integers(n) for n in (1, 6, 0, 2))))


@chained("sub-not-commutative")
def sub_constant(chain: Chain) -> None:
    y = chain.node("MatMul", chain.input(3, 8), chain.constant(8, 4))
    chain.output(chain.node("Sub", chain.constant(4), y))


@chained("concat-relu-alias")
def concat_alias(chain: Chain) -> None:
    # Both halves of the result come from one value, which is needed afterwards.
    x = chain.input(2, 3)
    joined = chain.node("Concat", x, x, axis=0)
    chain.output(chain.node("Relu", joined), chain.node("Neg", x))
