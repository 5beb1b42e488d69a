"""Steps that multiply matrices."""

from __future__ import annotations

from typing import Any

from ep_compliance.cases.random_graphs.elementwise import is_float, is_number
from ep_compliance.cases.random_graphs.grower import Grower
from ep_compliance.cases.random_graphs.steps import step
from ep_compliance.cases.random_graphs.values import Shape, Value, broadcast

__all__ = ["product_range"]

_MOST_TERMS = 64


def product_range(x: Value, y: Value, terms: int) -> tuple[float, float, float]:
    """Lower and upper bound and grain of a sum of products of two values."""
    most = max(terms, 1) * x.bound * y.bound
    low = 0.0 if x.low >= 0 and y.low >= 0 else -most
    return low, most, x.grain * y.grain


@step("MatMul")
def matmul(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_number(v) and v.rank > 0 and v.shape[-1] <= _MOST_TERMS)
    if x is None:
        return False
    y = grower.pick(lambda v: v.dtype is x.dtype and _product_shape(x.shape, v.shape) is not None)
    if y is None or grower.draws.chance(45):
        y = grower.fresh(_right_side(grower, x), x.dtype)
    shape = _product_shape(x.shape, y.shape)
    assert shape is not None
    result = grower.draft(shape, x.dtype, *product_range(x, y, x.shape[-1]))
    return grower.emit(op_type, [x, y], result)


def _right_side(grower: Grower, x: Value) -> Shape:
    """A shape that x can be multiplied with from the right."""
    if grower.draws.chance(12):
        return (x.shape[-1],)
    matrix = (x.shape[-1], grower.draws.between(1, 5))
    if x.rank < 3 or grower.draws.chance(60):
        return matrix
    return (*grower.broadcasting(x.shape[:-2]), *matrix)


def _product_shape(x: Shape, y: Shape) -> Shape | None:
    """The shape of x @ y; None if there is none."""
    if not x or not y or x[-1] != y[max(len(y) - 2, 0)]:
        return None
    batch = broadcast(x[:-2], y[:-2])
    if batch is None:
        return None
    return (*batch, *(x[-2:-1]), *(y[-1:] if len(y) > 1 else ()))


@step("Gemm")
def gemm(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_float(v) and v.rank == 2)
    if x is None:
        return False
    transposed, turned = grower.draws.chance(25), grower.draws.chance(40)
    rows, terms = x.shape[::-1] if transposed else x.shape
    columns = grower.draws.between(1, 6)
    y = grower.fresh((columns, terms) if turned else (terms, columns), x.dtype)
    inputs = [x, y]
    low, high, grain = product_range(x, y, terms)
    attributes: dict[str, Any] = {}
    if grower.draws.chance(30):
        attributes["alpha"] = grower.draws.choose([0.5, 2.0, -1.0])
    # Twice the product, and twice the third input, whatever the factors are.
    low, high, grain = -2 * max(-low, high), 2 * max(-low, high), grain / 2
    if grower.draws.chance(75):
        shape = grower.draws.choose(
            [(columns,), (1,), (), (rows, 1), (rows, columns), (1, columns)]
        )
        third = grower.fresh(shape, x.dtype)
        inputs.append(third)
        if grower.draws.chance(30):
            attributes["beta"] = grower.draws.choose([0.5, 2.0, -1.0])
        low, high = low - 2 * third.bound, high + 2 * third.bound
        grain = min(grain, third.grain / 2)
    if transposed:
        attributes["transA"] = 1
    if turned:
        attributes["transB"] = 1
    result = grower.draft((rows, columns), x.dtype, low, high, grain)
    return grower.emit(op_type, inputs, result, **attributes)
