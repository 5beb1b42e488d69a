"""Elementwise work as data: which operands, which formulas, in which order; and as source text.

An `Expression` is what one operator, or a chain of fused ones, computes for one element. Nothing
here touches a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.elements import ELEMENTS

__all__ = ["Align", "Expression", "Operation", "broadcast", "literal", "source_of"]

Shape = tuple[int, ...]

Align = Callable[[Shape, Sequence[Shape]], Shape]
"""Gives an operand the shape with which it broadcasts, from its own and from those of all operands
of its operation; for scales along one axis and the like."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One formula with its operands.

    Attributes:
        text: kernel C with `{0}`, `{1}`, ... where the operands go.
        operands: numbers of inputs (from 0) or of earlier operations (-1 is the first, -2 the
            second, ...).
        result: element type of what it gives, to which it is rounded.
        aligns: one per operand, None where it broadcasts as it is.
    """

    text: str
    operands: tuple[int, ...]
    result: DataType
    aligns: tuple[Align | None, ...]


@dataclass(frozen=True, slots=True)
class Expression:
    """What is computed for each element of the output.

    Attributes:
        inputs: element type of each input.
        operations: in order; the last one gives the output.
    """

    inputs: tuple[DataType, ...]
    operations: tuple[Operation, ...]

    @property
    def result(self) -> DataType:
        """Element type of the output."""
        return self.operations[-1].result

    def lines(self) -> list[str]:
        """The operations as lines of kernel C: inputs are `v0`, `v1`, ..., results `t0`, ..."""
        lines = []
        for number, item in enumerate(self.operations):
            code = _code(item.result)
            names = [f"v{n}" if n >= 0 else f"t{-n - 1}" for n in item.operands]
            value = item.text.format(*names)
            lines.append(f"const COMPUTED({code}) t{number} = ROUNDED({code}, {value});")
        return lines

    def with_input_computed(self, number: int, producer: Expression) -> Expression:
        """Put another expression in place of one input; the producer's inputs come last."""
        kept = [index for index in range(len(self.inputs)) if index != number]
        moved = {old: new for new, old in enumerate(kept)}
        first = len(kept)
        shift = len(producer.operations)

        def renumber_own(operand: int) -> int:
            if operand == number:
                return -shift
            return moved[operand] if operand >= 0 else operand - shift

        def renumber_other(operand: int) -> int:
            return operand + first if operand >= 0 else operand

        before = [
            replace(item, operands=tuple(map(renumber_other, item.operands)))
            for item in producer.operations
        ]
        after = [
            replace(item, operands=tuple(map(renumber_own, item.operands)))
            for item in self.operations
        ]
        inputs = (*(self.inputs[index] for index in kept), *producer.inputs)
        return Expression(inputs, (*before, *after))

    def with_inputs_merged(self, sources: Sequence[int]) -> tuple[Expression, tuple[int, ...]]:
        """Read equal inputs once.

        Args:
            sources: what each input is, equal numbers for equal inputs.

        Returns:
            The expression, and for each of its inputs the source.
        """
        unique = tuple(dict.fromkeys(sources))
        number_of = {source: index for index, source in enumerate(unique)}

        def renumber(operand: int) -> int:
            return number_of[sources[operand]] if operand >= 0 else operand

        operations = tuple(
            replace(item, operands=tuple(map(renumber, item.operands))) for item in self.operations
        )
        inputs = tuple(self.inputs[sources.index(source)] for source in unique)
        return Expression(inputs, operations), unique

    def shapes_of(self, inputs: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
        """The output's shape, and the shape with which each input broadcasts to it.

        Raises:
            RunError: shapes don't broadcast, or one input would have to be read in two ways.
        """
        seen: list[Shape | None] = [None] * len(inputs)
        made: list[Shape] = []
        for item in self.operations:
            plain = [inputs[n] if n >= 0 else made[-n - 1] for n in item.operands]
            aligned = [
                shape if align is None else align(shape, plain)
                for shape, align in zip(plain, item.aligns, strict=True)
            ]
            for operand, shape in zip(item.operands, aligned, strict=True):
                if operand >= 0:
                    if seen[operand] not in (None, shape):
                        raise RunError("an input is read in two shapes", got=shape)
                    seen[operand] = shape
            made.append(broadcast(aligned))
        return made[-1], [shape if shape is not None else () for shape in seen]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that all shapes broadcast to.

    Raises:
        RunError: there is none.
    """
    rank = max(map(len, shapes), default=0)
    lengths = []
    for axis in range(-rank, 0):
        found = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(found) > 1:
            raise RunError("shapes don't broadcast", got=[list(shape) for shape in shapes])
        lengths.append(found.pop() if found else 1)
    return tuple(lengths)


def literal(value: float, dtype: DataType) -> str:
    """A float as kernel C, exactly."""
    suffix = "" if dtype is DataType.DOUBLE else "f"
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return f"({float(value).hex()}{suffix})"


def source_of(expression: Expression, patterns: Sequence[str]) -> str:
    """The kernel `elementwise` for one expression.

    Args:
        expression: what to compute.
        patterns: for each input, and for each dimension of the output from the fastest on, `1`
            where the input moves and `0` where it stays.

    Its arguments are the output, the inputs, the lengths of the output's dimensions but for the
    slowest, and for each input a step for each dimension where it moves, but for the fastest, in
    which it moves by 1.
    """
    rank = len(patterns[0]) if patterns else 1
    parameters = [f"__global STORED({_code(expression.result)}) *restrict out"]
    steps: list[str] = []
    lines = _positions(rank)
    for number, (dtype, pattern) in enumerate(zip(expression.inputs, patterns, strict=True)):
        code = _code(dtype)
        parameters.append(f"__global const STORED({code}) *restrict in{number}")
        terms = []
        for axis, moves in enumerate(pattern):
            if moves == "0":
                continue
            if axis == 0:
                terms.append("x0")
            else:
                steps.append(f"const long step{number}_{axis}")
                terms.append(f"x{axis} * step{number}_{axis}")
        index = " + ".join(terms) or "0"
        lines.append(f"const COMPUTED({code}) v{number} = LOAD({code}, in{number}, {index});")
    lines += expression.lines()
    last = len(expression.operations) - 1
    lines.append(f"STORE({_code(expression.result)}, out, position, t{last});")
    parameters.extend(f"const long length{axis}" for axis in range(rank - 1))
    text = "\n".join(f"    {line}" for line in lines)
    return f"__kernel void elementwise({', '.join([*parameters, *steps])})\n{{\n{text}\n}}\n"


def _positions(rank: int) -> list[str]:
    """Where a work-item is: three dimensions are its own, further ones share the third."""
    lines = [f"const size_t x{axis} = get_global_id({axis});" for axis in range(min(rank, 2))]
    if rank == 3:
        lines.append("const size_t x2 = get_global_id(2);")
    if rank > 3:
        lines.append("size_t rest = get_global_id(2);")
        for axis in range(2, rank - 1):
            lines.append(f"const size_t x{axis} = rest % length{axis};")
            lines.append(f"rest /= length{axis};")
        lines.append(f"const size_t x{rank - 1} = rest;")
    position = f"x{rank - 1}"
    for axis in range(rank - 2, -1, -1):
        position = f"({position} * length{axis} + x{axis})"
    lines.append(f"const size_t position = {position};")
    return lines


def _code(dtype: DataType) -> str:
    return ELEMENTS[dtype].code
