"""What is known of quantised values: their types, scales and zero points, as far as constant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ep_core.graph import Initializer
from ep_core.types import DataType, TensorType
from ep_cpu.native.editor import StepEditor
from ep_cpu.native.steps import NativeStep, Types, shape_of

__all__ = ["QuantisedValues"]

_ONE = "\0one"


class QuantisedValues:
    """Steps that are being rewritten, with the constants that they read.

    Args:
        kept: values that are needed outside.
    """

    def __init__(
        self,
        steps: Sequence[NativeStep],
        kept: Collection[str],
        constants: Mapping[str, Initializer],
        types: Types,
    ) -> None:
        self.editor = StepEditor(steps, kept, constants, types)
        self.constants = dict(constants)
        self.kept = frozenset(kept)

    def is_single(self, step: NativeStep) -> bool:
        """True for a conversion with one constant scale."""
        scale = self.constants.get(step.inputs[1])
        return scale is not None and scale.shape in ((), (1,)) and self.has_zeros(step)

    def has_scales(self, step: NativeStep, axis: int) -> bool:
        """True for constant scales: one, or one per index of an axis."""
        scale = self.constants.get(step.inputs[1])
        if scale is None or not self.has_zeros(step):
            return False
        if scale.shape in ((), (1,)):
            return True
        rank = len(self.constants[step.inputs[0]].shape)
        return len(scale.shape) == 1 and step.attributes["axis"] % rank == axis

    def has_zeros(self, step: NativeStep) -> bool:
        """True if a conversion has a constant zero point for each scale, or none."""
        name = step.inputs[2]
        if not name:
            return True
        zero = self.constants.get(name)
        return zero is not None and zero.shape == self.constants[step.inputs[1]].shape

    def is_same(self, one: NativeStep, other: NativeStep) -> bool:
        """True if two conversions have the same type, scale and zero point."""
        type_of = self.dtype(one.inputs[0])
        if type_of is None or int(type_of.value) != other.attributes["to"]:
            return False
        for index in (1, 2):
            values = [
                self.constants[step.inputs[index]].numpy().item() if step.inputs[index] else 0
                for step in (one, other)
            ]
            if values[0] != values[1]:
                return False
        return True

    def dequantised(self, step: NativeStep) -> np.ndarray[Any, Any] | None:
        """The values of a conversion of constants, None for another one."""
        operands = [self.constants.get(name) for name in step.inputs]
        if operands[0] is None or operands[1] is None or (step.inputs[2] and operands[2] is None):
            return None
        x = operands[0].numpy()
        parameters = []
        for operand in operands[1:]:
            value = np.zeros((), np.int8) if operand is None else operand.numpy()
            if value.size != 1:
                axis = step.attributes["axis"] % x.ndim
                value = value.reshape(-1, *[1] * (x.ndim - axis - 1))
            parameters.append(value.reshape(()) if value.size == 1 else value)
        scale, zero = parameters
        exact = x.astype(np.float64) - zero.astype(np.float64)
        return np.asarray(exact.astype(np.float32) * scale)

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        """Add a constant, and return its name."""
        self.constants[name] = Initializer.from_array(name, np.asarray(value))
        return name

    def one(self) -> str:
        """The name of a constant 1."""
        return self.constant(_ONE, np.ones((), np.float32))

    def length(self, name: str) -> int | None:
        """How many elements a value surely has."""
        shape = self.shape(name)
        if shape is None or not all(isinstance(length, int) for length in shape):
            return None
        return int(np.prod(shape, dtype=np.int64))

    def shape(self, name: str) -> tuple[Any, ...] | None:
        """The shape that a value surely has, None for none."""
        if name in self.constants:
            return tuple(self.constants[name].shape)
        return shape_of(self.editor.type_of(name))

    def dtype(self, name: str) -> DataType | None:
        """The declared type of elements."""
        kind = self.editor.type_of(name)
        return kind.dtype if isinstance(kind, TensorType) else None
