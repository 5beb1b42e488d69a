"""Chains around quantization and casts."""

from __future__ import annotations

from ep_compliance.chaining import Chain, chained
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


@chained("cast-cast")
def cast_cast(chain: Chain) -> None:
    # The way over int32 cuts fractions off, so that it can't be dropped.
    whole = chain.node("Cast", chain.input(3, 5), to=int(DataType.INT32))
    chain.output(chain.node("Cast", whole, to=int(chain.dtype)))


@chained("cast-narrow-cast")
def cast_narrow(chain: Chain) -> None:
    narrow = chain.node("Cast", chain.input(3, 5), to=int(DataType.BFLOAT16))
    chain.output(chain.node("Cast", narrow, to=int(chain.dtype)))
