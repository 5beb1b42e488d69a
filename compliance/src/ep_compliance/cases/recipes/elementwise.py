"""Unary, binary and variadic elementwise operators, comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.case import Level
from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.numbers import denormals, scattered, special_values
from ep_compliance.oracle.precision import Array
from ep_core.types import DataType

__all__ = ["SHAPES", "unary_samples"]

SHAPES = {
    "plain": (2, 3, 4),
    "rank0": (),
    "one": (1, 1, 1),
    "empty": (2, 0, 3),
    "odd": (7, 13),
    "rank6": (2, 1, 3, 1, 2, 2),
}
"""Shape classes of operators that take any shape."""

_DOMAINS = {
    "Acos": (-1.0, 1.0),
    "Acosh": (1.0, 9.0),
    "Asin": (-1.0, 1.0),
    "Atanh": (-0.9, 0.9),
    "Log": (0.1, 9.0),
    "Reciprocal": (0.25, 3.0),
    "Sqrt": (0.0, 9.0),
    "Tan": (-1.4, 1.4),
}
"""Where the function is defined and finite; what lies outside is asked by `special`."""


@recipe(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Erf Exp Floor IsInf IsNaN Log "
    "Neg Not Reciprocal Round Sign Sin Sinh Sqrt Tan Tanh"
)
def unary(ask: Ask) -> Iterator[Sample]:
    """One input, any shape."""
    low, high = _DOMAINS.get(ask.op_type, (None, None))
    yield from unary_samples(ask, low, high)
    if ask.op_type == "Round":
        halves = np.arange(-3.5, 4.0, 0.5).astype(ask.dtype.numpy)
        yield Sample("halves", [halves])
    if ask.op_type == "IsInf":
        x = special_values(ask.dtype)
        yield Sample("negative only", [x], {"detect_positive": 0})
        yield Sample("positive only", [x], {"detect_negative": 0})


def unary_samples(
    ask: Ask, low: float | None = None, high: float | None = None, **attributes: Any
) -> Iterator[Sample]:
    """The samples of an operator with one input of any shape.

    Args:
        low, high: where its input lies.
        attributes: of the node, in every sample.
    """
    for name, shape in SHAPES.items():
        x = ask.random(*shape, low=low, high=high)
        yield Sample(name, [x], attributes, core=name == "plain")
    x = ask.random(3, 4, low=low, high=high)
    yield Sample("symbolic", [x], attributes, symbolic=True)
    yield Sample("strided", [scattered(ask.random(4, 6, low=low, high=high))], attributes)
    yield Sample("constant", [x], attributes, constants=[0])
    big = ask.random(129, 257, low=low, high=high)
    yield Sample("large", [big], attributes, level=Level.SOAK)
    yield Sample("special", [special_values(ask.dtype)], attributes)
    if ask.dtype in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16):
        yield Sample("denormal", [denormals(ask.dtype)], attributes)


_PAIRS = {
    "plain": ((2, 3, 4), (2, 3, 4)),
    "rank0": ((), ()),
    "scalar left": ((), (2, 3)),
    "scalar right": ((2, 3), ()),
    "row": ((2, 3, 4), (4,)),
    "both sides": ((3, 1, 5), (4, 1)),
    "empty": ((0, 3), (1, 3)),
    "one": ((1,), (1, 1)),
    "odd": ((7, 13), (7, 1)),
    "rank5": ((2, 1, 3, 1, 2), (1, 2, 1, 2, 2)),
}


@recipe(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Mod Mul Or PRelu Pow Sub Xor"
)
def binary(ask: Ask) -> Iterator[Sample]:
    """Two inputs that broadcast."""
    attributes = _binary_attributes(ask)
    if ask.op_type == "PRelu" and ask.version < 7:
        yield Sample("per channel", [ask.random(2, 3, 4), ask.random(3)], core=True)
        return
    for name, (left, right) in _PAIRS.items():
        if ask.version < 7 and ask.op_type != "Pow" and left != right:
            continue
        if ask.op_type == "PRelu" and not _reaches(left, right):
            continue
        inputs = _operands(ask, left, right)
        yield Sample(name, inputs, attributes, core=name == "plain")
    yield Sample("symbolic", _operands(ask, (3, 4), (3, 4)), attributes, symbolic=True)
    yield Sample("constant", _operands(ask, (3, 4), (3, 4)), attributes, constants=[1])
    apart = [scattered(operand) for operand in _operands(ask, (4, 6), (4, 6))]
    yield Sample("strided", apart, attributes)
    large = _operands(ask, (65, 1, 33), (47, 33))
    if ask.version >= 7:
        yield Sample("large", large, attributes, level=Level.SOAK)
    yield from _binary_special(ask, attributes)


def _reaches(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """True if `right` broadcasts to `left` in one direction."""
    return np.broadcast_shapes(left, right) == left


def _binary_attributes(ask: Ask) -> dict[str, Any]:
    if ask.op_type == "BitShift":
        return {"direction": "LEFT"}
    if ask.op_type == "Mod" and ask.is_float:
        return {"fmod": 1}
    return {}


def _operands(ask: Ask, left: tuple[int, ...], right: tuple[int, ...]) -> list[Array]:
    kind = ask.type_of(1, DataType.FLOAT, ask.dtype)
    if ask.op_type == "Pow":
        x = ask.random(*left, low=0.2 if ask.is_float else 0, high=4)
        return [x, ask.random(*right, dtype=kind, low=0 if kind.is_integer else -2, high=3)]
    x = ask.random(*left)
    if ask.op_type == "BitShift":
        return [x, ask.random(*right, low=0, high=7)]
    if ask.op_type in ("Div", "Mod"):
        y = ask.random(*right, low=1, high=7)
        signs = ask.random(*right, dtype=DataType.BOOL)
        signed = ask.is_float or ask.dtype in _SIGNED
        return [x, np.where(signs & signed, -y, y).astype(y.dtype)]
    return [x, ask.random(*right, dtype=kind)]


_SIGNED = (DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64)


def _binary_special(ask: Ask, attributes: dict[str, Any]) -> Iterator[Sample]:
    """Every special value with every other, and what only one operator has."""
    op_type = ask.op_type
    if op_type == "BitShift":
        yield Sample("right", _operands(ask, (9,), (9,)), {"direction": "RIGHT"}, core=True)
        return
    if op_type == "Mod" and not ask.is_float:
        yield Sample("fmod", _operands(ask, (3, 5), (3, 5)), {"fmod": 1})
    if op_type == "Pow":
        yield from _powers(ask)
        return
    if op_type in ("Div", "Mod") and not ask.is_float:
        return
    if ask.type_of(1) is not ask.dtype:
        return
    values = special_values(ask.dtype)
    left, right = np.meshgrid(values, values, indexing="ij")
    yield Sample("special", [np.ascontiguousarray(left), np.ascontiguousarray(right)], attributes)


def _powers(ask: Ask) -> Iterator[Sample]:
    """Every type of exponent, and negative bases with whole exponents."""
    if ask.version < 12:
        return
    for kind in ask.types(1):
        exponent = ask.numbers.random((2, 3), kind, 0, 3)
        base = ask.random(2, 3, low=0.5 if ask.is_float else 0, high=4)
        yield Sample(f"exponent {kind.text}", [base, exponent], core=True)
    if ask.is_float:
        base = ask.random(3, 4, low=-3, high=-0.5)
        yield Sample("negative base", [base, np.full((4,), 3, ask.dtype.numpy)])


@recipe("Max Mean Min Sum")
def variadic(ask: Ask) -> Iterator[Sample]:
    """One input, or many that broadcast."""
    yield Sample("single", [ask.random(2, 3)], core=True)
    yield Sample("plain", [ask.random(2, 3), ask.random(2, 3)], core=True)
    yield Sample("three", [ask.random(2, 3) for _ in range(3)], core=True)
    yield Sample("nine", [ask.random(5) for _ in range(9)])
    yield Sample("symbolic", [ask.random(2, 3), ask.random(2, 3)], symbolic=True)
    if ask.version < 8:
        return
    yield Sample("broadcast", [ask.random(3, 1), ask.random(4), ask.random(2, 1, 1)])
    yield Sample("rank0", [ask.random(), ask.random()])
    yield Sample("empty", [ask.random(0, 3), ask.random(1, 3)])
    values = special_values(ask.dtype)
    left, right = np.meshgrid(values, values, indexing="ij")
    if ask.op_type != "Mean":
        yield Sample("special", [np.ascontiguousarray(left), np.ascontiguousarray(right)])
    if ask.is_float:
        yield Sample("negative zero", [np.full((3,), -0.0).astype(ask.dtype.numpy)])
