"""Casts between every pair of types, quantization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.numbers import special_values
from ep_compliance.oracle.precision import Array, float_info, integer_limits
from ep_core.types import DataType

__all__: list[str] = []


@recipe("Cast CastLike")
def cast(ask: Ask) -> Iterator[Sample]:
    """From the first input's type to every other; values that both types hold, then the limits."""
    for target in ask.output_types():
        values = _castable(ask, target)
        if values is None:
            continue
        yield _cast(ask, f"to {target.text}", values, target, core=True)
        if ask.is_float and target.is_float and target is not ask.dtype:
            yield _cast(ask, f"to {target.text}, special", _special(ask, target), target)
            yield _cast(ask, f"to {target.text}, ties", _ties(ask, target), target)
    yield from _rounding(ask)


def _cast(ask: Ask, name: str, values: Array, target: DataType, **more: Any) -> Sample:
    if ask.op_type == "CastLike":
        like = ask.numbers.random((1,), target)
        return Sample(name, [values, like], **more)
    number: int | str = int(target)
    if ask.version < 6:
        number = target.name
    return Sample(name, [values], {"to": number}, **more)


def _castable(ask: Ask, target: DataType) -> Array | None:
    """Values that `target` holds, so that the definition leaves nothing open."""
    if ask.dtype is DataType.STRING:
        texts = ["1", "0", "1", "1"] if target is not DataType.STRING else ["a", "", "1", "b"]
        if target is DataType.BOOL:
            return None
        if target.is_float:
            texts = ["1", "2", "0.5", "4"]
        return np.array(texts, object)
    if target is DataType.STRING:
        return _written(ask)
    if target is DataType.BOOL or ask.dtype is DataType.BOOL:
        return ask.random(9, low=0, high=1)
    low, high = _common_range(ask.dtype, target)
    return ask.random(9, low=low, high=high)


def _written(ask: Ask) -> Array | None:
    """Numbers that everybody writes alike: whether 2.0 is `2` isn't defined, nor what a bool is."""
    if ask.dtype is DataType.BOOL:
        return None
    if not ask.is_float:
        return ask.random(4)
    numbers = [0.5, 0.25] if ask.dtype is DataType.FLOAT8E8M0 else [0.5, 1.5, -0.5, -1.5]
    return np.array(numbers).astype(ask.dtype.numpy)


def _common_range(source: DataType, target: DataType) -> tuple[float, float]:
    low, high = -9.0, 9.0
    for kind in (source, target):
        if kind.is_integer:
            smallest, largest = integer_limits(kind.numpy)
            low, high = max(low, float(smallest)), min(high, float(largest))
        elif kind is DataType.FLOAT8E8M0:
            low = max(low, 0.5)
        elif kind.is_float:
            # Half of it: rounding to the powers of two of float8e8m0 may double a value.
            high = min(high, float(float_info(kind.numpy).max) / 2)
            low = max(low, -high)
    return low, high


_FINITE_ONLY = (DataType.FLOAT4E2M1, DataType.FLOAT6E2M3, DataType.FLOAT6E3M2, DataType.FLOAT8E8M0)


def _special(ask: Ask, target: DataType) -> Array:
    """NaN only where the target has one; negative values only where it has a sign."""
    values = special_values(ask.dtype)
    wide = values.astype(np.float64)
    if ask.dtype is DataType.FLOAT8E8M0:
        return np.array([1.0, 2.0], ask.dtype.numpy)
    if target in _FINITE_ONLY or ask.dtype in _FINITE_ONLY:
        return values[np.isfinite(wide) & (wide > 0) & (wide < 2.0**127)]
    return values


def _ties(ask: Ask, target: DataType) -> Array:
    """Values halfway between neighbours of the target, as far as the source holds them."""
    if target is DataType.FLOAT8E8M0 or ask.dtype is DataType.FLOAT8E8M0:
        return np.array([1.0, 2.0, 4.0], np.float64).astype(ask.dtype.numpy)
    eps = float(float_info(target.numpy).eps)
    steps = np.arange(0.5, 4.0, 0.5)
    return np.concatenate([1 + eps * steps, -1 - eps * steps]).astype(ask.dtype.numpy)


def _rounding(ask: Ask) -> Iterator[Sample]:
    """Fractions are cut off on the way to integers; integers wrap on the way to narrower ones."""
    if ask.is_float and ask.dtype not in _FINITE_ONLY:
        values = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]).astype(ask.dtype.numpy)
        yield _cast(ask, "fractions", values, DataType.INT32)
    if ask.dtype in (DataType.INT32, DataType.INT64):
        values = np.array([255, 256, 257, -1, -129], ask.dtype.numpy)
        yield _cast(ask, "wrap", values, DataType.UINT8)
        yield _cast(ask, "wrap int8", values, DataType.INT8)
        big = np.array([2**24 + 1, 2**24 + 3, -(2**24) - 1], ask.dtype.numpy)
        yield _cast(ask, "inexact", big, DataType.FLOAT)


@recipe("BitCast")
def bit_cast(ask: Ask) -> Iterator[Sample]:
    """To every type of the same width."""
    for target in ask.output_types():
        if target.bits == ask.dtype.bits:
            # A byte that isn't 0 or 1 is no bool.
            x = ask.random(2, 3)
            if target is DataType.BOOL and ask.dtype is not DataType.BOOL:
                x = ask.random(2, 3, dtype=DataType.BOOL).view(ask.dtype.numpy)
            yield Sample(f"to {target.text}", [x], {"to": int(target)}, core=True)


