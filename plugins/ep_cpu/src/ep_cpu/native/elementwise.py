"""Elementwise operators as expressions, and small integer arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.types import DataType
from ep_cpu.native.expression import Expression, constant, given, single
from ep_cpu.native.steps import NativeStep, shape_of
from ep_cpu.native.table import (
    NOT_FLOAT,
    OLD_VERSION,
    Answer,
    Translate,
    all_floats,
    operator,
    rank_of,
)
from ep_cpu.native.typed import integer_arithmetic
from ep_sdk.kernels import KernelNode


def _elementwise(node: KernelNode, expression: Expression) -> NativeStep:
    return NativeStep("elementwise", (), node.node.outputs, {}, (node.node,), expression)


def _number(node: KernelNode, index: int) -> float | None:
    """A constant input of one element that adds no axis to the result."""
    value = node.constants[index]
    if value is None or value.size != 1:
        return None
    rank = len(shape_of(node.output_types[0]) or ())
    others = [rank_of(node, i) for i in range(len(node.node.inputs)) if i != index]
    if value.ndim and (len(others) != 1 or others[0] is None or value.ndim > others[0]):
        return None
    return None if value.ndim > rank else float(value.reshape(-1)[0])


def _unary(code: str) -> Translate:
    def make(node: KernelNode) -> Answer:
        if not all_floats(node):
            return NOT_FLOAT
        return _elementwise(node, single(code, node.node.inputs[:1]))

    return make


for _name, _code in (
    ("Neg", "neg"),
    ("Abs", "abs"),
    ("Sqrt", "sqrt"),
    ("Reciprocal", "reciprocal"),
    ("Exp", "exp"),
    ("Log", "log"),
    ("Tanh", "tanh"),
    ("Sigmoid", "sigmoid"),
    ("Erf", "erf"),
    ("Relu", "relu"),
    ("Floor", "floor"),
    ("Ceil", "ceil"),
    ("Round", "round"),
    ("Sign", "sign"),
    ("Softplus", "softplus"),
):
    operator(_name)(_unary(_code))


def _binary(code: str) -> Translate:
    def make(node: KernelNode) -> Answer:
        if node.version < 7:
            return OLD_VERSION
        if not all_floats(node):
            return integer_arithmetic(node, code)
        operands: list[str | float] = []
        for index, name in enumerate(node.node.inputs):
            number = _number(node, index) if index or operands else None
            operands.append(name if number is None else number)
        if isinstance(operands[1], str):
            first = _number(node, 0)
            operands[0] = operands[0] if first is None else first
        if not any(isinstance(item, str) for item in operands):
            return "a constant result"
        return _elementwise(node, single(code, operands))

    return make


for _name, _code in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("Div", "div")):
    operator(_name)(_binary(_code))


def _extreme(code: str) -> Translate:
    def make(node: KernelNode) -> Answer:
        if node.version < 8 or not all_floats(node) or len(node.node.inputs) < 2:
            return integer_arithmetic(node, code) if node.version >= 12 else NOT_FLOAT
        names = node.node.inputs
        expression = single(code, names[:2])
        for name in names[2:]:
            expression = single(code, ("", name)).with_inlined("", expression)
        return _elementwise(node, expression) if expression.fits() else "too many operands"

    return make


operator("Max")(_extreme("max"))
operator("Min")(_extreme("min"))


@operator("Pow")
def _pow(node: KernelNode) -> Answer:
    exponent = node.constants[1]
    if exponent is None or exponent.size != 1 or exponent.ndim > (rank_of(node, 0) or 0):
        return "an exponent that isn't one number"
    if node.input_dtype(0) is not DataType.FLOAT:
        return NOT_FLOAT
    name = node.node.inputs[0]
    power = float(exponent.reshape(-1)[0])
    if power == 2.0:
        return _elementwise(node, single("mul", (name, name)))
    if power == 3.0:
        square = single("mul", (name, name))
        cube = ("mul", (square.result(0), given(0)))
        return _elementwise(node, Expression((name,), (*square.operations, cube)))
    return f"exponent {power}"


@operator("Clip")
def _clip(node: KernelNode) -> Answer:
    if node.input_dtype(0) is not DataType.FLOAT:
        return NOT_FLOAT
    bounds: list[float] = []
    for index, name, open_end in ((1, "min", -math.inf), (2, "max", math.inf)):
        if node.version < 11:
            bounds.append(float(node.attr(name, open_end)))
            continue
        if not node.has_input(index):
            bounds.append(open_end)
            continue
        value = node.constants[index]
        if value is None or value.size != 1:
            return "bounds that aren't constant"
        bounds.append(float(value.reshape(-1)[0]))
    if any(math.isnan(bound) for bound in bounds):
        return "a bound that is NaN"
    name = node.node.inputs[0]
    operations = (
        ("max", (given(0), constant(bounds[0]))),
        ("min", (single("max", (name,)).result(0), constant(bounds[1]))),
    )
    return _elementwise(node, Expression((name,), operations))


@operator("LeakyRelu")
def _leaky(node: KernelNode) -> Answer:
    if not all_floats(node) or node.version < 6:
        return NOT_FLOAT
    name = node.node.inputs[0]
    scaled = single("mul", (name, float(node.attr("alpha", 0.01))))
    chosen = ("select_negative", (given(0), scaled.result(0), given(0)))
    return _elementwise(node, Expression((name,), (*scaled.operations, chosen)))


def _hard_sigmoid(alpha: float, beta: float) -> tuple[Any, ...]:
    def result(index: int) -> Any:
        return Expression((), ()).result(index)

    return (
        ("fma", (given(0), constant(alpha), constant(beta))),
        ("max", (result(0), constant(0.0))),
        ("min", (result(1), constant(1.0))),
    )


@operator("HardSigmoid")
def _hard_sigmoid_step(node: KernelNode) -> Answer:
    if not all_floats(node) or node.version < 6:
        return NOT_FLOAT
    operations = _hard_sigmoid(float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5)))
    return _elementwise(node, Expression((node.node.inputs[0],), operations))


@operator("HardSwish")
def _hard_swish(node: KernelNode) -> Answer:
    if not all_floats(node):
        return NOT_FLOAT
    operations = _hard_sigmoid(float(np.float32(1 / 6)), 0.5)
    expression = Expression((node.node.inputs[0],), operations)
    last = ("mul", (given(0), expression.result(2)))
    return _elementwise(node, Expression(expression.inputs, (*operations, last)))


@operator("Swish")
def _swish(node: KernelNode) -> Answer:
    if not all_floats(node):
        return NOT_FLOAT
    if float(node.attr("alpha", 1.0)) != 1.0:
        return "an alpha that isn't 1"
    return _elementwise(node, single("silu", node.node.inputs[:1]))


@operator("Gelu")
def _gelu(node: KernelNode) -> Answer:
    if not all_floats(node):
        return NOT_FLOAT
    kind = node.attr("approximate", "none")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    code = {"none": "gelu", "tanh": "gelu_tanh"}.get(str(kind))
    if code is None:
        return f"approximation {kind!r}"
    return _elementwise(node, single(code, node.node.inputs[:1]))
