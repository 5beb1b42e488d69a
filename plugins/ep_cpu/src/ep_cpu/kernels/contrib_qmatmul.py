"""com.microsoft: products of matrices of 8-bit integers, scaled to floats or quantised again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.qlinear import integer_matmul, integer_product
from ep_cpu.kernels.quantize import dynamic_parameters, quantize, saturated
from ep_cpu.kernels.support import Array, scalar, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_EIGHT_BIT = frozenset({DataType.INT8, DataType.UINT8})


def _scaled(sums: Array, scale: Array, bias: Array | None, dtype: np.dtype[Any]) -> Array:
    """Whole sums times a scale that broadcasts, and the bias."""
    result = np.asarray(sums.astype(np.float32) * scale)
    if bias is not None:
        result = np.asarray(result + widen(bias))
    return result.astype(dtype, copy=False)


@TABLE.kernel(
    "MatMulIntegerToFloat",
    domain="com.microsoft",
    types={0: _EIGHT_BIT, 1: _EIGHT_BIT, 2: {DataType.FLOAT, DataType.FLOAT16}},
)
def _matmul_integer_to_float(node: KernelNode) -> Kernel:
    product = integer_product(node, 1, 5)

    def run(
        a: Array,
        b: Array,
        a_scale: Array,
        b_scale: Array,
        a_zero: Array | None = None,
        b_zero: Array | None = None,
        bias: Array | None = None,
    ) -> Array:
        sums = product(a, b, a_zero, b_zero)
        return _scaled(sums, widen(a_scale) * widen(b_scale), bias, a_scale.dtype)

    return run


@TABLE.kernel(
    "DynamicQuantizeMatMul",
    domain="com.microsoft",
    types={0: {DataType.FLOAT}, 1: _EIGHT_BIT},
)
def _dynamic_quantize_matmul(node: KernelNode) -> Kernel:
    product = integer_product(node, 1, 3)
    uint8 = np.dtype(np.uint8)

    def run(
        a: Array,
        b: Array,
        b_scale: Array,
        b_zero: Array | None = None,
        bias: Array | None = None,
    ) -> Array:
        scale, zero = dynamic_parameters(a)
        zero_point = np.array(zero, np.uint8)
        codes = quantize(a, np.asarray(scale), zero_point, uint8, np.dtype(np.float32))
        sums = product(codes, b, zero_point, b_zero)
        return _scaled(sums, scale * b_scale, bias, a.dtype)

    return run


def _per_column(values: Array, columns: int, what: str) -> Array:
    if values.size not in (1, columns):
        raise RunError(f"wrong shape of {what}", expected=f"1 or {columns}", got=values.shape)
    return values.reshape(-1)


@TABLE.kernel("QGemm", domain="com.microsoft", types={0: _EIGHT_BIT, 3: _EIGHT_BIT})
def _qgemm(node: KernelNode) -> Kernel:
    """(A - a_zero) (B - b_zero) + C in whole numbers, times alpha and the scales."""
    alpha = np.float32(node.attr("alpha", 1.0))
    transpose_a = bool(node.attr("transA", 0))
    transpose_b = bool(node.attr("transB", 0))

    def run(*inputs: Any) -> Array:
        a, a_scale, a_zero, b, b_scale, b_zero = inputs[:6]
        c, y_scale, y_zero = (*inputs[6:], None, None, None)[:3]
        if a.ndim != 2 or b.ndim != 2:
            raise RunError("QGemm needs two matrices", got=(a.shape, b.shape))
        left = a.T if transpose_a else a
        right = b.T if transpose_b else b
        columns = right.shape[1]
        zero = None if b_zero is None else _per_column(b_zero, columns, "b_zero_point")
        sums = integer_matmul(left, right, a_zero, zero)
        if c is not None:
            sums = sums.astype(np.float64) + c
        b_scales = _per_column(b_scale, columns, "b_scale")
        real = np.asarray(sums * (alpha * np.float32(scalar(a_scale, "a_scale")) * b_scales))
        real = real.astype(np.float32, copy=False)
        if y_scale is None:
            return real
        dtype = a.dtype if y_zero is None else y_zero.dtype
        codes = np.asarray(real / np.float32(scalar(y_scale, "y_scale")))
        return saturated(codes, None if y_zero is None else y_zero.reshape(()), dtype)

    return run
