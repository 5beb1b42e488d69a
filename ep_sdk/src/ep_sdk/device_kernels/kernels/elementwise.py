"""Elementwise operators with broadcasting: rows from the table of formulas, one kernel class.

An `ElementwiseKernel` is an expression with a plan for each combination of shapes that it met.
Fusion builds larger expressions from these; see `fusing.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceKernel, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS, NARROW_FLOATS
from ep_sdk.device_kernels.expression import Align, Expression, Operation, literal, source_of
from ep_sdk.device_kernels.formulas import FORMULAS, GELU, Formula
from ep_sdk.device_kernels.launch import TABLE, Bench, text_attribute
from ep_sdk.kernels import Kernel, KernelNode, MakeKernel
from ep_sdk.shapes import Shape

__all__ = [
    "ELEMENTWISE",
    "ElementwiseKernel",
    "dtype_of",
    "elementwise_row",
    "formula_text",
    "make_elementwise",
]

ELEMENTWISE: set[str] = set()
"""Operators whose kernels are elementwise: what `fusing.py` may join."""

_MOST_PLANS = 64


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a launch needs for one combination of shapes."""

    kernel: DeviceKernel
    shape: Shape
    size: tuple[int, ...]
    numbers: tuple[Any, ...]


class ElementwiseKernel:
    """Computes an expression; a kernel as the kernel table wants it.

    Attributes:
        expression: what it computes.
        positions: which of the node's inputs are the expression's.
    """

    def __init__(self, bench: Bench, expression: Expression, positions: Sequence[int]) -> None:
        self.bench = bench
        self.expression = expression
        self.positions = tuple(positions)
        self._plans: dict[tuple[Shape, ...], _Plan] = {}
        self._lock = threading.Lock()

    def __call__(
        self,
        stream: DeviceStream,
        *inputs: DeviceBuffer | None,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        """Compute; `out` is memory to write into, or None."""
        used = [inputs[position] for position in self.positions]
        buffers = [item for item in used if item is not None]
        plan = self._plan(tuple(item.shape for item in buffers))
        with self.bench.writing(stream, plan.shape, self.expression.result, out) as target:
            arguments = [target.handle, *(item.handle for item in buffers), *plan.numbers]
            plan.kernel.launch(stream, plan.size, None, arguments)
        return target

    def reading_only(self, count: int) -> ElementwiseKernel:
        """The same for the first inputs; the formula doesn't name the others."""
        first = self.expression.operations[0]
        operation = replace(first, operands=first.operands[:count], aligns=first.aligns[:count])
        expression = Expression(self.expression.inputs[:count], (operation,))
        return ElementwiseKernel(self.bench, expression, self.positions[:count])

    def _plan(self, shapes: tuple[Shape, ...]) -> _Plan:
        plan = self._plans.get(shapes)
        if plan is None:
            plan = self._make_plan(shapes)
            with self._lock:
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.clear()
                self._plans[shapes] = plan
        return plan

    def _make_plan(self, shapes: Sequence[Shape]) -> _Plan:
        shape, aligned = self.expression.shapes_of(shapes)
        lengths, patterns = _collapse(shape, aligned)
        kernel = self.bench.kernel(
            "elementwise.cl", "elementwise", body=source_of(self.expression, patterns)
        )
        numbers: list[Any] = [np.int64(length) for length in lengths[:-1]]
        for pattern in patterns:
            step = 1
            for axis, moves in enumerate(pattern):
                if moves == "1":
                    if axis:
                        numbers.append(np.int64(step))
                    step *= lengths[axis]
        size = lengths[:2] + [int(np.prod(lengths[2:], dtype=np.int64))] * (len(lengths) > 2)
        return _Plan(kernel, shape, tuple(size), tuple(numbers))


def _collapse(shape: Shape, inputs: Sequence[Shape]) -> tuple[list[int], list[str]]:
    """Join neighbouring dimensions along which every input does the same.

    Returns:
        Lengths of the joined dimensions, the fastest first, and for each input its pattern; see
        `source_of`.
    """
    rank = len(shape)
    padded = [(1,) * (rank - len(item)) + tuple(item) for item in inputs]
    lengths: list[int] = []
    columns: list[str] = []
    for axis in reversed(range(rank)):
        if shape[axis] == 1:
            continue
        column = "".join("1" if item[axis] != 1 else "0" for item in padded)
        if columns and columns[-1] == column:
            lengths[-1] *= shape[axis]
        else:
            lengths.append(shape[axis])
            columns.append(column)
    if not lengths:
        return [1], ["0"] * len(inputs)
    return lengths, ["".join(column[n] for column in columns) for n in range(len(inputs))]


# ---------------------------------------------------------------- rows of the table


def formula_text(text: str, dtype: DataType, **values: float) -> str:
    """Fill in everything but the operands, which stay `{0}`, `{1}`, ..."""
    element = ELEMENTS[dtype]
    words = {name: literal(value, dtype) for name, value in values.items()}
    words["T"] = f"COMPUTED({element.code})"
    words["E"] = element.code
    words["f"] = "" if dtype is DataType.DOUBLE else "f"
    words["real"] = "double" if dtype is DataType.DOUBLE else "float"
    return text.format("{0}", "{1}", "{2}", "{3}", "{4}", **words)


def make_elementwise(
    node: KernelNode,
    text: str,
    result: DataType,
    aligns: Sequence[Align | None] | None = None,
) -> ElementwiseKernel:
    """A kernel of one formula over the inputs that the node has."""
    present = [n for n in range(len(node.node.inputs)) if node.has_input(n)]
    kinds = tuple(dtype_of(node, n) for n in present)
    numbers = tuple(range(len(present)))
    operation = Operation(text, numbers, result, tuple(aligns or [None] * len(present)))
    return ElementwiseKernel(Bench(node), Expression(kinds, (operation,)), present)


def dtype_of(node: KernelNode, position: int) -> DataType:
    """Element type of an input; rows take no unknown types."""
    dtype = node.input_dtype(position)
    assert dtype is not None
    return dtype


def _make_row(formula: Formula, node: KernelNode) -> Kernel:
    dtype = dtype_of(node, 0)
    values = {name: node.attr(name, default) for name, default in formula.attributes.items()}
    is_integer = ELEMENTS[dtype].kind in ("int", "uint")
    template = formula.integers if formula.integers and is_integer else formula.text
    text = formula_text(template, dtype, **values)
    result = formula.result if formula.result is not None else dtype
    if not formula.folds:
        return make_elementwise(node, text, result)
    return _folded(node, text, dtype, formula.mean)


def _folded(node: KernelNode, text: str, dtype: DataType, mean: bool) -> Kernel:
    """Two inputs at a time, from the left; rounded once at the end."""
    count = len(node.node.inputs)
    wide = DataType.FLOAT if dtype in NARROW_FLOATS else dtype
    operations: list[Operation] = []
    last = 0
    for number in range(1, count):
        operations.append(Operation(text, (last, number), wide, (None, None)))
        last = -len(operations)
    end = "{0}"
    if mean:
        divisor = literal(float(count), dtype)
        end = f"({{0}} / {divisor})"
    operations.append(Operation(end, (last,), dtype, (None,)))
    expression = Expression((dtype,) * count, tuple(operations))
    return ElementwiseKernel(Bench(node), expression, range(count))


def elementwise_row(op_type: str, **settings: Any) -> Callable[[MakeKernel], MakeKernel]:
    """Like `TABLE.kernel`, for a factory that gives an `ElementwiseKernel`."""
    ELEMENTWISE.add(op_type)
    return TABLE.kernel(op_type, writes_out=True, **settings)


def _add_rows() -> None:
    for op_type, formulas in FORMULAS.items():
        for formula in formulas:
            elementwise_row(
                op_type,
                since=formula.since,
                until=formula.until or None,
                types={formula.parameter: formula.types},
            )(_maker(formula))


def _maker(formula: Formula) -> Any:
    def make(node: KernelNode) -> Kernel:
        return _make_row(formula, node)

    return make


_add_rows()


@elementwise_row("Gelu", since=20, types={"T": FLOATS})
def _gelu(node: KernelNode) -> Kernel:
    name = text_attribute(node, "approximate", "none")
    dtype = dtype_of(node, 0)
    return make_elementwise(node, formula_text(GELU[name], dtype), dtype)
