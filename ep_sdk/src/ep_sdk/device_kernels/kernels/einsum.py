"""Einsum: diagonals as strides, sums of single operands, then products of two at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.einsum import Equation, Labels, parse_equation
from ep_sdk.device_kernels.elements import FLOATS, NARROW_FLOATS
from ep_sdk.device_kernels.kernels.elementwise import dtype_of
from ep_sdk.device_kernels.kernels.reductions import SUM, Rows, reducer_of
from ep_sdk.device_kernels.launch import TABLE, Bench, text_attribute
from ep_sdk.device_kernels.moving import Strided, move, strides_of
from ep_sdk.device_kernels.multiplier import Multiplier
from ep_sdk.device_kernels.product import Product
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape

__all__: list[str] = []

_WIDE = frozenset({DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64})


@TABLE.kernel("Einsum", since=12, types={"T": FLOATS | _WIDE}, writes_out=True)
def _einsum(node: KernelNode) -> Kernel:
    run = _Einsum(node)

    def einsum(
        stream: DeviceStream, *inputs: DeviceBuffer, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        return run(stream, inputs, out)

    return einsum


@dataclass(frozen=True, slots=True)
class _Term:
    """A dense tensor with one label for each axis."""

    buffer: DeviceBuffer
    labels: Labels


@dataclass(slots=True)
class _Work:
    """One call: its stream, and the memory that is given back at its end."""

    stream: DeviceStream
    equation: Equation
    taken: ExitStack = field(default_factory=ExitStack)

    def shape(self, labels: Labels) -> Shape:
        return tuple(self.equation.lengths[label] for label in labels)


class _Einsum:
    def __init__(self, node: KernelNode) -> None:
        self._bench = Bench(node)
        self._text = text_attribute(node, "equation", "")
        self._dtype = dtype_of(node, 0)
        # Products of more than two operands are rounded once.
        self._wide = DataType.FLOAT if self._dtype in NARROW_FLOATS else self._dtype

    def __call__(
        self, stream: DeviceStream, inputs: Sequence[DeviceBuffer], out: DeviceBuffer | None
    ) -> DeviceBuffer:
        equation = parse_equation(self._text, [item.shape for item in inputs])
        work = _Work(stream, equation)
        shape = work.shape(equation.result)
        with self._bench.writing(stream, shape, self._dtype, out) as y, work.taken:
            if math.prod(shape):
                self._compute(work, inputs, y)
        return y

    def _compute(self, work: _Work, inputs: Sequence[DeviceBuffer], y: DeviceBuffer) -> None:
        result = work.equation.result
        terms = [self._prepared(work, buffer, number) for number, buffer in enumerate(inputs)]
        while len(terms) > 1:
            left, right, *others = terms
            kept = {label for term in others for label in term.labels} | set(result)
            target = None if others else y
            terms = [self._multiplied(work, left, right, kept, target), *others]
        (last,) = terms
        if last.buffer is not y:
            self._lay(work, last, y)

    # ------------------------------------------------------------ one operand

    def _prepared(self, work: _Work, buffer: DeviceBuffer, number: int) -> _Term:
        """An operand with each label once, and only those that another one or the result has."""
        equation = work.equation
        labels = equation.operands[number]
        needed = equation.needed(number)
        steps: dict[str, int] = {}
        for label, length, step in zip(labels, buffer.shape, strides_of(buffer.shape), strict=True):
            # An axis of length 1 that broadcasts is the same everywhere.
            if length == equation.lengths[label]:
                steps[label] = steps.get(label, 0) + step
        summed = tuple(label for label in steps if label not in needed)
        kept = tuple(label for label in steps if label in needed)
        order = (*kept, *summed)
        term = _Term(buffer.reshaped(work.shape(tuple(steps))), tuple(steps))
        if len(set(labels)) < len(labels) or order != term.labels:
            source = Strided(buffer, 0, [steps[label] for label in order])
            term = self._copied(work, source, order)
        if not summed:
            return term
        result = self._dtype if len(equation.operands) == 1 else self._wide
        total = self._scratch(work, kept, result)
        shape = (math.prod(work.shape(kept)), math.prod(work.shape(summed)))
        reduce = reducer_of(self._bench, self._dtype, SUM, result)
        reduce(work.stream, term.buffer, total, Rows(*shape, 1))
        return _Term(total, kept)

    # ------------------------------------------------------------ two operands

    def _multiplied(
        self,
        work: _Work,
        left: _Term,
        right: _Term,
        kept: set[str],
        target: DeviceBuffer | None,
    ) -> _Term:
        """The product of two terms, summed over what nobody else needs.

        Args:
            target: where the result of the last product goes, if its axes have the right order.
        """
        shared = [label for label in left.labels if label in right.labels]
        batch = tuple(label for label in shared if label in kept)
        summed = tuple(label for label in shared if label not in kept)
        rows = tuple(label for label in left.labels if label not in shared)
        columns = tuple(label for label in right.labels if label not in shared)
        result = (*batch, *rows, *columns)
        if target is not None and result != work.equation.result == (*batch, *columns, *rows):
            return self._multiplied(work, right, left, kept, target)
        a, turn_a = self._in_order(work, left, batch, rows, summed)
        b, turn_b = self._in_order(work, right, batch, summed, columns)
        dtype = self._wide if target is None else self._dtype
        if target is None or result != work.equation.result:
            target = self._scratch(work, result, dtype)
        lengths = [math.prod(work.shape(item)) for item in (batch, rows, columns)]
        shape = tuple(lengths if batch else lengths[1:])
        multiply = self._multiplier(a.dtype, b.dtype, dtype, turn_a, turn_b)
        multiply(work.stream, a, b, dtype, target.reshaped(shape))
        return _Term(target, result)

    def _in_order(
        self, work: _Work, term: _Term, batch: Labels, first: Labels, second: Labels
    ) -> tuple[DeviceBuffer, bool]:
        """A term as a stack of matrices, and whether they lie transposed."""
        turned = term.labels == (*batch, *second, *first) != (*batch, *first, *second)
        if not turned and term.labels != (*batch, *first, *second):
            order = (*batch, *first, *second)
            own = dict(zip(term.labels, strides_of(term.buffer.shape), strict=True))
            source = Strided(term.buffer, 0, [own[label] for label in order])
            term = self._copied(work, source, order)
        groups = (batch, second, first) if turned else (batch, first, second)
        lengths = [math.prod(work.shape(labels)) for labels in groups]
        return term.buffer.reshaped(tuple(lengths if batch else lengths[1:])), turned

    def _multiplier(
        self, a: DataType, b: DataType, c: DataType, turn_a: bool, turn_b: bool
    ) -> Multiplier:
        product = Product(self._bench, a, b, c, self._dtype)
        return Multiplier(self._bench, product, turn_a=turn_a, turn_b=turn_b)

    # ------------------------------------------------------------ memory

    def _scratch(self, work: _Work, labels: Labels, dtype: DataType) -> DeviceBuffer:
        context = self._bench.scratch(work.stream, work.shape(labels), dtype)
        return work.taken.enter_context(context)

    def _copied(self, work: _Work, source: Strided, labels: Labels) -> _Term:
        target = self._scratch(work, labels, source.buffer.dtype)
        shape = work.shape(labels)
        move(self._bench, work.stream, source, Strided(target, 0, strides_of(shape)), shape)
        return _Term(target, labels)

    def _lay(self, work: _Work, term: _Term, y: DeviceBuffer) -> None:
        """Put the axes of a term into the order of the result."""
        own = dict(zip(term.labels, strides_of(term.buffer.shape), strict=True))
        source = Strided(term.buffer, 0, [own[label] for label in work.equation.result])
        move(self._bench, work.stream, source, Strided(y, 0, strides_of(y.shape)), y.shape)
