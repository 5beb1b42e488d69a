"""Between floats and integers: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.cast import cast
from ep_cpu.kernels.support import Array, attribute_dtype, check_axis
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["dynamic_parameters", "integer_range", "quantize", "saturated"]

_DIVISION_TYPES = frozenset(
    np.dtype(kind) for kind in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
)
_NARROW_RANGES = {
    np.dtype(ml_dtypes.int4): (-8, 7),
    np.dtype(ml_dtypes.uint4): (0, 15),
    np.dtype(ml_dtypes.int2): (-2, 1),
    np.dtype(ml_dtypes.uint2): (0, 3),
}


def integer_range(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Smallest and largest value of an integer type, None for other types."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    return _NARROW_RANGES.get(dtype)


def saturated(values: Array, zero_point: Array | None, dtype: np.dtype[Any]) -> Array:
    """Round half to even, add the zero point, saturate. `values` is float and is overwritten."""
    limits = integer_range(dtype)
    if limits is None:
        raise RunError("not an integer type", got=dtype)
    np.rint(values, out=values)
    if zero_point is not None:
        np.add(values, zero_point.astype(values.dtype), out=values)
    np.clip(values, *limits, out=values)
    if dtype.kind in "iu":
        return values.astype(dtype)
    return values.astype(np.int8).astype(dtype)


def spread(parameter: Array, x: Array, axis: int, block: int) -> Array:
    """A scale or zero point in a shape that broadcasts with `x`.

    Raises:
        RunError: its shape fits neither a tensor, an axis nor blocks of `x`.
    """
    if parameter.size == 1 and block == 0:
        return parameter.reshape(())
    along = check_axis(axis, x.ndim)
    length = x.shape[along]
    if block > 0:
        expected = list(x.shape)
        expected[along] = -(-length // block)
        if list(parameter.shape) != expected:
            raise RunError("wrong shape of a blocked scale", expected=expected, got=parameter.shape)
        repeated = np.repeat(parameter, block, axis=along)
        return repeated[(slice(None),) * along + (slice(0, length),)]
    if parameter.shape != (length,):
        raise RunError(
            "wrong shape of a scale or zero point", expected=(length,), got=parameter.shape
        )
    return parameter.reshape(-1, *[1] * (x.ndim - along - 1))


def quantize(
    x: Array,
    scale: Array,
    zero_point: Array | None,
    dtype: np.dtype[Any],
    division: np.dtype[Any],
    saturate: bool = True,
) -> Array:
    """saturate(round(x / scale) + zero_point); scale and zero point broadcast with `x`."""
    quotient = np.asarray(np.divide(x.astype(division), scale.astype(division)))
    if integer_range(dtype) is None:
        if zero_point is not None:
            quotient = np.asarray(quotient + zero_point.astype(division))
        return cast(quotient, dtype, saturate)
    # 16-bit floats can't hold every sum of a rounded quotient and a zero point.
    wide = np.float64 if division == np.float64 else np.float32
    return saturated(quotient.astype(wide, copy=False), zero_point, dtype)


@TABLE.kernel("QuantizeLinear", since=10)
@TABLE.kernel("QuantizeLinear", domain="com.microsoft")
def _quantize_linear(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 1))
    block = int(node.attr("block_size", 0))
    saturate = bool(node.attr("saturate", 1))
    output = int(node.attr("output_dtype", 0))
    precision = int(node.attr("precision", 0))

    def run(x: Array, scale: Array, zero_point: Array | None = None) -> Array:
        if zero_point is not None:
            dtype = zero_point.dtype
        else:
            dtype = attribute_dtype(output) if output else np.dtype(np.uint8)
        division = attribute_dtype(precision) if precision else scale.dtype
        if division not in _DIVISION_TYPES:
            division = np.dtype(np.float32)
        factor = spread(scale, x, axis, block)
        zero = None if zero_point is None else spread(zero_point, x, axis, block)
        return quantize(x, factor, zero, dtype, division, saturate)

    return run


@TABLE.kernel("DequantizeLinear", since=10)
@TABLE.kernel("DequantizeLinear", domain="com.microsoft")
def _dequantize_linear(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 1))
    block = int(node.attr("block_size", 0))
    output = int(node.attr("output_dtype", 0))

    def run(x: Array, scale: Array, zero_point: Array | None = None) -> Array:
        dtype = attribute_dtype(output) if output else scale.dtype
        if dtype not in _DIVISION_TYPES:
            dtype = np.dtype(np.float32)
        factor = spread(scale, x, axis, block).astype(np.float32)
        # A difference of 32-bit integers is exact only before it becomes a float.
        exact = np.float64 if x.dtype == np.int32 else np.float32
        wide = x.astype(exact)
        if zero_point is not None:
            np.subtract(wide, spread(zero_point, x, axis, block).astype(exact), out=wide)
        result = wide.astype(np.float32, copy=False)
        return np.multiply(result, factor).astype(dtype, copy=False)

    return run


def dynamic_parameters(x: Array) -> tuple[np.float32, int]:
    """Scale and uint8 zero point that cover the values of `x` and 0.

    Raises:
        RunError: a value is NaN or infinite.
    """
    low = np.float32(x.min(initial=0))
    high = np.float32(x.max(initial=0))
    if low == high:
        return np.float32(1), 0
    scale = np.float32((high - low) / np.float32(255))
    if not math.isfinite(scale):
        raise RunError("only finite values can be quantised", got=f"{low} to {high}")
    return scale, min(max(round(float(-low / scale)), 0), 255)


@TABLE.kernel("DynamicQuantizeLinear", since=11)
def _dynamic_quantize_linear(node: KernelNode) -> Kernel:
    uint8 = np.dtype(np.uint8)

    def run(x: Array) -> tuple[Array, Array, Array]:
        scale, zero = dynamic_parameters(x)
        zero_point = np.array(zero, np.uint8)
        return saturated(np.asarray(x / scale), zero_point, uint8), np.asarray(scale), zero_point

    return run
