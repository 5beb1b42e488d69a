"""Operators on other types than float32: casts, comparisons, logic, integers, choosing."""

from __future__ import annotations

import numpy as np

from ep_core.types import DataType
from ep_cpu.native.steps import NativeStep
from ep_cpu.native.table import (
    NOT_FLOAT,
    OLD_VERSION,
    Answer,
    Translate,
    native_step,
    operator,
)
from ep_sdk.kernels import KernelNode

__all__ = ["integer_arithmetic"]

_COMPARED = frozenset(
    (
        *(DataType.FLOAT, DataType.DOUBLE, DataType.INT64, DataType.INT32),
        *(DataType.UINT8, DataType.INT8, DataType.BOOL),
    )
)
_INTEGERS = frozenset((DataType.INT64, DataType.INT32))
_ARITHMETIC = ("add", "sub", "mul", "max", "min", "div")
_WHERE_SINCE = 9
_BROADCAST_SINCE = 7


def _types(node: KernelNode) -> list[DataType | None]:
    return [node.input_dtype(i) for i in range(len(node.node.inputs)) if node.has_input(i)]


def integer_arithmetic(node: KernelNode, code: str) -> Answer:
    """The step of an arithmetic operator with two inputs of int64 or int32."""
    kinds = _types(node)
    if len(kinds) != 2 or kinds[0] != kinds[1] or kinds[0] not in _INTEGERS:
        return NOT_FLOAT
    return native_step(node, "integer_arithmetic", code=_ARITHMETIC.index(code))


def _comparison(code: int) -> Translate:
    def make(node: KernelNode) -> Answer:
        if node.version < _BROADCAST_SINCE:
            return OLD_VERSION
        if not set(_types(node)) <= _COMPARED:
            return "a type that isn't compared"
        return native_step(node, "comparison", code=code)

    return make


for _code, _name in enumerate(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")):
    operator(_name)(_comparison(_code))


def _logic(code: int) -> Translate:
    def make(node: KernelNode) -> Answer:
        if node.version < _BROADCAST_SINCE:
            return OLD_VERSION
        return native_step(node, "logic", code=code)

    return make


for _code, _name in enumerate(("And", "Or", "Xor")):
    operator(_name)(_logic(_code))


@operator("Not")
def _not(node: KernelNode) -> Answer:
    return native_step(node, "test", code=0)


@operator("IsNaN")
def _is_nan(node: KernelNode) -> Answer:
    if node.input_dtype(0) is not DataType.FLOAT:
        return NOT_FLOAT
    return native_step(node, "test", code=1)


@operator("Where")
def _where(node: KernelNode) -> Answer:
    if node.version < _WHERE_SINCE or node.input_dtype(1) != node.input_dtype(2):
        return OLD_VERSION
    return native_step(node, "where")


@operator("Cast")
def _cast(node: KernelNode) -> Answer:
    to = node.attr("to")
    if not isinstance(to, int) or to not in _COMPARED or node.input_dtype(0) not in _COMPARED:
        return "a type that isn't converted"
    return native_step(node, "cast", to=to)


@operator("Size")
def _size(node: KernelNode) -> Answer:
    return native_step(node, "size")


@operator("Range")
def _range(node: KernelNode) -> Answer:
    if set(_types(node)) not in ({DataType.INT64}, {DataType.FLOAT}):
        return "a range of other numbers than int64 and float32"
    return native_step(node, "range")


@operator("ConstantOfShape")
def _constant_of_shape(node: KernelNode) -> Answer:
    given = node.attr("value")
    value = np.zeros(1, np.float32) if given is None else np.asarray(given).reshape(-1)
    if value.size != 1 or value.dtype.kind not in "fiub":
        return "an odd value"
    own = node.node
    name = f"{own.outputs[0]}\0value"
    inputs = (own.inputs[0], name)
    return NativeStep("fill", inputs, own.outputs, nodes=(own,), constants={name: value})


@operator("Pad")
def _pad(node: KernelNode) -> Answer:
    mode = node.attr("mode", "constant")
    if (mode.decode() if isinstance(mode, bytes) else mode) != "constant":
        return f"mode {mode!r}"
    if node.version < 11:
        return OLD_VERSION
    pads = node.constants[1]
    if pads is None or (pads < 0).any():
        return "pads that aren't constant, or cut"
    if node.has_input(2) and node.input_dtype(2) != node.input_dtype(0):
        return "an odd value"
    return native_step(node, "pad")
