"""Puts native programs together out of steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.graph import Initializer
from ep_core.types import DataType, TensorType
from ep_cpu.native.steps import NativeStep, Types

__all__ = ["NEEDS_KNOWN", "SHAPE_KINDS", "ProgramParts", "build_program", "known_values"]

NEEDS_KNOWN: Mapping[str, tuple[int, ...]] = {
    "reshape": (1,),
    "slice": (1, 2, 3, 4),
    "expand": (1,),
    "squeeze": (1,),
    "unsqueeze": (1,),
    "range": (0, 1, 2),
    "fill": (0,),
    "pad": (1, 3),
    "resize": (1, 2),
    "conv": (1,),
    "depthwise": (1,),
    "integer_conv": (1,),
    "integer_matmul": (1,),
}
"""Inputs that must follow from shapes and constants alone: a plan is made before a run."""


SHAPE_KINDS = frozenset(("shape", "size"))
"""Steps that look at the shape of their input alone."""


@dataclass(frozen=True)
class ProgramParts:
    """What a program is made of.

    Attributes:
        inputs, outputs: values that come and go, in order.
        constants: by name.
    """

    steps: tuple[NativeStep, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Initializer]


def known_values(steps: Sequence[NativeStep], constants: Collection[str]) -> set[str]:
    """Values that follow from shapes and constants alone."""
    known = set(constants)
    for step in steps:
        known.update(step.constants)
        if step.kind in SHAPE_KINDS or all(name in known for name in step.reads):
            known.update(step.outputs)
    return known


def build_program(module: Any, parts: ProgramParts, types: Types, level: str, threads: int) -> Any:
    """A finished `_native.Program`.

    Args:
        module: the compiled module.
        types: declared types; those of inputs must be known tensors.
    """
    program = module.Program(level, threads, [_number(types(name)) for name in parts.inputs])
    numbers: dict[str, int] = {"": -1}
    numbers.update((name, number) for number, name in enumerate(parts.inputs))
    read = dict.fromkeys(name for step in parts.steps for name in step.arguments if name)
    for name in read:
        if name in parts.constants:
            constant = parts.constants[name]
            array = np.asarray(constant.numpy())
            numbers[name] = program.add_constant(array, int(constant.dtype.value))
    for step in parts.steps:
        reads = [numbers[name] for name in step.arguments]
        first = program.add_operation(step.kind, reads, len(step.outputs), step.all_attributes)
        numbers.update((name, first + at) for at, name in enumerate(step.outputs))
    program.finish([numbers[name] for name in parts.outputs])
    return program


def _number(kind: Any) -> int:
    assert isinstance(kind, TensorType)
    return int(DataType(kind.dtype).value)
