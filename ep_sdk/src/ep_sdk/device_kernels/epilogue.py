"""Elementwise work in the tail of products and convolutions: one launch, nothing through memory.

An `Epilogue` is an expression of which one input is the sum that a product has just computed,
rounded to the type that it would have been stored in; so the results have the same bits as without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.expression import Expression
from ep_sdk.device_kernels.product import Tail
from ep_sdk.device_kernels.sources import read_source
from ep_sdk.kernels import Kernel

__all__ = ["Epilogue", "Lies", "TakesEpilogue", "lies"]

Shape = tuple[int, ...]


class Lies(Enum):
    """How an operand lies along the result: as the position that its element is read from."""

    ALIKE = "at"
    """It has the shape of the result."""
    ALONG = "along"
    """A vector along the columns of a product, or the channels of a convolution."""
    ONCE = "0"
    """One number."""


@runtime_checkable
class TakesEpilogue(Protocol):
    """A kernel that can do elementwise work on what it gives.

    Attributes:
        axis: along which operands may be vectors.
        gives: element type without an epilogue.
    """

    axis: int
    gives: DataType

    def with_epilogue(self, epilogue: Epilogue, inputs: int) -> Kernel:
        """The kernel that takes the epilogue's operands after so many inputs of its own."""
        ...


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What becomes of each sum.

    Attributes:
        expression: what is computed.
        number: which of its inputs the sum is.
        operands: how the others lie, in order.
        axis: as in `TakesEpilogue`.
    """

    expression: Expression
    number: int
    operands: tuple[Lies, ...]
    axis: int

    @property
    def result(self) -> DataType:
        """Element type of the result."""
        return self.expression.result

    def added_to(self, tail: Tail, along: str) -> Tail:
        """The tail with this after it; `along` is the text of the position along the axis."""
        code = ELEMENTS[self.expression.inputs[self.number]].code
        names = [f"extra{number}" for number in range(len(self.operands))]
        arguments = ", ".join([f"ROUNDED({code}, {tail.text or 'value'})", "at", along, *names])
        parameters = "".join(f", {item}" for item in self._parameters())
        return replace(
            tail,
            text=f"epilogue({arguments})",
            parameters=tail.parameters + parameters,
            head=read_source("elementwise.cl") + self._function(),
        )

    def arguments(self, buffers: Sequence[DeviceBuffer | None], shape: Shape) -> tuple[Any, ...]:
        """Kernel arguments for the operands of a result of a shape.

        Raises:
            RunError: an operand isn't as large as it was said to be.
        """
        wanted = {
            Lies.ALIKE: math.prod(shape),
            Lies.ALONG: shape[self.axis] if shape else 1,
            Lies.ONCE: 1,
        }
        found = []
        for buffer, how in zip(buffers, self.operands, strict=True):
            if buffer is None or math.prod(buffer.shape) != wanted[how]:
                raise RunError(
                    "an operand doesn't fit the result that it is combined with",
                    expected=f"{wanted[how]} elements",
                    got=None if buffer is None else buffer.shape,
                )
            found.append(buffer.handle)
        return tuple(found)

    def _others(self) -> list[int]:
        return [n for n in range(len(self.expression.inputs)) if n != self.number]

    def _parameters(self) -> list[str]:
        return [
            f"__global const STORED({ELEMENTS[self.expression.inputs[number]].code}) "
            f"*restrict extra{position}"
            for position, number in enumerate(self._others())
        ]

    def _function(self) -> str:
        inputs = self.expression.inputs
        value = f"const COMPUTED({ELEMENTS[inputs[self.number]].code}) v{self.number}"
        parameters = [value, "const long at", "const long along", *self._parameters()]
        lines = []
        for position, (number, how) in enumerate(zip(self._others(), self.operands, strict=True)):
            code = ELEMENTS[inputs[number]].code
            loaded = f"LOAD({code}, extra{position}, {how.value})"
            lines.append(f"const COMPUTED({code}) v{number} = {loaded};")
        lines += self.expression.lines()
        lines.append(f"return t{len(self.expression.operations) - 1};")
        text = "\n".join(f"    {line}" for line in lines)
        result = f"COMPUTED({ELEMENTS[self.result].code})"
        return f"\ninline {result} epilogue({', '.join(parameters)})\n{{\n{text}\n}}\n"


def lies(operand: Sequence[object], result: Sequence[object], axis: int) -> Lies | None:
    """How an operand lies along a result, None if an epilogue can't read it; names are lengths."""
    if len(operand) > len(result):
        return None
    whole = [1] * (len(result) - len(operand)) + list(operand)
    if whole == list(result):
        return Lies.ALIKE
    longer = [number for number, length in enumerate(whole) if length != 1]
    if not longer:
        return Lies.ONCE
    (first, *more) = longer
    along = not more and first == axis % len(result) and whole[first] == result[first]
    return Lies.ALONG if along else None
