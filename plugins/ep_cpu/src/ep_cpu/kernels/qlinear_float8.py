"""QLinearMatMul where an operand or the result is float8, whose products aren't integers."""

from __future__ import annotations

import numpy as np

from ep_cpu.kernels.matmul import matmul
from ep_cpu.kernels.quantize import quantize
from ep_cpu.kernels.support import Array
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_FLOAT32 = np.dtype(np.float32)


def _per_row(parameter: Array, rank: int) -> Array:
    """One value per row comes as a vector and goes to the last axis but one."""
    by_rows = parameter.ndim == 1 and parameter.size > 1 and rank > 1
    return parameter[:, None] if by_rows else parameter


def _dequantized(x: Array, scale: Array, zero: Array) -> Array:
    return np.asarray((x.astype(_FLOAT32) - zero.astype(_FLOAT32)) * scale.astype(_FLOAT32))


@TABLE.kernel("QLinearMatMul", since=21)
def _qlinear_matmul_float8(node: KernelNode) -> Kernel:
    def run(
        a: Array,
        a_scale: Array,
        a_zero: Array,
        b: Array,
        b_scale: Array,
        b_zero: Array,
        y_scale: Array,
        y_zero: Array,
    ) -> Array:
        left = _dequantized(a, _per_row(a_scale, a.ndim), _per_row(a_zero, a.ndim))
        product = matmul(left, _dequantized(b, b_scale, b_zero))
        scale = _per_row(y_scale, product.ndim)
        zero = _per_row(y_zero, product.ndim)
        return quantize(product, scale, zero, y_zero.dtype, _FLOAT32)

    return run
