"""What element types can hold: spacing of neighbours, limits, rounding from float64.

Numbers only; which operator may err by how much is `tolerance`'s and `classes`' business.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ep_core.types import DataType

__all__ = [
    "Array",
    "FloatFormat",
    "float_format",
    "float_info",
    "integer_limits",
    "is_float",
    "narrow",
    "spacing",
    "widened",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A floating type in numbers.

    Attributes:
        eps: distance from 1 to the next larger value.
        fraction_bits: explicit bits of the significand.
        lowest_exponent: exponent of the smallest normal number.
        smallest_normal: that number.
        beyond: the value after the largest finite one, were the exponent unlimited. An infinity
            that stands for an overflow is as far away as this.
    """

    eps: float
    fraction_bits: int
    lowest_exponent: int
    smallest_normal: float
    beyond: float


float_info: Callable[[Any], Any] = ml_dtypes.finfo
"""numpy's `finfo` for every floating dtype, the narrow ones of ml_dtypes included."""

_integer_info: Callable[[Any], Any] = ml_dtypes.iinfo


def integer_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and the largest value of an integer dtype."""
    info = _integer_info(dtype)
    return int(info.min), int(info.max)


@functools.cache
def float_format(dtype: np.dtype[Any]) -> FloatFormat:
    """The format of a floating dtype, the narrow ones of ml_dtypes included."""
    info = float_info(dtype)
    largest = float(info.max)
    step = math.ldexp(1.0, math.frexp(largest)[1] - 1 - int(info.nmant))
    return FloatFormat(
        eps=math.ldexp(1.0, -int(info.nmant)),
        fraction_bits=int(info.nmant),
        lowest_exponent=int(info.minexp),
        smallest_normal=float(info.smallest_normal),
        beyond=largest + step,
    )


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for real floating types of every width."""
    if dtype.kind == "f":
        return True
    return dtype.kind == "V" and dtype.fields is None and DataType.from_numpy(dtype).is_float


def spacing(values: Array, dtype: np.dtype[Any]) -> Array:
    """Distance of neighbours of type `dtype` around each of `values` (float64, finite).

    One unit in the last place in Goldberg's sense: that of the binade the value lies in; below the
    smallest normal number it is the spacing of denormals.
    """
    form = float_format(dtype)
    exponents = np.frexp(np.abs(values))[1] - 1
    # frexp gives 0 for 0, which would be the binade of 1/2.
    exponents = np.where(values == 0, form.lowest_exponent, exponents)
    exponents = np.maximum(exponents, form.lowest_exponent) - form.fraction_bits
    return np.asarray(np.ldexp(np.ones_like(values), exponents))


def widened(array: Array) -> Array:
    """A floating array as float64, exactly; anything else as it is."""
    return np.asarray(array).astype(np.float64) if is_float(array.dtype) else array


def narrow(values: Array, dtype: np.dtype[Any]) -> Array:
    """Round float64 values once to `dtype`, to nearest, ties to even.

    ml_dtypes goes through float32, which rounds twice; rounding to odd on the way makes that
    harmless (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    values = np.asarray(values)
    if values.dtype == dtype:
        return values
    with np.errstate(all="ignore"):
        if dtype.kind == "f" or values.dtype != np.float64:
            return values.astype(dtype)
        return _to_odd(values).astype(dtype)


def _to_odd(values: Array) -> Array:
    """Float64 as float32, with the last bit set wherever the conversion isn't exact."""
    single = values.astype(np.float32)
    back = single.astype(np.float64)
    away = np.abs(back) > np.abs(values)
    toward_zero = np.where(away, np.nextafter(single, np.float32(0)), single)
    inexact = np.isfinite(values) & (back != values)
    bits = np.ascontiguousarray(toward_zero).view(np.uint32) | inexact.astype(np.uint32)
    return np.asarray(bits.view(np.float32)).reshape(values.shape)
