"""Which nodes have native operations: one function per operator, in one table.

A function gives the step for a node, or the reason why there is none. What a step computes is what
the kernel of the same node in `ep_cpu.kernels` computes, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ep_core.types import DataType, TensorType, ValueType
from ep_cpu.native.expression import Expression, constant, given, single
from ep_cpu.native.steps import NativeStep, shape_of
from ep_sdk.kernels import KernelNode

__all__ = ["translate"]

Answer = NativeStep | str
Translate = Callable[[KernelNode], Answer]

_TABLE: dict[tuple[str, str], Translate] = {}

_MOST_RANK = 8
_MOVED = frozenset(
    {
        DataType.FLOAT,
        DataType.UINT8,
        DataType.INT8,
        DataType.UINT16,
        DataType.INT16,
        DataType.INT32,
        DataType.INT64,
        DataType.BOOL,
        DataType.FLOAT16,
        DataType.DOUBLE,
        DataType.UINT32,
        DataType.UINT64,
    }
)
"""What can be moved about; only float32 is computed with."""


def translate(node: KernelNode) -> Answer:
    """The native step for a node, or why there is none."""
    found = _TABLE.get((node.node.domain, node.node.op_type))
    if found is None:
        return "no native operation"
    for kind in (*node.input_types, *node.output_types):
        if kind is not None and not _is_handled(kind):
            return f"type {kind}"
    return found(node)


def _is_handled(kind: ValueType) -> bool:
    if not isinstance(kind, TensorType) or kind.dtype not in _MOVED:
        return False
    return kind.shape is None or len(kind.shape) <= _MOST_RANK


def _operator(*names: str, domain: str = "") -> Callable[[Translate], Translate]:
    def add(function: Translate) -> Translate:
        for name in names:
            _TABLE[(domain, name)] = function
        return function

    return add


def _step(
    node: KernelNode, kind: str, *, inputs: tuple[str, ...] | None = None, **attributes: Any
) -> NativeStep:
    own = node.node
    given_inputs = own.inputs if inputs is None else inputs
    return NativeStep(kind, tuple(given_inputs), own.outputs, attributes, (own,))


def _all_floats(node: KernelNode) -> bool:
    kinds = [node.input_dtype(i) for i in range(len(node.node.inputs)) if node.has_input(i)]
    return all(kind is DataType.FLOAT for kind in kinds)


_NOT_FLOAT = "only float32 is computed"
_OLD = "an old version"


def _rank(node: KernelNode, index: int) -> int | None:
    kind = node.input_types[index]
    return len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None


def _integers(value: np.ndarray[Any, Any]) -> list[int]:
    return [int(item) for item in value.reshape(-1).tolist()]


# ---------------------------------------------------------------- elementwise


def _elementwise(node: KernelNode, expression: Expression) -> NativeStep:
    return NativeStep("elementwise", (), node.node.outputs, {}, (node.node,), expression)


def _number(node: KernelNode, index: int) -> float | None:
    """A constant input of one element that adds no axis to the result."""
    value = node.constants[index]
    if value is None or value.size != 1:
        return None
    rank = len(shape_of(node.output_types[0]) or ())
    others = [_rank(node, i) for i in range(len(node.node.inputs)) if i != index]
    if value.ndim and (len(others) != 1 or others[0] is None or value.ndim > others[0]):
        return None
    return None if value.ndim > rank else float(value.reshape(-1)[0])


def _unary(code: str) -> Translate:
    def make(node: KernelNode) -> Answer:
        if not _all_floats(node):
            return _NOT_FLOAT
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
    _operator(_name)(_unary(_code))


def _binary(code: str) -> Translate:
    def make(node: KernelNode) -> Answer:
        if node.version < 7:
            return _OLD
        if not _all_floats(node):
            return _integer_arithmetic(node, code)
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


def _integer_arithmetic(node: KernelNode, code: str) -> Answer:
    if any(node.input_dtype(i) is not DataType.INT64 for i in range(2)):
        return _NOT_FLOAT
    if any((_rank(node, i) or 0) > 1 or _rank(node, i) is None for i in range(2)):
        return "integers of more than one dimension"
    lengths = [shape_of(node.input_types[i]) for i in range(2)]
    if lengths[0] is None or lengths[1] is None:
        return "integers of unknown length"
    number = ("add", "sub", "mul", "div").index(code)
    return _step(node, "integer_arithmetic", code=number)


for _name, _code in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("Div", "div")):
    _operator(_name)(_binary(_code))


def _extreme(code: str) -> Translate:
    def make(node: KernelNode) -> Answer:
        if node.version < 8 or not _all_floats(node) or len(node.node.inputs) < 2:
            return _NOT_FLOAT
        names = node.node.inputs
        expression = single(code, names[:2])
        for name in names[2:]:
            expression = single(code, ("", name)).with_inlined("", expression)
        return _elementwise(node, expression) if expression.fits() else "too many operands"

    return make


_operator("Max")(_extreme("max"))
_operator("Min")(_extreme("min"))


@_operator("Pow")
def _pow(node: KernelNode) -> Answer:
    exponent = node.constants[1]
    if exponent is None or exponent.size != 1 or exponent.ndim > (_rank(node, 0) or 0):
        return "an exponent that isn't one number"
    if node.input_dtype(0) is not DataType.FLOAT:
        return _NOT_FLOAT
    name = node.node.inputs[0]
    power = float(exponent.reshape(-1)[0])
    if power == 2.0:
        return _elementwise(node, single("mul", (name, name)))
    if power == 3.0:
        square = single("mul", (name, name))
        cube = ("mul", (square.result(0), given(0)))
        return _elementwise(node, Expression((name,), (*square.operations, cube)))
    return f"exponent {power}"


@_operator("Clip")
def _clip(node: KernelNode) -> Answer:
    if node.input_dtype(0) is not DataType.FLOAT:
        return _NOT_FLOAT
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


@_operator("LeakyRelu")
def _leaky(node: KernelNode) -> Answer:
    if not _all_floats(node) or node.version < 6:
        return _NOT_FLOAT
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


@_operator("HardSigmoid")
def _hard_sigmoid_step(node: KernelNode) -> Answer:
    if not _all_floats(node) or node.version < 6:
        return _NOT_FLOAT
    operations = _hard_sigmoid(float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5)))
    return _elementwise(node, Expression((node.node.inputs[0],), operations))


@_operator("HardSwish")
def _hard_swish(node: KernelNode) -> Answer:
    if not _all_floats(node):
        return _NOT_FLOAT
    operations = _hard_sigmoid(float(np.float32(1 / 6)), 0.5)
    expression = Expression((node.node.inputs[0],), operations)
    last = ("mul", (given(0), expression.result(2)))
    return _elementwise(node, Expression(expression.inputs, (*operations, last)))


@_operator("Swish")
def _swish(node: KernelNode) -> Answer:
    if not _all_floats(node):
        return _NOT_FLOAT
    if float(node.attr("alpha", 1.0)) != 1.0:
        return "an alpha that isn't 1"
    return _elementwise(node, single("silu", node.node.inputs[:1]))


@_operator("Gelu")
def _gelu(node: KernelNode) -> Answer:
    if not _all_floats(node):
        return _NOT_FLOAT
    kind = node.attr("approximate", "none")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    code = {"none": "gelu", "tanh": "gelu_tanh"}.get(str(kind))
    if code is None:
        return f"approximation {kind!r}"
    return _elementwise(node, single(code, node.node.inputs[:1]))


# ---------------------------------------------------------------- products


@_operator("MatMul")
def _matmul(node: KernelNode) -> Answer:
    if not _all_floats(node):
        return _NOT_FLOAT
    ranks = (_rank(node, 0), _rank(node, 1))
    if None in ranks or min(rank or 0 for rank in ranks) < 2:
        return "a vector, or an unknown rank"
    return _step(node, "matmul", inputs=(*node.node.inputs, ""))


@_operator("Gemm")
def _gemm(node: KernelNode) -> Answer:
    if not _all_floats(node):
        return _NOT_FLOAT
    if _rank(node, 0) != 2 or _rank(node, 1) != 2 or node.attr("transA", 0):
        return "a transposed first operand, or unknown ranks"
    if float(node.attr("alpha", 1.0)) != 1.0 or float(node.attr("beta", 1.0)) != 1.0:
        return "factors"
    bias = ""
    if node.has_input(2):
        bias = node.node.inputs[2]
        shape = shape_of(node.input_types[2])
        weight = shape_of(node.input_types[1])
        if shape is None or weight is None:
            return "a bias of unknown shape"
        width = weight[0 if node.attr("transB", 0) else 1]
        # The bias must be the whole width: that of a single column would be repeated.
        if not shape or shape[-1] != width or any(length != 1 for length in shape[:-1]):
            return "a bias that isn't a vector"
    step = _step(node, "matmul", inputs=(*node.node.inputs[:2], bias))
    return step.with_attributes(b_order=[1, 0]) if node.attr("transB", 0) else step


# ---------------------------------------------------------------- rows


@_operator("LayerNormalization")
def _layer_normalization(node: KernelNode) -> Answer:
    if not _all_floats(node) or node.wants_output(1) or node.wants_output(2):
        return _NOT_FLOAT
    return _normalization(node, centred=1)


@_operator("RMSNormalization")
def _rms_normalization(node: KernelNode) -> Answer:
    return _normalization(node, centred=0) if _all_floats(node) else _NOT_FLOAT


def _normalization(node: KernelNode, centred: int) -> Answer:
    rank = _rank(node, 0)
    if rank is None or int(node.attr("stash_type", 1)) != 1:
        return "an unknown rank, or another type of sums"
    axis = int(node.attr("axis", -1))
    lengths = shape_of(node.input_types[0])
    for index in range(1, len(node.node.inputs)):
        if node.has_input(index):
            shape = shape_of(node.input_types[index])
            if shape is None or lengths is None or shape != lengths[axis % rank :]:
                return "a scale or bias that is broadcast"
    return NativeStep(
        "layer_normalization",
        (*node.node.inputs, *("",) * (3 - len(node.node.inputs))),
        node.node.outputs[:1],
        {"axis": axis, "epsilon": float(node.attr("epsilon", 1e-5)), "centred": centred},
        (node.node,),
    )


def _softmax(logarithm: int) -> Translate:
    def make(node: KernelNode) -> Answer:
        rank = _rank(node, 0)
        if not _all_floats(node) or not rank:
            return _NOT_FLOAT
        axis = int(node.attr("axis", -1 if node.version >= 13 else 1))
        # Before version 13 everything from the axis on was one row.
        if axis % rank != rank - 1:
            return "an axis that isn't the last"
        return _step(node, "softmax", axis=-1, logarithm=logarithm)

    return make


_operator("Softmax")(_softmax(0))
_operator("LogSoftmax")(_softmax(1))


def _reduction(kind: int) -> Translate:
    def make(node: KernelNode) -> Answer:
        rank = _rank(node, 0)
        if node.input_dtype(0) is not DataType.FLOAT or not rank:
            return _NOT_FLOAT
        axes = node.attr("axes", ())
        if node.has_input(1):
            value = node.constants[1]
            if value is None:
                return "axes that aren't constant"
            axes = _integers(value)
        if not axes and node.attr("noop_with_empty_axes", 0):
            return "nothing to reduce"
        gone = sorted({axis % rank for axis in axes}) or list(range(rank))
        if gone != list(range(gone[0], gone[-1] + 1)):
            return "axes that don't lie side by side"
        shape = shape_of(node.input_types[0])
        if shape is None or 0 in shape:
            return "an unknown or empty shape"
        keep = int(node.attr("keepdims", 1))
        return _step(
            node, "reduce", inputs=(node.node.inputs[0], ""), kind=kind, keep=keep, axes=gone
        )

    return make


for _kind, _name in enumerate(
    ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1")
):
    _operator(_name)(_reduction(_kind))


# ---------------------------------------------------------------- moving


@_operator("Transpose")
def _transpose(node: KernelNode) -> Answer:
    rank = _rank(node, 0)
    if rank is None:
        return "an unknown rank"
    order = [int(axis) for axis in node.attr("perm", tuple(reversed(range(rank))))]
    if sorted(order) != list(range(rank)):
        return "a perm that is none"
    return _step(node, "transpose", order=order)


@_operator("Reshape")
def _reshape(node: KernelNode) -> Answer:
    if node.version < 5:
        return _OLD
    return _step(node, "reshape", allow_zero=int(node.attr("allowzero", 0)))


@_operator("Flatten")
def _flatten(node: KernelNode) -> Answer:
    return _step(node, "flatten", axis=int(node.attr("axis", 1)))


@_operator("Squeeze", "Unsqueeze")
def _squeeze(node: KernelNode) -> Answer:
    kind = node.node.op_type.lower()
    if node.version >= 13:
        return _step(node, kind)
    return _step(node, kind, axes=[int(axis) for axis in node.attr("axes", ())])


@_operator("Identity")
def _identity(node: KernelNode) -> Answer:
    return _step(node, "identity")


@_operator("Dropout")
def _dropout(node: KernelNode) -> Answer:
    if node.version < 7 or node.wants_output(1) or node.has_input(2):
        return "a mask, or training"
    return NativeStep(
        "identity", node.node.inputs[:1], node.node.outputs[:1], {}, (node.node,)
    )


@_operator("Shape")
def _shape(node: KernelNode) -> Answer:
    bounds = {key: int(node.attr(key)) for key in ("start", "end") if node.attr(key) is not None}
    return _step(node, "shape", **bounds)


@_operator("Gather")
def _gather(node: KernelNode) -> Answer:
    return _step(node, "gather", axis=int(node.attr("axis", 0)))


@_operator("Concat")
def _concat(node: KernelNode) -> Answer:
    if node.version < 4:
        return _OLD
    kinds = {node.input_dtype(i) for i in range(len(node.node.inputs))}
    if len(kinds) != 1 or None in kinds:
        return "an unknown type"
    return _step(node, "concat", axis=int(node.attr("axis")))


@_operator("Slice")
def _slice(node: KernelNode) -> Answer:
    if node.version < 10:
        return _OLD
    return _step(node, "slice")


@_operator("Expand")
def _expand(node: KernelNode) -> Answer:
    return _step(node, "expand")


@_operator("Split")
def _split(node: KernelNode) -> Answer:
    rank = _rank(node, 0)
    shape = shape_of(node.input_types[0])
    if rank is None or shape is None or "" in node.node.outputs:
        return "an unknown shape"
    axis = int(node.attr("axis", 0))
    if node.has_input(1):
        value = node.constants[1]
        if value is None:
            return "lengths that aren't constant"
        lengths = _integers(value)
    elif node.attr("split") is not None:
        lengths = [int(length) for length in node.attr("split")]
    else:
        whole, parts = shape[axis % rank], len(node.node.outputs)
        if not isinstance(whole, int) or whole % parts:
            return "parts that differ"
        lengths = [whole // parts] * parts
    return _step(node, "split", inputs=node.node.inputs[:1], axis=axis, lengths=lengths)
