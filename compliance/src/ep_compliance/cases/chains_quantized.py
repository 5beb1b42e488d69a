"""Chains around quantization and casts."""

from __future__ import annotations

import numpy as np

from ep_compliance.cases.chaining import Chain, chained
from ep_core.types import DataType

__all__: list[str] = []


def _quantized(chain: Chain, x: str, scale: float = 0.05, zero_point: int = 7) -> str:
    parameters = [chain.scalar(scale), chain.scalar(zero_point, DataType.INT8)]
    return chain.node("DequantizeLinear", chain.node("QuantizeLinear", x, *parameters), *parameters)


@chained("qdq-matmul")
def qdq_matmul(chain: Chain) -> None:
    x = _quantized(chain, chain.input(3, 8))
    weights = _quantized(chain, chain.constant(8, 4), zero_point=0)
    chain.output(_quantized(chain, chain.node("MatMul", x, weights), 0.2))


@chained("qdq-conv-relu")
def qdq_conv(chain: Chain) -> None:
    x = _quantized(chain, chain.input(1, 3, 5, 5))
    weights = _quantized(chain, chain.constant(4, 3, 3, 3), zero_point=0)
    y = chain.node("Relu", chain.node("Conv", x, weights))
    chain.output(_quantized(chain, y, 0.3, -128))


@chained("qdq-add")
def qdq_add(chain: Chain) -> None:
    left = _quantized(chain, chain.input(3, 5))
    right = _quantized(chain, chain.input(3, 5), 0.03, -3)
    chain.output(_quantized(chain, chain.node("Add", left, right), 0.08, 2))


@chained("qdq-different-scales")
def qdq_mismatch(chain: Chain) -> None:
    # Q and DQ with different parameters are no identity, and none of them may be dropped.
    quantized = chain.node(
        "QuantizeLinear", chain.input(3, 5), chain.scalar(0.05), chain.scalar(7, DataType.INT8)
    )
    chain.output(
        chain.node(
            "DequantizeLinear", quantized, chain.scalar(0.07), chain.scalar(1, DataType.INT8)
        )
    )


@chained("qdq-transpose-reshape")
def qdq_movement(chain: Chain) -> None:
    x = chain.node("Transpose", _quantized(chain, chain.input(3, 4)), perm=[1, 0])
    chain.output(_quantized(chain, chain.node("Reshape", x, chain.integers(2, 6))))


@chained("qdq-pool")
def qdq_pool(chain: Chain) -> None:
    x = _quantized(chain, chain.input(1, 2, 4, 4))
    chain.output(_quantized(chain, chain.node("MaxPool", x, kernel_shape=[2, 2])))


@chained("qdq-gemm-bias")
def qdq_gemm(chain: Chain) -> None:
    # The bias is of int32, its scale the product of the other two.
    x = _quantized(chain, chain.input(3, 8))
    weights = _quantized(chain, chain.constant(8, 4), 0.01, 0)
    bias = chain.stored(np.array([-90, 0, 45, 1000], np.int32))
    scale = chain.scalar(0.05 * 0.01)
    y = chain.node("Gemm", x, weights, chain.node("DequantizeLinear", bias, scale))
    chain.output(_quantized(chain, y, 0.1))


@chained("qdq-weights-by-channel")
def qdq_channels(chain: Chain) -> None:
    codes = chain.stored(np.arange(-54, 54).reshape(4, 3, 3, 3).astype(np.int8))
    scales = chain.stored(np.array([0.01, 0.02, 0.005, 0.04]).astype(chain.dtype.numpy))
    weights = chain.node("DequantizeLinear", codes, scales, axis=0)
    x = _quantized(chain, chain.input(1, 3, 5, 5))
    chain.output(_quantized(chain, chain.node("Conv", x, weights), 0.3))


@chained("qdq-weights-by-input-channel")
def qdq_input_channels(chain: Chain) -> None:
    # Scales along the axis that is summed over can't be taken out of the sum.
    codes = chain.stored(np.arange(-16, 16).reshape(8, 4).astype(np.int8))
    scales = chain.stored((np.arange(1, 9) / 100).astype(chain.dtype.numpy))
    weights = chain.node("DequantizeLinear", codes, scales, axis=0)
    x = _quantized(chain, chain.input(3, 8))
    chain.output(_quantized(chain, chain.node("MatMul", x, weights), 0.1))


@chained("qdq-concat")
def qdq_concat(chain: Chain) -> None:
    left = _quantized(chain, chain.input(2, 3), 0.02, 0)
    right = _quantized(chain, chain.input(2, 2), 0.05, -9)
    chain.output(_quantized(chain, chain.node("Concat", left, right, axis=1), 0.04, 3))


@chained("qdq-mul")
def qdq_mul(chain: Chain) -> None:
    left = _quantized(chain, chain.input(3, 5), 0.03, -5)
    right = _quantized(chain, chain.input(5), 0.02, 11)
    chain.output(_quantized(chain, chain.node("Mul", left, right), 0.04))


@chained("qdq-average-pool")
def qdq_average(chain: Chain) -> None:
    # Not data movement: the mean lies between the steps.
    x = _quantized(chain, chain.input(1, 2, 4, 4))
    y = chain.node("AveragePool", x, kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    chain.output(_quantized(chain, y, 0.04))


@chained("qdq-clip")
def qdq_clip(chain: Chain) -> None:
    # The bounds lie within what the last step can hold, so that the clip can't be left to it.
    x = _quantized(chain, chain.input(3, 5))
    y = chain.node("Clip", x, chain.scalar(-0.5), chain.scalar(0.75))
    chain.output(_quantized(chain, y, 0.05, 0))


@chained("qdq-softmax")
def qdq_softmax(chain: Chain) -> None:
    y = chain.node("Softmax", _quantized(chain, chain.input(3, 6)), axis=-1)
    chain.output(_quantized(chain, y, 1 / 256, -128))


@chained("qdq-conv-shared")
def qdq_shared(chain: Chain) -> None:
    # The float result is an output too, and what it was made of feeds two nodes.
    x = _quantized(chain, chain.input(1, 3, 5, 5))
    y = chain.node("Conv", x, _quantized(chain, chain.constant(4, 3, 3, 3), zero_point=0))
    chain.output(_quantized(chain, y, 0.3), y, chain.node("Relu", x))


@chained("qdq-codes-are-output")
def qdq_codes(chain: Chain) -> None:
    parameters = [chain.scalar(0.05), chain.scalar(3, DataType.UINT8)]
    codes = chain.node("QuantizeLinear", chain.input(3, 5), *parameters)
    x = chain.node("DequantizeLinear", codes, *parameters)
    y = chain.node("MatMul", x, _quantized(chain, chain.constant(5, 4), zero_point=0))
    chain.output(chain.node("QuantizeLinear", y, *parameters), codes)


@chained("cast-cast")
def cast_cast(chain: Chain) -> None:
    # The way over int32 cuts fractions off, so that it can't be dropped.
    whole = chain.node("Cast", chain.input(3, 5), to=int(DataType.INT32))
    chain.output(chain.node("Cast", whole, to=int(chain.dtype)))


@chained("cast-narrow-cast")
def cast_narrow(chain: Chain) -> None:
    narrow = chain.node("Cast", chain.input(3, 5), to=int(DataType.BFLOAT16))
    chain.output(chain.node("Cast", narrow, to=int(chain.dtype)))
