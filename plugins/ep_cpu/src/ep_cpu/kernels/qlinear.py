"""Arithmetic on quantised integers: MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv.

Products of 8-bit integers go through floating-point BLAS, in a type that holds every sum exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.conv import Convolution
from ep_cpu.kernels.matmul import matmul
from ep_cpu.kernels.quantize import saturated
from ep_cpu.kernels.support import Array, scalar
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_EIGHT_BIT = {DataType.INT8, DataType.UINT8}
# 255 * 255 * depth must stay below 2**24 for exact sums in float32.
_FLOAT32_DEPTH = (1 << 24) // (255 * 255)


def exact_type(depth: int) -> type[np.floating[Any]]:
    """A float type in which `depth` products of 8-bit integers add up exactly."""
    return np.float32 if depth <= _FLOAT32_DEPTH else np.float64


def _offset(values: Array, zero_point: Array | None, kind: type[np.floating[Any]]) -> Array:
    wide = values.astype(kind)
    if zero_point is not None:
        wide -= zero_point.astype(kind)
    return wide


def _wrapped(sums: Array) -> Array:
    """Exact sums as int32; beyond 32 bits they wrap around."""
    return sums.astype(np.int64).astype(np.int32)


# ---------------------------------------------------------------- matrices


def _row_zero_point(zero_point: Array | None, rank: int) -> Array | None:
    """One zero point per row of `a` comes as a vector and goes to the last axis but one."""
    if zero_point is None or zero_point.ndim != 1 or zero_point.size == 1 or rank < 2:
        return zero_point
    return zero_point[:, None]


def integer_matmul(
    a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    """(a - a_zero) @ (b - b_zero) of 8-bit integers, exact, as float."""
    if a.ndim == 0 or b.ndim == 0:
        raise RunError("a product needs at least one dimension", got=(a.shape, b.shape))
    kind = exact_type(a.shape[-1])
    left = _offset(a, _row_zero_point(a_zero, a.ndim), kind)
    return matmul(left, _offset(b, b_zero, kind))


def integer_product(
    node: KernelNode, weight_index: int, zero_index: int
) -> Callable[[Array, Array, Array | None, Array | None], Array]:
    """`integer_matmul`, with the second operand prepared here if it is constant.

    Args:
        node: the node.
        weight_index: position of the second operand.
        zero_index: position of its zero point.
    """
    weight, zero = _constant(node, weight_index), _constant(node, zero_index)
    fixed_zero = zero is not None or not node.has_input(zero_index)
    if weight is None or not fixed_zero or weight.ndim < 2:
        return integer_matmul
    prepared = _offset(weight, zero, exact_type(weight.shape[-2]))

    def run(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
        if a.ndim == 0:
            return integer_matmul(a, b, a_zero, b_zero)
        left = _offset(a, _row_zero_point(a_zero, a.ndim), prepared.dtype.type)
        return matmul(left, prepared)

    return run


@TABLE.kernel("MatMulInteger", since=10)
def _matmul_integer(node: KernelNode) -> Kernel:
    product = integer_product(node, 1, 3)

    def run(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
        return _wrapped(product(a, b, a_zero, b_zero))

    return run


def _constant(node: KernelNode, index: int) -> Array | None:
    return node.constants[index] if index < len(node.constants) else None


def _per_row(parameter: Array) -> Array:
    return parameter[:, None] if parameter.ndim == 1 and parameter.size > 1 else parameter


@TABLE.kernel(
    "QLinearMatMul", since=10, types={"T1": _EIGHT_BIT, "T2": _EIGHT_BIT, "T3": _EIGHT_BIT}
)
def _qlinear_matmul(node: KernelNode) -> Kernel:
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
        sums = integer_matmul(a, b, a_zero, b_zero)
        factor: Array = _per_row(a_scale).astype(np.float32) * b_scale.astype(np.float32)
        factor = factor / _per_row(y_scale).astype(np.float32)
        return saturated(np.asarray(sums * factor), _per_row(y_zero), y_zero.dtype)

    return run


# ---------------------------------------------------------------- convolutions


def _per_filter(parameter: Array | None, weight: Array) -> Array | None:
    """A scalar, or one value per filter in a shape that broadcasts with the weight."""
    if parameter is None or parameter.size == 1:
        return None if parameter is None else parameter.reshape(())
    if parameter.shape != (weight.shape[0],):
        raise RunError(
            "wrong shape of a weight's scale or zero point",
            expected=(weight.shape[0],),
            got=parameter.shape,
        )
    return parameter.reshape(-1, *[1] * (weight.ndim - 1))


def _integer_conv(
    convolution: Convolution,
    x: Array,
    weight: Array,
    x_zero: Array | None,
    weight_zero: Array | None,
) -> Array:
    kind = exact_type(math.prod(weight.shape[1:]))
    shifted = _offset(x, None if x_zero is None else x_zero.reshape(()), kind)
    filters = _offset(weight, _per_filter(weight_zero, weight), kind)
    return convolution(shifted, convolution.filters(filters), None)


@TABLE.kernel("ConvInteger", since=10)
def _conv_integer(node: KernelNode) -> Kernel:
    convolution = Convolution(node)

    def run(
        x: Array, weight: Array, x_zero: Array | None = None, weight_zero: Array | None = None
    ) -> Array:
        return _wrapped(_integer_conv(convolution, x, weight, x_zero, weight_zero))

    return run


@TABLE.kernel("QLinearConv", since=10)
def _qlinear_conv(node: KernelNode) -> Kernel:
    convolution = Convolution(node)

    def run(
        x: Array,
        x_scale: Array,
        x_zero: Array,
        weight: Array,
        weight_scale: Array,
        weight_zero: Array,
        y_scale: Array,
        y_zero: Array,
        bias: Array | None = None,
    ) -> Array:
        sums = _integer_conv(convolution, x, weight, x_zero, weight_zero)
        spatial = (1,) * (x.ndim - 2)
        if bias is not None:
            sums = sums.astype(np.float64) + bias.reshape(-1, *spatial)
        factor = np.float32(scalar(x_scale)) * weight_scale / np.float32(scalar(y_scale))
        if factor.size > 1:
            factor = factor.reshape(-1, *spatial)
        return saturated(np.asarray(sums * factor), y_zero.reshape(()), y_zero.dtype)

    return run