@recipe("QuantizeLinear")
def quantize(ask: Ask) -> Iterator[Sample]:
    """Per tensor, per axis and blocked; ties and saturation; every choice of types."""
    yield from _mixed_quantized(ask)
    scale_kind = ask.type_of(1, DataType.FLOAT)
    half = np.array(0.5 if scale_kind.is_float else 2, scale_kind.numpy)
    for kind in ask.output_types():
        zero = np.zeros((), kind.numpy)
        x = ask.random(3, 5)
        yield Sample(f"to {kind.text}", [x, half, zero], core=True)
        if kind.is_integer:
            ties = np.arange(-2.75, 3.0, 0.25).astype(ask.dtype.numpy)
            yield Sample(f"to {kind.text}, ties", [ties, half, zero])
            middle = np.array(1, kind.numpy)
            yield Sample(f"to {kind.text}, zero point", [x, half, middle], core=True)
            far = ask.random(9, low=-400, high=400)
            yield Sample(f"to {kind.text}, saturated", [far, half, zero])
    x = ask.random(3, 5)
    yield Sample("no zero point", [x, half], core=True)
    yield Sample("constant", [x, half, np.array(3, np.uint8)], constants=[1, 2])
    yield Sample("symbolic", [x, half, np.array(3, np.uint8)], symbolic=True)
    yield Sample("rank0", [ask.random(), half, np.array(3, np.uint8)])
    yield Sample("empty", [ask.random(0, 3), half, np.array(3, np.uint8)])
    if ask.has("axis"):
        scales = np.array([half, 2 * half, 1], scale_kind.numpy)
        points = np.array([0, 3, 7], np.uint8)
        yield Sample("per axis", [x, scales, points], {"axis": 0}, core=True)
        yield Sample("negative axis", [x, scales, points], {"axis": -2})
    if ask.has("block_size"):
        blocks = np.array([[half, 1], [1, 2]], scale_kind.numpy)
        points = np.array([[0, 3], [7, 1]], np.uint8)
        attributes = {"axis": 1, "block_size": 3}
        yield Sample("blocked", [ask.random(2, 6), blocks, points], attributes, core=True)


def _mixed_quantized(ask: Ask) -> Iterator[Sample]:
    """Every choice of types, with quotients that every type holds and that are no ties."""
    if ask.version < 23:
        return
    for scale_kind in ask.types(1):
        if scale_kind is DataType.FLOAT:
            continue  # asked anyway
        # Quotients in float8e8m0 would be powers of two.
        precise = scale_kind is DataType.FLOAT8E8M0
        attributes = {"precision": int(DataType.FLOAT)} if precise else {}
        whole = not (scale_kind.is_float and ask.is_float)
        odd = 2 * ask.random(3, 4, dtype=DataType.INT64, low=-5, high=4) + 1
        x = (4 * odd if whole else odd / 8).astype(ask.dtype.numpy)
        scale = np.array(2 if not scale_kind.is_float else 0.5, scale_kind.numpy)
        for kind in ask.output_types():
            zero = np.zeros((), kind.numpy)
            name = f"to {kind.text} by {scale_kind.text}"
            yield Sample(name, [x, scale, zero], attributes, core=True)


@recipe("DequantizeLinear")
def dequantize(ask: Ask) -> Iterator[Sample]:
    """Per tensor, per axis and blocked, to every type of scale."""
    x = ask.random(3, 4)
    moves = not ask.is_float and ask.dtype is not DataType.INT32
    zero = np.array(1 if moves else 0, ask.dtype.numpy)
    for kind in ask.types(1):
        scale = np.array(0.25, kind.numpy)
        named = {"output_dtype": int(DataType.FLOAT)} if kind is DataType.FLOAT8E8M0 else {}
        yield Sample(f"scale {kind.text}", [x, scale], named, core=True)
        yield Sample(f"scale {kind.text}, zero point", [x, scale, zero], named, core=True)
        for target in ask.output_types() if ask.has("output_dtype") else ():
            named = {"output_dtype": int(target)}
            yield Sample(f"{kind.text} to {target.text}", [x, scale, zero], named, core=True)
    scale = np.array(0.3, np.float32)
    if moves:
        yield Sample("zero point", [x, scale, zero], core=True)
        yield Sample("constant", [x, scale, zero], constants=[1, 2])
    yield Sample("symbolic", [x, scale], symbolic=True)
    yield Sample("special", [special_values(ask.dtype), scale])
    yield Sample("rank0", [ask.random(), scale])
    yield Sample("empty", [ask.random(0, 3), scale])
    scales = np.array([0.5, 0.1, 2.0], np.float32)
    if ask.has("axis"):
        yield Sample("per axis", [x, scales], {"axis": 0}, core=True)
        yield Sample("negative axis", [x, scales], {"axis": -2})
    if ask.has("block_size"):
        blocks = np.array([[0.5, 0.3], [1.0, 2.0]], np.float32)
        attributes = {"axis": 1, "block_size": 3}
        yield Sample("blocked", [ask.random(2, 6), blocks], attributes, core=True)


@recipe("DynamicQuantizeLinear")
def dynamic_quantize(ask: Ask) -> Iterator[Sample]:
    """Ranges on both sides of zero and on one."""
    yield Sample("plain", [ask.random(3, 5)], outputs=3, core=True)
    yield Sample("positive", [ask.random(3, 5, low=1, high=9)], outputs=3)
    yield Sample("negative", [ask.random(3, 5, low=-9, high=-1)], outputs=3)
    yield Sample("symbolic", [ask.random(3, 5)], outputs=3, symbolic=True)
