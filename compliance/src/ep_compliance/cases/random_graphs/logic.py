"""Steps with bools and whole numbers: comparisons, choices, casts, bits, positions.

Comparisons, casts to whole numbers and positions jump, so they get only values that are exact.
"""

from __future__ import annotations

from ep_compliance.cases.random_graphs.elementwise import is_number
from ep_compliance.cases.random_graphs.grower import Grower
from ep_compliance.cases.random_graphs.steps import step
from ep_compliance.cases.random_graphs.values import Value, broadcast, holds
from ep_core.types import DataType

__all__: list[str] = []

_CAST_TARGETS = (
    DataType.FLOAT,
    DataType.INT32,
    DataType.INT64,
    DataType.BOOL,
    DataType.FLOAT16,
    DataType.UINT8,
    DataType.DOUBLE,
    DataType.INT8,
)


def _is_bool(value: Value) -> bool:
    return value.dtype is DataType.BOOL


def _is_exact_number(value: Value) -> bool:
    return is_number(value) and value.exact


def _is_exact_integer(value: Value) -> bool:
    return _is_exact_number(value) and value.dtype.is_integer


@step("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def compare(grower: Grower, op_type: str) -> bool:
    x = grower.pick(_is_exact_number)
    if x is None:
        return False
    y = grower.operand(x)
    shape = broadcast(x.shape, y.shape)
    if shape is None or not y.exact:
        return False
    return grower.emit(op_type, [x, y], grower.draft(shape, DataType.BOOL, 0, 1, 1.0))


@step("And", "Or", "Xor")
def connect(grower: Grower, op_type: str) -> bool:
    x = grower.pick(_is_bool) or grower.fresh(grower.shape, DataType.BOOL)
    y = grower.operand(x)
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        return False
    return grower.emit(op_type, [x, y], grower.draft(shape, DataType.BOOL, 0, 1, 1.0))


@step("Not")
def negate(grower: Grower, op_type: str) -> bool:
    x = grower.pick(_is_bool)
    if x is None:
        return False
    return grower.emit(op_type, [x], grower.draft(x.shape, DataType.BOOL, 0, 1, 1.0))


@step("Where")
def where(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_number)
    if x is None:
        return False
    y = grower.operand(x)
    condition = grower.pick(lambda v: _is_bool(v) and broadcast(v.shape, x.shape) is not None)
    if condition is None or grower.draws.chance(20):
        condition = grower.fresh(grower.broadcasting(x.shape), DataType.BOOL)
    shape = broadcast(condition.shape, x.shape, y.shape)
    if shape is None:
        return False
    low, high = min(x.low, y.low), max(x.high, y.high)
    result = grower.draft(shape, x.dtype, low, high, min(x.grain, y.grain))
    return grower.emit(op_type, [condition, x, y], result)


@step("Cast")
def cast(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: v.exact)
    if x is None:
        return False
    target = grower.draws.choose([t for t in _CAST_TARGETS if t is not x.dtype])
    low, high, grain = x.low, x.high, x.grain
    if target is DataType.BOOL:
        low, high, grain = 0.0, 1.0, 1.0
    elif target.is_integer:
        # What doesn't fit into the target isn't defined.
        grain = max(grain, 1.0)
    if not target.is_float and not holds(target, max(abs(low), abs(high)), grain):
        return False
    if target.text.startswith("u") and low < 0:
        return False
    result = grower.draft(x.shape, target, low, high, grain)
    return grower.emit(op_type, [x], result, to=int(target))


@step("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bits(grower: Grower, op_type: str) -> bool:
    x = grower.pick(_is_exact_integer)
    if x is None:
        return False
    y = grower.operand(x)
    shape = broadcast(x.shape, y.shape)
    if shape is None or not y.exact:
        return False
    # No more bits than the wider of the two; a negative number has all of them set above.
    most = 2.0 * max(x.bound, y.bound, 1.0)
    low = -most if min(x.low, y.low) < 0 else 0.0
    return grower.emit(op_type, [x, y], grower.draft(shape, x.dtype, low, most, 1.0))


@step("Mod")
def modulo(grower: Grower, op_type: str) -> bool:
    x = grower.pick(_is_exact_integer)
    if x is None:
        return False
    y = grower.fresh(grower.broadcasting(x.shape), x.dtype, positive=True)
    return grower.emit(op_type, [x, y], grower.draft(x.shape, x.dtype, 0, y.high, 1.0))


@step("ArgMax", "ArgMin")
def position(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: _is_exact_number(v) and v.rank > 0 and min(v.shape) > 0)
    if x is None:
        return False
    axis = grower.draws.below(x.rank)
    keep = grower.draws.below(2)
    shape = (*x.shape[:axis], *([1] * keep), *x.shape[axis + 1 :])
    result = grower.draft(shape, DataType.INT64, 0, x.shape[axis] - 1, 1.0)
    named = axis - x.rank if grower.draws.chance(30) else axis
    return grower.emit(op_type, [x], result, axis=named, keepdims=keep)
