"""Versions that `onnx.reference` doesn't know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct

__all__: list[str] = []


@correct("Clip", until=10, reason="version 1 is missing")
def clip(call: NodeCall) -> Sequence[Any]:
    """Bounds are attributes."""
    x = call.inputs[0]
    return [np.clip(x, call.attr("min", -np.inf), call.attr("max", np.inf))]


@correct("Dropout", until=9, reason="versions 1 and 6 are missing")
def dropout(call: NodeCall) -> Sequence[Any] | None:
    """The identity outside of training."""
    return None if call.wants(1) else [call.inputs[0].copy()]


@correct("Reshape", until=4, reason="version 1 is missing")
def reshape(call: NodeCall) -> Sequence[Any]:
    """The shape is an attribute; 0 keeps a dimension."""
    x = call.inputs[0]
    shape = [x.shape[i] if n == 0 else n for i, n in enumerate(call.attr("shape"))]
    return [x.reshape(shape)]


@correct("Split", until=1, reason="version 1 is missing")
def split(call: NodeCall) -> Sequence[Any]:
    """Parts are an attribute or an input."""
    x, axis, given = call.inputs[0], call.attr("axis", 0), call.input(1)
    count = len(call.node.output)
    parts = call.attr("split") if given is None else given.astype(np.int64)
    if parts is None:
        parts = [x.shape[axis] // count] * count
    return np.split(x, np.cumsum(parts)[:-1], axis=axis)


@correct("Tile", until=5, reason="version 1 is missing")
def tile(call: NodeCall) -> Sequence[Any]:
    """One axis is repeated."""
    x, count, axis = call.inputs
    repeats = [1] * x.ndim
    repeats[int(np.reshape(axis, ()))] = int(np.reshape(count, ()))
    return [np.tile(x, repeats)]


@correct("Gemm", until=6, reason="version 1 is missing")
def gemm(call: NodeCall) -> Sequence[Any]:
    """`alpha * a * b + beta * c`, transposed as asked."""
    a, b, c = call.inputs
    a = a.T if call.attr("transA", 0) else a
    b = b.T if call.attr("transB", 0) else b
    return [call.attr("alpha", 1.0) * (a @ b) + call.attr("beta", 1.0) * c]


def _quotient(x: Any, y: Any) -> Any:
    """Rounded towards zero if the operands are integers."""
    if x.dtype.kind == "f":
        return x / y
    return (np.abs(x) // np.abs(y)) * (np.sign(x) * np.sign(y))


_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": _quotient,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}


def _broadcast(call: NodeCall) -> Sequence[Any] | None:
    """The right side's dimensions are the left side's from the axis on."""
    x, y = call.inputs
    axis = call.attr("axis")
    if axis is None or not call.attr("broadcast", 0):
        return None
    after = x.ndim - axis - y.ndim
    return [_BINARY[call.node.op_type](x, y.reshape(*y.shape, *[1] * after))]


for _name in _BINARY:
    correct(_name, until=6, reason="the axis of a broadcast is ignored")(_broadcast)


@correct("Pow", until=6, reason="version 1 fails")
def power(call: NodeCall) -> Sequence[Any]:
    """Element by element."""
    return [np.asarray(call.inputs[0] ** call.inputs[1])]


@correct("Multinomial", reason="there is no implementation")
def multinomial(call: NodeCall) -> Sequence[Any]:
    """Draws, so that only the shape says something."""
    return [np.zeros((len(call.inputs[0]), call.attr("sample_size", 1)), call.dtype())]
