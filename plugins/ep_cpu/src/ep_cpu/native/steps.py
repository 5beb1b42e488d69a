"""A step of a native program, before it becomes an operation of the compiled module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ep_core.graph import Node
from ep_core.types import DataType, TensorType, ValueType
from ep_cpu.native.expression import Expression

__all__ = ["NativeStep", "Types", "last_length", "same_shape", "shape_of"]

Array = np.ndarray[Any, Any]

Types = Callable[[str], ValueType | None]
"""Tells the declared type of a value."""


@dataclass(frozen=True)
class NativeStep:
    """An operation with names of values.

    Attributes:
        kind: name of the native operation.
        inputs: `""` is one that is left out.
        attributes: numbers and lists of numbers.
        nodes: what the step computes; the last one makes the output.
        expression: of an elementwise step; for a product what follows on it, whose first input is
            the product itself. Its other inputs come behind `inputs`.
        constants: what it reads besides the model's values.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    expression: Expression | None = None
    constants: Mapping[str, Array] = field(default_factory=dict)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all values that it needs."""
        extra: tuple[str, ...] = ()
        if self.expression is not None:
            extra = self.expression.inputs if self.kind == "elementwise" else self._operands
        return (*(name for name in self.inputs if name), *extra)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Inputs of the native operation, in its order."""
        if self.expression is None:
            return self.inputs
        if self.kind == "elementwise":
            return self.expression.inputs
        return (*self.inputs, *self._operands)

    @property
    def all_attributes(self) -> dict[str, Any]:
        """Attributes of the native operation."""
        chain = {} if self.expression is None else self.expression.attributes()
        return {**self.attributes, **chain}

    @property
    def _operands(self) -> tuple[str, ...]:
        assert self.expression is not None
        return self.expression.inputs[1:]

    def with_attributes(self, **attributes: Any) -> NativeStep:
        """The same with some attributes more."""
        return replace(self, attributes={**self.attributes, **attributes})


def shape_of(kind: ValueType | None) -> tuple[Any, ...] | None:
    """Declared lengths of a tensor, numbers or names; None where one isn't known."""
    if not isinstance(kind, TensorType) or kind.shape is None or None in kind.shape:
        return None
    return tuple(kind.shape)


def same_shape(one: ValueType | None, other: ValueType | None) -> bool:
    """True if two tensors surely have the same shape, and both are float32."""
    if not isinstance(one, TensorType) or not isinstance(other, TensorType):
        return False
    if one.dtype is not DataType.FLOAT or other.dtype is not DataType.FLOAT:
        return False
    shape = shape_of(one)
    return shape is not None and shape == shape_of(other)


def last_length(kind: ValueType | None) -> Any:
    """The declared last length, None where it isn't known or there is none."""
    if not isinstance(kind, TensorType) or not kind.shape:
        return None
    return kind.shape[-1]
