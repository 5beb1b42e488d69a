"""Kernels that compute element by element, with broadcasting.

Broadcasting as numpy's came with operator set 7; the operators before it are not claimed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape
from ep_sdk.simulator.launch import ANY, FLOATS, NUMBERS, TABLE, Array, launched, viewed, widened

__all__: list[str] = []

_BOOL = frozenset({DataType.BOOL})

_Entry = tuple[str, Callable[..., Any], frozenset[DataType], int]
"""Operator, function, element types, first version."""


def broadcast(*shapes: Shape | None) -> Shape:
    """The shape that all shapes broadcast to; None is no constraint."""
    present = [shape for shape in shapes if shape is not None]
    try:
        # One pair at a time: numpy limits how many it takes at once.
        return functools.reduce(lambda a, b: np.broadcast_shapes(a, b), present, ())
    except ValueError as error:
        raise RunError("shapes don't broadcast", got=present) from error


def _divide(a: Array, b: Array) -> Any:
    """Integers round towards zero, as in C; numpy rounds down."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    down = np.floor_divide(a, b)
    inexact = down * b != a
    return down + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)


def _sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def _largest(*arrays: Array) -> Any:
    return functools.reduce(np.maximum, arrays)


def _smallest(*arrays: Array) -> Any:
    return functools.reduce(np.minimum, arrays)


def _where(condition: Array, x: Array, y: Array) -> Any:
    return np.where(condition, x, y)


def _clip(x: Array, low: Array | None = None, high: Array | None = None) -> Any:
    """The upper bound wins where the bounds cross."""
    result = x if low is None else np.maximum(x, low)
    return result if high is None else np.minimum(result, high)


def _add(
    op_type: str,
    compute: Callable[..., Any],
    types: frozenset[DataType],
    since: int,
    result: DataType | None = None,
) -> None:
    @TABLE.kernel(op_type, since=since, types={"T": types}, writes_out=True)
    def make(node: KernelNode) -> Kernel:
        return launched(node, compute, broadcast, result)


_SAME_TYPE: tuple[_Entry, ...] = (
    ("Add", np.add, NUMBERS, 7),
    ("Sub", np.subtract, NUMBERS, 7),
    ("Mul", np.multiply, NUMBERS, 7),
    ("Div", _divide, NUMBERS, 7),
    ("Max", _largest, NUMBERS, 8),
    ("Min", _smallest, NUMBERS, 8),
    ("Abs", np.abs, NUMBERS, 6),
    ("Neg", np.negative, NUMBERS, 6),
    ("Sign", np.sign, NUMBERS, 9),
    ("Relu", lambda x: np.maximum(x, x.dtype.type(0)), NUMBERS, 6),
    ("Exp", np.exp, FLOATS, 6),
    ("Log", np.log, FLOATS, 6),
    ("Sqrt", np.sqrt, FLOATS, 6),
    ("Reciprocal", np.reciprocal, FLOATS, 6),
    ("Floor", np.floor, FLOATS, 6),
    ("Ceil", np.ceil, FLOATS, 6),
    ("Round", np.rint, FLOATS, 11),
    ("Sin", np.sin, FLOATS, 7),
    ("Cos", np.cos, FLOATS, 7),
    ("Tanh", np.tanh, FLOATS, 6),
    ("Sigmoid", widened(_sigmoid), FLOATS, 6),
)

_TO_BOOL: tuple[_Entry, ...] = (
    ("Equal", np.equal, ANY, 7),
    ("Less", np.less, NUMBERS, 7),
    ("Greater", np.greater, NUMBERS, 7),
    ("LessOrEqual", np.less_equal, NUMBERS, 12),
    ("GreaterOrEqual", np.greater_equal, NUMBERS, 12),
    ("And", np.logical_and, _BOOL, 7),
    ("Or", np.logical_or, _BOOL, 7),
    ("Xor", np.logical_xor, _BOOL, 7),
    ("Not", np.logical_not, _BOOL, 1),
)

for _entry in _SAME_TYPE:
    _add(*_entry)
for _entry in _TO_BOOL:
    _add(*_entry, result=DataType.BOOL)


@TABLE.kernel("Pow", since=7, types={"T": FLOATS, 1: FLOATS}, writes_out=True)
def _pow(node: KernelNode) -> Kernel:
    return launched(node, lambda x, y: np.power(x, y).astype(x.dtype), broadcast)


@TABLE.kernel("Where", since=9, types={"T": ANY}, writes_out=True)
def _make_where(node: KernelNode) -> Kernel:
    return launched(node, _where, broadcast, node.input_dtype(1))


@TABLE.kernel("Clip", since=6, types={"T": NUMBERS}, writes_out=True)
def _make_clip(node: KernelNode) -> Kernel:
    """Bounds are attributes up to version 6 and inputs from 11 on."""
    if node.version >= 11:
        return launched(node, _clip, lambda x, *bounds: x)
    low = node.attr("min")
    high = node.attr("max")

    def compute(x: Array) -> Any:
        kind = x.dtype.type
        return _clip(x, None if low is None else kind(low), None if high is None else kind(high))

    return launched(node, compute, lambda x: x)


def _cast_target(node: KernelNode) -> str | None:
    target = node.attr("to")
    return None if target in ANY else f"casts to element type {target}"


@TABLE.kernel("Cast", since=6, types={0: ANY}, writes_out=True, predicate=_cast_target)
def _cast(node: KernelNode) -> Kernel:
    target = DataType(node.attr("to"))
    return launched(node, lambda x: x.astype(target.numpy), lambda x: x, target)


@TABLE.kernel("Identity", types={0: ANY}, view=True)
def _identity(node: KernelNode) -> Kernel:
    return viewed(node, lambda shape: shape)
