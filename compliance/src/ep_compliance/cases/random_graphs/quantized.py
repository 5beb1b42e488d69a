"""Steps around quantization, whose values are all exact: scales are powers of two.

A quotient beside a tie could be rounded either way, and then everything behind it would differ;
with these scales every quotient is exact, true ties included, which go to the even neighbour.
"""

from __future__ import annotations

import numpy as np

from ep_compliance.cases.random_graphs.grower import Grower
from ep_compliance.cases.random_graphs.steps import step
from ep_compliance.cases.random_graphs.values import Value
from ep_core.types import DataType

__all__: list[str] = []

_BYTES = (DataType.UINT8, DataType.INT8)


def _is_byte(value: Value) -> bool:
    return value.dtype in _BYTES


def _scales(grower: Grower, x: Value, axis: int | None, dtype: DataType) -> Value:
    """One scale, or one for each position along an axis."""
    shape = () if axis is None else (x.shape[axis],)
    powers = grower.draws.integers(shape, 0, 3)
    return grower.given(0.125 * 2.0 ** powers.astype(np.float64), dtype)


def _zero_points(grower: Grower, scales: Value, dtype: DataType) -> Value:
    low, high = (100, 140) if dtype is DataType.UINT8 else (-12, 12)
    return grower.given(grower.draws.integers(scales.shape, low, high), dtype)


def _axis(grower: Grower, x: Value) -> int | None:
    """An axis to quantize along, None for the whole tensor."""
    return grower.draws.below(x.rank) if x.rank and grower.draws.chance(30) else None


@step("QuantizeLinear")
def quantize(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: v.dtype is DataType.FLOAT and v.exact)
    if x is None:
        return False
    dtype = grower.draws.choose(_BYTES)
    axis = _axis(grower, x)
    scales = _scales(grower, x, axis, x.dtype)
    inputs = [x, scales]
    attributes = {} if axis is None else {"axis": axis}
    if dtype is DataType.INT8 or grower.draws.chance(70):
        inputs.append(_zero_points(grower, scales, dtype))
    low, high = (0, 255) if dtype is DataType.UINT8 else (-128, 127)
    result = grower.draft(x.shape, dtype, low, high, 1.0)
    return grower.emit(op_type, inputs, result, **attributes)


@step("DequantizeLinear")
def dequantize(grower: Grower, op_type: str) -> bool:
    x = grower.pick(_is_byte) or grower.fresh(grower.shape, grower.draws.choose(_BYTES))
    axis = _axis(grower, x)
    scales = _scales(grower, x, axis, DataType.FLOAT)
    inputs = [x, scales]
    attributes = {} if axis is None else {"axis": axis}
    if grower.draws.chance(70):
        inputs.append(_zero_points(grower, scales, x.dtype))
    # Scales are 1 at most, and zero points lie within the type.
    most = x.bound + 140.0
    result = grower.draft(x.shape, DataType.FLOAT, -most, most, 0.125 * x.grain)
    return grower.emit(op_type, inputs, result, **attributes)


@step("MatMulInteger")
def matmul_integer(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: _is_byte(v) and v.rank > 1)
    if x is None:
        return False
    columns = grower.draws.between(1, 5)
    y = grower.fresh((x.shape[-1], columns), grower.draws.choose(_BYTES))
    inputs = [x, y]
    if grower.draws.chance(60):
        inputs += [_zero_points(grower, _one(grower), value.dtype) for value in (x, y)]
    most = 280.0 * 280.0 * max(x.shape[-1], 1)
    result = grower.draft((*x.shape[:-1], columns), DataType.INT32, -most, most, x.grain)
    return grower.emit(op_type, inputs, result)


def _one(grower: Grower) -> Value:
    return grower.scalar(1.0, DataType.FLOAT)


@step("QLinearMatMul")
def qlinear_matmul(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: _is_byte(v) and v.rank > 1 and v.shape[-1] <= 16)
    if x is None:
        return False
    columns = grower.draws.between(1, 5)
    y = grower.fresh((x.shape[-1], columns), x.dtype)
    inputs = [x]
    for value in (x, y, None):
        scale = grower.scalar(0.25 if value is not None else 2.0, DataType.FLOAT)
        inputs += [value] if value is y else []
        inputs += [scale, _zero_points(grower, scale, x.dtype)]
    low, high = (0, 255) if x.dtype is DataType.UINT8 else (-128, 127)
    # The definition leaves open in which order it is scaled, so nothing exact comes after it.
    result = grower.draft((*x.shape[:-1], columns), x.dtype, low, high)
    return grower.emit(op_type, inputs, result)
