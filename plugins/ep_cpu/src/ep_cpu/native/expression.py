"""Chains of elementwise operations as expressions, and how they become instructions.

Numbers of operations are those of the enumeration `Code` in `native/kernels/kernels.h`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["MOST_INPUTS", "Expression", "Operand", "constant", "given", "single"]

_NAMES = (
    "add sub mul div max min fma select_negative neg abs sqrt reciprocal exp log tanh sigmoid erf "
    "gelu gelu_tanh silu relu floor ceil round sign softplus"
)
CODES: Mapping[str, int] = {name: number for number, name in enumerate(_NAMES.split())}

MOST_INPUTS = 12
_MOST_REGISTERS = 24


@dataclass(frozen=True, slots=True)
class Operand:
    """An input by its position, a constant by its value, or the result of an earlier operation."""

    kind: Literal["input", "constant", "result"]
    value: float


def given(position: int) -> Operand:
    """The input at `position`."""
    return Operand("input", position)


def constant(value: float) -> Operand:
    """A number."""
    return Operand("constant", float(value))


Operation = tuple[str, tuple[Operand, ...]]


@dataclass(frozen=True)
class Expression:
    """Operations in order; the last one gives the result.

    Attributes:
        inputs: names of values, without repeats.
        operations: by name, with their operands.
    """

    inputs: tuple[str, ...]
    operations: tuple[Operation, ...]

    def result(self, index: int) -> Operand:
        """The result of an operation."""
        return Operand("result", index)

    def with_inlined(self, name: str, inner: Expression) -> Expression:
        """The same with the input `name` computed by `inner`."""
        inputs = list(inner.inputs)
        inputs.extend(item for item in self.inputs if item != name and item not in inputs)
        skipped = len(inner.operations)

        def moved(operand: Operand) -> Operand:
            if operand.kind == "result":
                return Operand("result", operand.value + skipped)
            if operand.kind == "constant":
                return operand
            item = self.inputs[int(operand.value)]
            if item == name:
                return Operand("result", skipped - 1)
            return given(inputs.index(item))

        own = tuple((code, tuple(map(moved, operands))) for code, operands in self.operations)
        return Expression(tuple(inputs), (*inner.operations, *own))

    def with_first(self, name: str) -> Expression:
        """The same with the input `name` in front."""
        order = [name, *(item for item in self.inputs if item != name)]

        def moved(operand: Operand) -> Operand:
            if operand.kind != "input":
                return operand
            return given(order.index(self.inputs[int(operand.value)]))

        own = tuple((code, tuple(map(moved, operands))) for code, operands in self.operations)
        return Expression(tuple(order), own)

    def without_first_operation(self) -> Expression:
        """The same with the first operation's result as the first input; the others stay."""

        def moved(operand: Operand) -> Operand:
            if operand.kind != "result":
                return operand
            return given(0) if operand.value == 0 else Operand("result", operand.value - 1)

        own = tuple((code, tuple(map(moved, operands))) for code, operands in self.operations[1:])
        return Expression(self.inputs, own)

    def without_unused(self) -> Expression:
        """The same without operations whose results nobody reads; inputs stay as they are."""
        needed = {len(self.operations) - 1}
        for index in reversed(range(len(self.operations))):
            if index in needed:
                operands = self.operations[index][1]
                needed.update(int(item.value) for item in operands if item.kind == "result")
        kept = sorted(needed)
        numbers = {index: number for number, index in enumerate(kept)}

        def moved(operand: Operand) -> Operand:
            if operand.kind != "result":
                return operand
            return Operand("result", numbers[int(operand.value)])

        own = ((self.operations[index][0], self.operations[index][1]) for index in kept)
        return Expression(
            self.inputs, tuple((code, tuple(map(moved, operands))) for code, operands in own)
        )

    def uses(self, operand: Operand) -> int:
        """How often an operand is read."""
        return sum(operands.count(operand) for _, operands in self.operations)

    def fits(self) -> bool:
        """True if the machine has room for it."""
        if len(self.inputs) > MOST_INPUTS:
            return False
        return self._allocate()[1] <= _MOST_REGISTERS

    def attributes(self) -> dict[str, Any]:
        """What a native operation takes: code, values, operands, registers."""
        code, registers, values = self._allocate()
        found: dict[str, Any] = {
            "code": code,
            "operands": len(self.inputs),
            "registers": registers,
        }
        if values:
            found["values"] = values
        return found

    def _constants(self) -> list[float]:
        found: dict[str, float] = {}
        for _, operands in self.operations:
            for operand in operands:
                if operand.kind == "constant":
                    found.setdefault(operand.value.hex(), operand.value)
        return list(found.values())

    def _allocate(self) -> tuple[list[int], int, list[float]]:
        """Registers by lifetimes: inputs, constants, then results."""
        values = self._constants()
        numbers = {value.hex(): len(self.inputs) + i for i, value in enumerate(values)}
        last: dict[int, int] = {}
        for position, (_, operands) in enumerate(self.operations):
            for operand in operands:
                if operand.kind == "result":
                    last[int(operand.value)] = position
        free: list[int] = []
        top = len(self.inputs) + len(values)
        registers: dict[int, int] = {}
        code: list[int] = []
        for position, (name, operands) in enumerate(self.operations):
            reads = [self._register(operand, numbers, registers) for operand in operands]
            # A result may take the place of an operand that ends here: lanes go one by one.
            for result in [key for key in registers if last.get(key, -1) == position]:
                free.append(registers.pop(result))
            if free:
                target = free.pop()
            else:
                target = top
                top += 1
            registers[position] = target
            if position not in last and position + 1 < len(self.operations):
                free.append(registers.pop(position))
            padded = [*reads, *([reads[0]] * (3 - len(reads)))]
            code.extend((CODES[name], target, *padded))
        return code, top, values

    @staticmethod
    def _register(
        operand: Operand, constants: Mapping[str, int], registers: Mapping[int, int]
    ) -> int:
        if operand.kind == "input":
            return int(operand.value)
        if operand.kind == "constant":
            return constants[operand.value.hex()]
        return registers[int(operand.value)]


def single(code: str, inputs: Sequence[str | float]) -> Expression:
    """One operation over named values and numbers."""
    names: dict[str, int] = {}
    operands: list[Operand] = []
    for item in inputs:
        if isinstance(item, str):
            operands.append(given(names.setdefault(item, len(names))))
        else:
            operands.append(constant(item))
    return Expression(tuple(names), ((code, tuple(operands)),))
