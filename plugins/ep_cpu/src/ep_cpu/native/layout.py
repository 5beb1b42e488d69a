"""Puts channels innermost where convolutions want it, and keeps them there as long as it goes.

Convolutions, pooling and Resize take and give values whose channels are innermost; what lies
between them follows. Transposes stand where others read such a value, and where they make one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ep_core.graph import Initializer
from ep_core.types import DataType, TensorType, ValueType
from ep_cpu.native.expression import Expression
from ep_cpu.native.steps import NativeStep, Types, shape_of

__all__ = ["Turned", "turn"]

_SUFFIX = "\0last"
_RANKS = (3, 4)
_WANTING = frozenset(
    ("conv", "conv_transpose", "depthwise", "pool", "resize", "integer_conv", "pool_bytes")
)
_BESIDE = 9
"""Where an 8-bit product has what is added to it."""


@dataclass(frozen=True)
class Turned:
    """Steps with channels innermost.

    Attributes:
        constants: those that came in and those that are new.
        types: knows the new values too.
    """

    steps: tuple[NativeStep, ...]
    constants: Mapping[str, Initializer]
    types: Types


def turn(
    steps: Sequence[NativeStep],
    kept: Collection[str],
    constants: Mapping[str, Initializer],
    types: Types,
) -> Turned:
    """The same computation with channels innermost; unchanged without convolutions and pooling.

    Args:
        kept: values that are needed outside, in ONNX's layout.
    """
    if not any(step.kind in _WANTING for step in steps):
        return Turned(tuple(steps), constants, types)
    turner = _Turner(constants, types)
    for step in steps:
        turner.add(step)
    for name in kept:
        turner.want_first(name)
    return Turned(tuple(turner.steps), turner.constants, turner.type_of)


class _Turner:
    def __init__(self, constants: Mapping[str, Initializer], types: Types) -> None:
        self.steps: list[NativeStep] = []
        self.constants = dict(constants)
        self._types = types
        self._new_types: dict[str, ValueType] = {}
        self._turned: dict[str, int] = {}  # values with channels innermost, and their ranks
        self._only_turned: set[str] = set()  # and not in ONNX's layout

    def type_of(self, name: str) -> ValueType | None:
        return self._new_types.get(name) or self._types(name)

    def add(self, step: NativeStep) -> None:
        if step.kind in _WANTING:
            rank = self._turned.get(step.inputs[0]) or self._rank(step.inputs[0])
            first = self._want_last(step.inputs[0], step, rank)
            inputs = [first, *step.inputs[1:]]
            if step.attributes.get("beside"):
                inputs[_BESIDE] = self._want_last(inputs[_BESIDE], step, rank)
            self._give_last(replace(step, inputs=tuple(inputs)), rank)
            return
        change = _FOLLOWING.get(step.kind)
        follows = any(name in self._turned for name in step.reads)
        if follows and change is not None and change(self, step):
            return
        for name in step.reads:
            self.want_first(name)
        self.steps.append(step)

    def want_first(self, name: str) -> None:
        """Make sure that a value is there in ONNX's layout."""
        if name not in self._only_turned:
            return
        maker = next(step for step in self.steps if name + _SUFFIX in step.outputs)
        rank = self._turned[name]
        attributes = {"order": [0, rank - 1, *range(1, rank - 1)]}
        self.steps.append(
            NativeStep("transpose", (name + _SUFFIX,), (name,), attributes, maker.nodes[-1:])
        )
        self._only_turned.discard(name)

    def elementwise(self, step: NativeStep) -> bool:
        expression = step.expression
        assert expression is not None
        result = shape_of(self.type_of(step.outputs[0]))
        if result is None or len(result) not in _RANKS:
            return False
        names: list[str] = []
        for name in expression.inputs:
            found = self._operand(name, result)
            if found is None:
                return False
            names.append(found)
        for name in expression.inputs:
            if name not in self.constants and name not in self._turned and name in names:
                continue
            self._settle(name, step, len(result))
        turned = replace(step, expression=Expression(tuple(names), expression.operations))
        self._give_last(turned, len(result))
        return True

    def concat(self, step: NativeStep) -> bool:
        kinds = [shape_of(self.type_of(name)) for name in step.inputs]
        rank = self._rank(step.outputs[0])
        if rank not in _RANKS or step.attributes["axis"] not in (1, 1 - rank):
            return False
        if any(shape is None or len(shape) != rank for shape in kinds):
            return False
        if any(name in self.constants for name in step.inputs):
            return False
        names = tuple(self._want_last(name, step, rank) for name in step.inputs)
        self._give_last(replace(step, inputs=names).with_attributes(axis=rank - 1), rank)
        return True

    def reduce(self, step: NativeStep) -> bool:
        rank = self._turned[step.inputs[0]]
        if step.attributes["axes"] != list(range(2, rank)):
            return False
        turned = replace(step, inputs=(step.inputs[0] + _SUFFIX, ""))
        turned = turned.with_attributes(axes=list(range(1, rank - 1)), keep=0)
        if not step.attributes["keep"]:
            self.steps.append(turned)
            return True
        inner = step.outputs[0] + "\0flat"
        self._new_types[inner] = _picked(self.type_of(step.outputs[0]), [0, 1])
        self.steps.append(replace(turned, outputs=(inner,)))
        self.steps.append(
            NativeStep(
                "unsqueeze", (inner,), step.outputs, {"axes": list(range(2, rank))}, step.nodes
            )
        )
        return True

    def convert(self, step: NativeStep) -> bool:
        """To 8 bits or back, with one scale for all elements."""
        scale = self.constants.get(step.inputs[1])
        if scale is None or scale.shape not in ((), (1,)):
            return False
        rank = self._turned[step.inputs[0]]
        first = self._want_last(step.inputs[0], step, rank)
        self._give_last(replace(step, inputs=(first, *step.inputs[1:])), rank)
        return True

    def add_bytes(self, step: NativeStep) -> bool:
        rank = self._rank(step.outputs[0])
        if rank not in _RANKS:
            return False
        inputs = list(step.inputs)
        for at in (0, 3):
            inputs[at] = self._want_last(inputs[at], step, rank)
        self._give_last(replace(step, inputs=tuple(inputs)), rank)
        return True

    def _operand(self, name: str, result: tuple[Any, ...]) -> str | None:
        """The name under which an operand goes along; None where it can't."""
        shape = shape_of(self.type_of(name))
        if shape is None:
            return None
        if all(length == 1 for length in shape):
            return name if len(shape) <= 1 or name in self.constants else None
        if name in self.constants:
            return name + _SUFFIX if len(shape) <= len(result) else None
        return name + _SUFFIX if len(shape) == len(result) else None

    def _settle(self, name: str, step: NativeStep, rank: int) -> None:
        """Make what `_operand` named."""
        if name not in self.constants:
            self._want_last(name, step, rank)
            return
        new = name + _SUFFIX
        array = self.constants[name].numpy()
        if array.size == 1 or new in self.constants:
            return
        full = array.reshape((1,) * (rank - array.ndim) + array.shape)
        turned = np.ascontiguousarray(full.transpose(_to_last(rank)))
        self.constants[new] = Initializer.from_array(new, turned)
        self._new_types[new] = self.constants[new].type

    def _want_last(self, name: str, step: NativeStep, rank: int) -> str:
        new = name + _SUFFIX
        if name not in self._turned:
            attributes = {"order": _to_last(rank)}
            self.steps.append(NativeStep("transpose", (name,), (new,), attributes, step.nodes[-1:]))
            self._turned[name] = rank
            self._new_types[new] = _picked(self.type_of(name), _to_last(rank))
        return new

    def _give_last(self, step: NativeStep, rank: int) -> None:
        (name,) = step.outputs
        self.steps.append(replace(step, outputs=(name + _SUFFIX,)))
        self._turned[name] = rank
        self._only_turned.add(name)
        self._new_types[name + _SUFFIX] = _picked(self.type_of(name), _to_last(rank))

    def _rank(self, name: str) -> int:
        """The declared rank, 0 where it isn't known."""
        kind = self.type_of(name)
        return len(kind.shape or ()) if isinstance(kind, TensorType) else 0


_FOLLOWING: Mapping[str, Callable[[_Turner, NativeStep], bool]] = {
    "elementwise": _Turner.elementwise,
    "concat": _Turner.concat,
    "reduce": _Turner.reduce,
    "quantise": _Turner.convert,
    "dequantise": _Turner.convert,
    "add_bytes": _Turner.add_bytes,
}


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _picked(kind: ValueType | None, order: Sequence[int]) -> TensorType:
    shape = shape_of(kind)
    dtype = kind.dtype if isinstance(kind, TensorType) else DataType.FLOAT
    if shape is None:
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(shape[axis] for axis in order))
