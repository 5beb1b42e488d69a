"""Steps that reduce an axis, or normalise along one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_compliance.cases.random_graphs.elementwise import is_float, is_number
from ep_compliance.cases.random_graphs.grower import Grower
from ep_compliance.cases.random_graphs.steps import step
from ep_compliance.cases.random_graphs.values import Value, size_of
from ep_core.types import DataType

__all__: list[str] = []


def _range_of(op_type: str, x: Value, terms: int) -> tuple[float, float, float]:
    """Lower and upper bound and grain of a reduction of so many terms."""
    count = max(terms, 1)
    if op_type == "ReduceSum":
        return min(count * x.low, 0.0), max(count * x.high, 0.0), x.grain
    if op_type in ("ReduceMax", "ReduceMin"):
        return x.low, x.high, x.grain
    if op_type == "ReduceMean":
        return x.low, x.high, 0.0
    if op_type == "ReduceL1":
        return 0.0, count * x.bound, x.grain
    if op_type == "ReduceSumSquare":
        return 0.0, count * x.bound * x.bound, x.grain * x.grain
    if op_type == "ReduceL2":
        return 0.0, count * x.bound, 0.0
    # ReduceLogSumExp: the largest, and at most the logarithm of the count above it.
    return x.low, x.high + count, 0.0


@step(
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceSum",
    "ReduceSumSquare",
)
def reduce(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: _reduces(op_type, v))
    if x is None:
        return False
    count = grower.draws.between(1, min(2, x.rank)) if x.rank else 0
    axes = grower.draws.some(range(x.rank), count)
    attributes: dict[str, Any] = {}
    inputs = [x]
    if not axes or grower.draws.chance(15):
        axes = list(range(x.rank))
    else:
        named = [axis - x.rank if grower.draws.chance(30) else axis for axis in axes]
        # Axes became an input with version 18, that of ReduceSum with 13.
        if grower.opset >= 18 or op_type == "ReduceSum":
            inputs.append(grower.indices(*named))
        else:
            attributes["axes"] = named
    keep = not grower.draws.chance(40)
    if not keep:
        attributes["keepdims"] = 0
    lengths = [1 if i in axes else length for i, length in enumerate(x.shape)]
    kept = [length for i, length in enumerate(x.shape) if i not in axes]
    terms = size_of([x.shape[axis] for axis in axes])
    result = grower.draft(lengths if keep else kept, x.dtype, *_range_of(op_type, x, terms))
    return grower.emit(op_type, inputs, result, **attributes)


def _reduces(op_type: str, x: Value) -> bool:
    if op_type in ("ReduceMean", "ReduceL2", "ReduceLogSumExp") and not is_float(x):
        return False
    # Only a sum of nothing is a number.
    filled = op_type in ("ReduceSum", "ReduceL1", "ReduceSumSquare") or min(x.shape, default=1) > 0
    small = op_type != "ReduceLogSumExp" or x.bound <= 16
    return is_number(x) and filled and small


@step("CumSum")
def running_sum(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_number(v) and v.rank > 0)
    if x is None:
        return False
    axis = grower.draws.below(x.rank)
    count = max(x.shape[axis], 1)
    attributes = {name: 1 for name in ("exclusive", "reverse") if grower.draws.chance(35)}
    low, high = min(count * x.low, 0.0), max(count * x.high, 0.0)
    result = grower.draft(x.shape, x.dtype, low, high, x.grain)
    place = grower.given(np.array(axis), DataType.INT64)
    return grower.emit(op_type, [x, place], result, **attributes)


@step("LogSoftmax", "Softmax")
def softmax(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_float(v) and v.rank > 0 and min(v.shape) > 0 and v.bound <= 32)
    if x is None:
        return False
    axis = grower.draws.between(-x.rank, x.rank - 1)
    low, high = (0.0, 1.0) if op_type == "Softmax" else (x.low - x.high - x.shape[axis], 0.0)
    attributes = {} if axis == -1 and grower.draws.chance(50) else {"axis": axis}
    return grower.emit(op_type, [x], grower.draft(x.shape, x.dtype, low, high), **attributes)


@step("LayerNormalization")
def layer_normalization(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_float(v) and v.rank > 0 and min(v.shape) > 0)
    if x is None:
        return False
    axis = grower.draws.choose([-1, -1, grower.draws.between(-x.rank, -1)])
    shape = x.shape[axis:]
    inputs = [x, grower.constant(shape, x.dtype)]
    most = inputs[1].bound * size_of(shape)
    if grower.draws.chance(70):
        bias = grower.constant(shape, x.dtype)
        inputs.append(bias)
        most += bias.bound
    attributes: dict[str, Any] = {"epsilon": 0.0625}
    if axis != -1:
        attributes["axis"] = axis
    result = grower.draft(x.shape, x.dtype, -most, most)
    return grower.emit(op_type, inputs, result, **attributes)


@step("TopK")
def top(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_number(v) and v.exact and v.rank > 0 and min(v.shape) > 0)
    if x is None:
        return False
    axis = grower.draws.below(x.rank)
    count = grower.draws.between(1, x.shape[axis])
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    values = grower.draft(shape, x.dtype, x.low, x.high, x.grain)
    attributes = {} if axis == x.rank - 1 else {"axis": axis}
    if grower.draws.chance(40):
        attributes["largest"] = 0
    inputs = [x, grower.indices(count)]
    return grower.emit(op_type, inputs, values, spare=1, **attributes)
