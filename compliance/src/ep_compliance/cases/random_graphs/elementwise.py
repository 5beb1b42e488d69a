"""Steps that compute element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ep_compliance.cases.random_graphs.grower import Grower
from ep_compliance.cases.random_graphs.steps import step
from ep_compliance.cases.random_graphs.values import Value, broadcast
from ep_core.types import DataType

__all__ = ["is_float", "is_number"]

_POSITIVE = 0.25
"""Divisors, and arguments of Log and Sqrt, are at least this."""


def is_number(value: Value) -> bool:
    """Not a bool."""
    return value.dtype is not DataType.BOOL


def is_float(value: Value) -> bool:
    """A floating tensor."""
    return value.dtype.is_float


def _pair(grower: Grower) -> tuple[Value, Value, tuple[int, ...]] | None:
    """Two operands and the shape of the result."""
    x = grower.pick(is_number)
    if x is None:
        return None
    y = grower.operand(x)
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        return None
    return (x, y, shape) if grower.draws.chance(50) else (y, x, shape)


@step("Add", "Sub")
def add(grower: Grower, op_type: str) -> bool:
    pair = _pair(grower)
    if pair is None:
        return False
    x, y, shape = pair
    if op_type == "Add":
        low, high = x.low + y.low, x.high + y.high
    else:
        low, high = x.low - y.high, x.high - y.low
    result = grower.draft(shape, x.dtype, low, high, min(x.grain, y.grain))
    return grower.emit(op_type, [x, y], result)


@step("Mul")
def mul(grower: Grower, op_type: str) -> bool:
    pair = _pair(grower)
    if pair is None:
        return False
    x, y, shape = pair
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    result = grower.draft(shape, x.dtype, min(corners), max(corners), x.grain * y.grain)
    return grower.emit(op_type, [x, y], result)


@step("Max", "Min")
def largest(grower: Grower, op_type: str) -> bool:
    pair = _pair(grower)
    if pair is None:
        return False
    x, y, shape = pair
    pick = max if op_type == "Max" else min
    low, high = pick(x.low, y.low), pick(x.high, y.high)
    result = grower.draft(shape, x.dtype, low, high, min(x.grain, y.grain))
    return grower.emit(op_type, [x, y], result)


@step("Div")
def div(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_number)
    if x is None:
        return False
    y = grower.pick(lambda v: v.dtype is x.dtype and v.low >= _POSITIVE)
    if y is None or grower.draws.chance(50):
        y = grower.fresh(grower.broadcasting(x.shape), x.dtype, positive=True)
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        return False
    most = x.bound / min(y.low, 1.0)
    grain = min(x.grain, y.grain) if x.dtype.is_integer else 0.0
    result = grower.draft(shape, x.dtype, -most if x.low < 0 else 0.0, most, grain)
    return grower.emit(op_type, [x, y], result)


@step("Sum", "Mean")
def sum_of_three(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_float)
    if x is None:
        return False
    y, z = grower.operand(x), grower.operand(x)
    shape = broadcast(x.shape, y.shape, z.shape)
    if shape is None:
        return False
    low, high = x.low + y.low + z.low, x.high + y.high + z.high
    grain = min(x.grain, y.grain, z.grain) if op_type == "Sum" else 0.0
    result = grower.draft(shape, x.dtype, low, high, grain)
    return grower.emit(op_type, [x, y, z], result)


@step("Pow")
def power(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_float)
    if x is None:
        return False
    exponent = grower.draws.choose([2, 3])
    most = x.bound**exponent
    low = -most if exponent == 3 and x.low < 0 else 0.0
    result = grower.draft(x.shape, x.dtype, low, most)
    return grower.emit(op_type, [x, grower.scalar(exponent, x.dtype)], result)


# ---------------------------------------------------------------- one operand


@step("Neg")
def neg(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_number)
    if x is None:
        return False
    return grower.emit(op_type, [x], grower.draft(x.shape, x.dtype, -x.high, -x.low, x.grain))


@step("Abs", "Relu")
def absolute(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_number)
    if x is None:
        return False
    high = x.bound if op_type == "Abs" else max(x.high, 0.0)
    low = x.low if x.low > 0 else 0.0
    return grower.emit(op_type, [x], grower.draft(x.shape, x.dtype, low, high, x.grain))


@step("Identity")
def identity(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: True)
    if x is None:
        return False
    return grower.emit(op_type, [x], grower.draft(x.shape, x.dtype, x.low, x.high, x.grain))


@step("Dropout")
def dropout(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_float)
    if x is None:
        return False
    outputs = [grower.draft(x.shape, x.dtype, x.low, x.high, x.grain)]
    if grower.draws.chance(40):
        outputs.append(grower.draft(x.shape, DataType.BOOL, 0, 1, 1.0))
    return grower.emit(op_type, [x], *outputs)


@step("Ceil", "Floor", "Round", "Sign")
def rounding(grower: Grower, op_type: str) -> bool:
    # They jump, so nothing that roundings have a say in may come here.
    x = grower.pick(lambda v: is_float(v) and v.exact)
    if x is None:
        return False
    return grower.emit(op_type, [x], grower.draft(x.shape, x.dtype, x.low - 1, x.high + 1, 1.0))


@step("Clip")
def clip(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_number)
    if x is None:
        return False
    half = 1.0 if x.dtype.is_integer else 0.5
    low = grower.draws.between(0 if x.dtype.text.startswith("u") else -4, 2) * half
    high = low + grower.draws.between(1, 8) * half
    kind = grower.draws.below(4)
    bounds = [
        None if kind == 0 else grower.scalar(low, x.dtype),
        None if kind == 1 else grower.scalar(high, x.dtype),
    ]
    least = x.low if kind == 0 else min(max(x.low, low), high)
    most = x.high if kind == 1 else max(min(x.high, high), low)
    grain = min(x.grain, half)
    result = grower.draft(x.shape, x.dtype, min(least, most), max(least, most), grain)
    return grower.emit(op_type, [x, *bounds], result)


_Range = Callable[[float, float], tuple[float, float]]

_SMOOTH: Mapping[str, tuple[float, float, _Range]] = {
    "Atan": (-100, 100, lambda low, high: (-2, 2)),
    "Cos": (-8, 8, lambda low, high: (-1, 1)),
    "Elu": (-100, 100, lambda low, high: (-1, max(high, 0))),
    "Erf": (-100, 100, lambda low, high: (-1, 1)),
    "Exp": (-100, 4, lambda low, high: (0, 55)),
    "Gelu": (-20, 20, lambda low, high: (-1, max(high, 0))),
    "HardSigmoid": (-100, 100, lambda low, high: (0, 1)),
    "HardSwish": (-20, 20, lambda low, high: (-1, max(high, 0))),
    "Log": (_POSITIVE, 100, lambda low, high: (-2, 5)),
    "Mish": (-20, 20, lambda low, high: (-1, max(high, 0))),
    "Reciprocal": (_POSITIVE, 100, lambda low, high: (0, 4)),
    "Selu": (-100, 100, lambda low, high: (-2, 2 * max(high, 0))),
    "Sigmoid": (-100, 100, lambda low, high: (0, 1)),
    "Sin": (-8, 8, lambda low, high: (-1, 1)),
    "Softplus": (-20, 20, lambda low, high: (0, max(high, 0) + 1)),
    "Softsign": (-100, 100, lambda low, high: (-1, 1)),
    "Sqrt": (_POSITIVE, 100, lambda low, high: (min(low, 1), max(high, 1))),
    "Tanh": (-100, 100, lambda low, high: (-1, 1)),
}
"""Smooth functions: where they are well-conditioned, and the range of their values."""


@step(*_SMOOTH)
def smooth(grower: Grower, op_type: str) -> bool:
    least, most, range_of = _SMOOTH[op_type]

    def is_inside(value: Value) -> bool:
        return is_float(value) and least <= value.low and value.high <= most

    x = grower.pick(is_inside)
    if x is None and least > 0:
        x = grower.fresh(grower.shape, grower.dtype, positive=True)
    if x is None:
        return False
    low, high = range_of(x.low, x.high)
    return grower.emit(op_type, [x], grower.draft(x.shape, x.dtype, float(low), float(high)))


@step("LeakyRelu")
def leaky(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_float)
    if x is None:
        return False
    result = grower.draft(x.shape, x.dtype, min(x.low, 0.0), max(x.high, 0.0))
    return grower.emit(op_type, [x], result, alpha=grower.draws.between(1, 7) / 8)


@step("PRelu")
def prelu(grower: Grower, op_type: str) -> bool:
    x = grower.pick(is_float)
    if x is None:
        return False
    slope = grower.fresh(grower.broadcasting(x.shape), x.dtype)
    most = max(x.high, x.bound * slope.bound)
    result = grower.draft(x.shape, x.dtype, -x.bound * slope.bound, most)
    return grower.emit(op_type, [x, slope], result)
