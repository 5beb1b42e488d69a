"""Conversion between element types: Cast, CastLike, BitCast."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.support import HALF, Array, attribute_dtype, is_numpys, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["cast", "to_float8"]

_FLOAT8 = frozenset(
    np.dtype(kind)
    for kind in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
)
_EXPONENT_ONLY = np.dtype(ml_dtypes.float8_e8m0fnu)
_FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)
_NARROW_INTEGER_BITS = {
    np.dtype(ml_dtypes.int4): 4,
    np.dtype(ml_dtypes.uint4): 4,
    np.dtype(ml_dtypes.int2): 2,
    np.dtype(ml_dtypes.uint2): 2,
}


def cast(x: Array, dtype: np.dtype[Any], saturate: bool = True, round_mode: str = "up") -> Array:
    """Convert by the rules of the operator Cast.

    Args:
        x: values of any type.
        dtype: the type to convert to.
        saturate: float8 types: a value out of range becomes the largest, not NaN or infinity.
        round_mode: float8e8m0 only: `up`, `down` or `nearest`.

    Raises:
        RunError: a string that is no number.
    """
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "O":
        return _from_strings(x, dtype, saturate, round_mode)
    if dtype.kind == "O":
        return _to_strings(x)
    if dtype == _EXPONENT_ONLY:
        return to_exponent(_plain(x), saturate, round_mode)
    if dtype in _FLOAT8:
        return to_float8(_plain(x), dtype, saturate)
    if not is_numpys(dtype):
        x = _plain(x)
    if dtype in _NARROW_INTEGER_BITS and x.dtype.kind not in "iub":
        x = x.astype(np.int32)
    return x.astype(dtype)


def _plain(x: Array) -> Array:
    """`x` in a type of numpy's own that holds its values."""
    if is_numpys(x.dtype):
        return x
    return x.astype(np.int8 if x.dtype in _NARROW_INTEGER_BITS else np.float32)


def to_float8(x: Array, dtype: np.dtype[Any], saturate: bool) -> Array:
    """Floats or integers to one of the four float8 types; NaN stays NaN."""
    if saturate:
        # The cast itself would give NaN or infinity; rounding can't leave the range again.
        info: Any = ml_dtypes.finfo
        top = float(info(dtype).max)
        wide = x if x.dtype.kind == "f" else x.astype(np.float64)
        x = np.clip(wide, -top, top)
    return x.astype(dtype)


def to_exponent(x: Array, saturate: bool, round_mode: str) -> Array:
    """Positive values to float8e8m0, which has powers of two only (exponents -127 to 127)."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    # frexp gives 0.5 <= mantissa < 1, so that the power of two below is one less.
    power = exponent.astype(np.int64) - 1
    if round_mode == "up":
        power += mantissa > 0.5
    elif round_mode == "nearest":
        power += mantissa >= 0.75
    low, high = -127, 127
    zero = x == 0
    power = np.where(zero, low - 1, np.where(np.isinf(x), high + 1, power))
    outside = (power < low) | (power > high)
    code = (np.clip(power, low, high) + 127).astype(np.uint8)
    bad = np.isnan(x) if saturate else np.isnan(x) | outside
    return np.where(bad, np.uint8(255), code).view(_EXPONENT_ONLY)


_SPECIAL_NAMES = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}


def _to_strings(x: Array) -> Array:
    plain = _plain(x)
    if plain.dtype.kind == "b":
        plain = plain.astype(np.uint8)
    names = plain.astype(np.str_).astype(object)
    if plain.dtype.kind == "f":
        flat = [_SPECIAL_NAMES.get(name, name) for name in names.reshape(-1)]
        names = np.array(flat, dtype=object).reshape(x.shape)
    return names


def _from_strings(x: Array, dtype: np.dtype[Any], saturate: bool, round_mode: str) -> Array:
    try:
        if dtype.kind in "iu" or dtype in _NARROW_INTEGER_BITS:
            numbers: list[Any] = [_whole(value) for value in x.reshape(-1)]
            wide = np.array(numbers, dtype=object).astype(np.int64 if dtype.kind != "u" else "u8")
        else:
            numbers = [float(value) for value in x.reshape(-1)]
            wide = np.array(numbers, dtype=np.float64)
    except (ValueError, OverflowError) as error:
        raise RunError(f"a string can't be cast to {dtype}: {error}") from None
    return cast(wide.reshape(x.shape), dtype, saturate, round_mode)


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        number = float(value)
        if not math.isfinite(number):
            raise
        return int(number)


def _legacy_target(value: Any) -> np.dtype[Any]:
    """Cast-1 names its target type; later versions number it."""
    if isinstance(value, str | bytes):
        name = text(value).upper()
        if name not in DataType.__members__:
            raise RunError("unknown target type of Cast", got=name)
        return DataType[name].numpy
    return attribute_dtype(int(value))


@TABLE.kernel("Cast", view=True)
def _cast(node: KernelNode) -> Kernel:
    target = _legacy_target(node.attr("to"))
    saturate = bool(node.attr("saturate", 1))
    round_mode = text(node.attr("round_mode", "up"))
    simple = target in HALF or (is_numpys(target) and target.kind in "fiub")

    def run(x: Array) -> Array:
        if x.dtype == target:
            return x
        # A view kernel sees to warnings itself: NaN to integers, large numbers to float16.
        with np.errstate(all="ignore"):
            if simple and x.dtype.kind in "fiub" and is_numpys(x.dtype):
                return x.astype(target)
            return cast(x, target, saturate, round_mode)

    return run


@TABLE.kernel("CastLike", since=15, view=True)
def _cast_like(node: KernelNode) -> Kernel:
    saturate = bool(node.attr("saturate", 1))
    round_mode = text(node.attr("round_mode", "up"))

    def run(x: Array, like: Array) -> Array:
        with np.errstate(all="ignore"):
            return cast(x, like.dtype, saturate, round_mode)

    return run


# ---------------------------------------------------------------- bits


def _bits(dtype: np.dtype[Any]) -> int:
    return 4 if dtype == _FLOAT4 else _NARROW_INTEGER_BITS.get(dtype, dtype.itemsize * 8)


def bit_cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """The same bits read as another type of the same width.

    Raises:
        RunError: the widths differ.
    """
    width = _bits(x.dtype)
    if width != _bits(dtype) or "O" in (x.dtype.kind, dtype.kind):
        raise RunError("BitCast needs types of one width", got=f"{x.dtype} to {dtype}")
    if width >= 8:
        return np.ascontiguousarray(x).view(dtype).reshape(x.shape)
    # A narrow element lies in a byte of its own; integers are sign-extended there.
    wide = x.view(np.uint8) if x.dtype == _FLOAT4 else x.astype(np.int8).view(np.uint8)
    code = wide & np.uint8((1 << width) - 1)
    return code.view(dtype) if dtype == _FLOAT4 else code.astype(dtype)


@TABLE.kernel("BitCast", since=26, view=True)
def _bit_cast(node: KernelNode) -> Kernel:
    target = attribute_dtype(int(node.attr("to")))
    return lambda x: bit_cast(x, target)
