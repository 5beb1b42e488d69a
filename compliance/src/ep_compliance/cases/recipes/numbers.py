"""Seeded values of every element type.

They are part of what a certificate's hash is made of, so they must be the same on every machine and
with every numpy. Only raw bits come from numpy's generator, whose bit streams are fixed for good;
its distributions are not. From there on it is integers, and single operations that IEEE 754 rounds.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from ep_compliance.oracle.precision import Array, float_info, integer_limits
from ep_core.types import DataType

__all__ = ["Numbers", "denormals", "scattered", "special_values"]

_WORDS = ("", "a", "bc", "Zebra", "äöü", "日本", "x y", "0.5", "-7", "A")
_UNUSED_BITS = np.uint64(11)
_UNIT = 2.0**-53


class Numbers:
    """Random values; the same seed text gives the same values on every machine."""

    def __init__(self, seed: str) -> None:
        self._bits = np.random.PCG64(zlib.crc32(seed.encode()))

    def random(
        self,
        shape: Sequence[int],
        dtype: DataType,
        low: float | None = None,
        high: float | None = None,
    ) -> Array:
        """Values of a type, uniform in `[low, high]`.

        By default floats lie in [-3, 3], signed integers in [-9, 9], unsigned ones in [0, 18], as
        far as the type holds them. Bounds say nothing for bools and strings.
        """
        if dtype is DataType.BOOL:
            return self._whole(shape, 0, 1).astype(bool)
        if dtype is DataType.STRING:
            words = np.empty(shape, object)
            words[...] = np.array(_WORDS, object)[self._whole(shape, 0, len(_WORDS) - 1)]
            return words
        if dtype.is_integer:
            return self._integers(shape, dtype, low, high)
        low = -3.0 if low is None else low
        high = 3.0 if high is None else high
        if dtype in (DataType.COMPLEX64, DataType.COMPLEX128):
            numbers = np.empty(shape, np.complex128)
            numbers.real = self._uniform(shape, low, high)
            numbers.imag = self._uniform(shape, low, high)
            return numbers.astype(dtype.numpy)
        return self._uniform(shape, low, high).astype(dtype.numpy)

    def _uniform(self, shape: Sequence[int], low: float, high: float) -> Array:
        fractions = (self._raw(shape) >> _UNUSED_BITS).astype(np.float64) * _UNIT
        scaled = fractions * (float(high) - float(low))
        return np.reshape(scaled + float(low), shape)

    def _integers(
        self, shape: Sequence[int], dtype: DataType, low: float | None, high: float | None
    ) -> Array:
        smallest, largest = integer_limits(dtype.numpy)
        low = (-9 if smallest < 0 else 0) if low is None else int(low)
        high = (9 if smallest < 0 else 18) if high is None else int(high)
        low, high = min(max(low, smallest), largest), max(min(high, largest), smallest)
        return self._whole(shape, low, high).astype(dtype.numpy)

    def _whole(self, shape: Sequence[int], low: int, high: int) -> Array:
        """Integers in `[low, high]`, as int64 or, where that is too small, as uint64."""
        count = high - low + 1
        raw = self._raw(shape)
        # Numbers above the largest multiple of `count` make low values a trifle more frequent.
        offsets = raw if count > 2**64 - 1 else raw % np.uint64(count)
        values = offsets + np.uint64(low % 2**64)
        return np.reshape(values if high >= 2**63 else values.astype(np.int64), shape)

    def _raw(self, shape: Sequence[int]) -> Array:
        """64 random bits for each element, in one row."""
        return np.asarray(self._bits.random_raw(math.prod(shape)), np.uint64)

    def distinct(self, shape: Sequence[int], dtype: DataType) -> Array:
        """Values that differ from each other as far as the type allows, in random order."""
        count = math.prod(shape)
        if dtype is DataType.BOOL:
            return np.asarray(np.arange(count) % 2 == 1).reshape(shape)
        order = np.array(self.permutation(count), np.int64)
        if dtype is DataType.STRING:
            words = np.array([f"s{i}" for i in order], object)
            return words.reshape(shape)
        centred = order - (count // 2 if _is_signed(dtype) else 0)
        return np.asarray(centred).astype(dtype.numpy).reshape(shape)

    def permutation(self, count: int) -> list[int]:
        """The numbers below `count`, shuffled."""
        return [int(i) for i in np.argsort(self._raw([count]), kind="stable")]


def _is_signed(dtype: DataType) -> bool:
    return not dtype.is_integer or integer_limits(dtype.numpy)[0] < 0


def special_values(dtype: DataType) -> Array:
    """What implementations stumble over: limits, zeros of both signs, NaN, infinities, halves.

    Denormals aren't among them, see `denormals`, so that who flushes them isn't failed twice.
    """
    if dtype is DataType.BOOL:
        return np.array([True, False])
    if dtype is DataType.STRING:
        return np.array(["", " ", "\n", "ß", "日", "a\u0301", "nan"], object)
    if dtype.is_integer:
        smallest, largest = integer_limits(dtype.numpy)
        whole = [smallest, largest, 0, 1, smallest + 1, largest - 1, smallest // 2, largest // 2]
        return np.array(whole, np.uint64 if largest > 2**63 else np.int64).astype(dtype.numpy)
    if dtype in (DataType.COMPLEX64, DataType.COMPLEX128):
        return np.array([0, -0.0, 1j, -1, complex(np.inf, 1), complex(np.nan, 0)], dtype.numpy)
    info = float_info(dtype.numpy)
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1.0, -1.0]
    limits = [float(info.max), float(info.min), float(info.smallest_normal)]
    with np.errstate(all="ignore"):
        return np.array([*values, *limits], np.float64).astype(dtype.numpy)


def denormals(dtype: DataType) -> Array:
    """The smallest and the largest denormal of both signs, and their neighbour above."""
    info = float_info(dtype.numpy)
    tiny, least = float(info.smallest_normal), float(info.smallest_subnormal)
    values = [least, -least, 3 * least, tiny - least, -(tiny - least), tiny, -tiny]
    return np.array(values, np.float64).astype(dtype.numpy)


def scattered(array: Array) -> Array:
    """Equal values in a layout that isn't contiguous: every second element of reversed memory."""
    if array.ndim == 0:
        return array
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array[..., ::-1]
    wide[..., 1::2] = array[..., ::-1]
    view = wide[..., ::2][..., ::-1]
    return np.swapaxes(np.ascontiguousarray(np.swapaxes(view, 0, -1)), 0, -1)
