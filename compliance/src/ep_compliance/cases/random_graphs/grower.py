"""A graph that grows node by node, valid at every moment because types and shapes are tracked.

Knows how to find operands, to add nodes and to choose outputs; which operators there are is the
business of the files beside it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from ep_compliance.cases.random_graphs.draws import Draws
from ep_compliance.cases.random_graphs.values import Shape, Value, broadcast, fits, holds, size_of
from ep_core.types import DataType

__all__ = ["OPSETS", "Grower"]

OPSETS: Mapping[int, int] = {17: 8, 21: 10}
"""Opsets of the graphs, and the IR version that belongs to each."""

_LARGEST = 3000
"""Most elements of a value."""

_FRACTION_BITS = {DataType.FLOAT16: 8, DataType.BFLOAT16: 5}
"""Of fine values; 20 for wider types."""


class Grower:
    """Builds one model and the values of its inputs.

    Args:
        draws: where every choice comes from.
        dtype: the type that most values of the graph have.
        opset: one of `OPSETS`.
        shape: the shape that many values of the graph have, so that they meet.
    """

    def __init__(self, draws: Draws, dtype: DataType, opset: int, shape: Shape) -> None:
        self.draws = draws
        self.dtype = dtype
        self.opset = opset
        self.shape = shape
        self._count = 0
        self._values: list[Value] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[tuple[Value, np.ndarray[Any, Any]]] = []
        self._nodes: list[onnx.NodeProto] = []

    @property
    def node_count(self) -> int:
        """Number of nodes so far."""
        return len(self._nodes)

    def attempt(self, step: Callable[[], bool]) -> bool:
        """Take a step; one that comes to nothing leaves nothing behind."""
        parts: list[list[Any]] = [
            self._values,
            self._initializers,
            self._inputs,
            self._nodes,
        ]
        lengths = [len(part) for part in parts]
        if step():
            return True
        for part, length in zip(parts, lengths, strict=True):
            del part[length:]
        return False

    # ------------------------------------------------------------ operands

    def pick(self, wanted: Callable[[Value], bool]) -> Value | None:
        """A value that is as wanted, recent ones more often; None if there is none."""
        found = [value for value in self._values if wanted(value)]
        if not found:
            return None
        return self.draws.choose(found[-3:] if self.draws.chance(60) else found)

    def operand(self, x: Value) -> Value:
        """A second operand for x of the same type: x itself, another value, or a new one."""
        if self.draws.chance(8):
            return x
        if self.draws.chance(65):
            known = self.pick(
                lambda v: (
                    v.dtype is x.dtype
                    and v.name != x.name
                    and broadcast(v.shape, x.shape) is not None
                )
            )
            if known is not None:
                return known
        return self.fresh(self.broadcasting(x.shape), x.dtype)

    def broadcasting(self, shape: Shape) -> Shape:
        """A shape that broadcasts to another one."""
        kind = self.draws.below(6)
        if kind <= 1:
            return shape
        if kind == 2:
            return ()
        if kind == 3:
            return shape[self.draws.below(len(shape) + 1) :]
        return tuple(1 if self.draws.chance(50) else length for length in shape)

    def fresh(
        self, shape: Sequence[int], dtype: DataType | None = None, *, positive: bool = False
    ) -> Value:
        """A new initializer or graph input with random values; see `input`."""
        make = self.constant if self.draws.chance(55) else self.input
        return make(shape, dtype, positive=positive)

    def input(
        self, shape: Sequence[int], dtype: DataType | None = None, *, positive: bool = False
    ) -> Value:
        """A new graph input.

        Floats lie in [-2, 2], whole numbers in [-9, 9] or [0, 9]; positive ones in [0.5, 2] and
        [1, 7].
        """
        value, array = self._random(shape, dtype or self.dtype, positive)
        self._inputs.append((value, array))
        self._values.append(value)
        return value

    def constant(
        self, shape: Sequence[int], dtype: DataType | None = None, *, positive: bool = False
    ) -> Value:
        """A new initializer; see `input`."""
        value, array = self._random(shape, dtype or self.dtype, positive)
        return self._stored(dataclasses.replace(value, constant=True), array)

    def scalar(self, number: float, dtype: DataType) -> Value:
        """An initializer of rank 0 that holds a number, which the type must have."""
        return self.given(np.array(number), dtype)

    def indices(self, *numbers: int) -> Value:
        """An initializer of int64 and rank 1."""
        return self.given(np.array(numbers, np.int64), DataType.INT64)

    def given(self, array: np.ndarray[Any, Any], dtype: DataType) -> Value:
        """An initializer for a parameter; nobody else will pick it."""
        name = self._name("c")
        array = array.astype(dtype.numpy)
        self._initializers.append(numpy_helper.from_array(array, name))
        low = float(array.min()) if array.size else 0.0
        high = float(array.max()) if array.size else 0.0
        return Value(name, dtype, array.shape, low, high, 0.0, constant=True)

    def _random(
        self, shape: Sequence[int], dtype: DataType, positive: bool
    ) -> tuple[Value, np.ndarray[Any, Any]]:
        low, high, grain = self._range(dtype, positive)
        numbers = np.asarray(self.draws.integers(shape, low, high) * grain)
        name = self._name("x")
        value = Value(name, dtype, tuple(shape), low * grain, high * grain, grain)
        return value, numbers.astype(dtype.numpy)

    def _range(self, dtype: DataType, positive: bool) -> tuple[int, int, float]:
        """The smallest and the largest multiple of a grain, and the grain."""
        if dtype is DataType.BOOL:
            return 0, 1, 1.0
        if dtype.is_integer:
            signed = not dtype.text.startswith("u")
            return (1, 7, 1.0) if positive else (-9 if signed else 0, 9, 1.0)
        # Coarse values stay exact for a while; fine ones use all of the significand.
        bits = 1 if self.draws.chance(50) else _FRACTION_BITS.get(dtype, 20)
        unit = 2**bits
        return (unit // 2 if positive else -2 * unit, 2 * unit, 1.0 / unit)

    def _stored(self, value: Value, array: np.ndarray[Any, Any]) -> Value:
        self._initializers.append(numpy_helper.from_array(array, value.name))
        self._values.append(value)
        return value

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    # ------------------------------------------------------------ nodes

    def draft(
        self,
        shape: Sequence[int],
        dtype: DataType,
        low: float,
        high: float,
        grain: float = 0.0,
    ) -> Value:
        """A value that a node is going to produce; see `Value`."""
        kept = grain if holds(dtype, max(abs(low), abs(high)), grain) else 0.0
        return Value(self._name("v"), dtype, tuple(shape), low, high, kept)

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        *outputs: Value,
        spare: int = 0,
        **attributes: Any,
    ) -> bool:
        """Add a node, unless a type isn't allowed or a value would be too large.

        Args:
            inputs: None leaves one out.
            outputs: drafts.
            spare: number of further outputs, which nobody uses.

        Returns:
            True if the node was added.
        """
        if not all(_is_tame(value) for value in outputs):
            return False
        if not _takes(op_type, self.opset, inputs, outputs):
            return False
        names = ["" if value is None else value.name for value in inputs]
        node = helper.make_node(
            op_type,
            names,
            [*(value.name for value in outputs), *(self._name("u") for _ in range(spare))],
            name=f"n{len(self._nodes)}",
            **attributes,
        )
        self._nodes.append(node)
        self._values.extend(outputs)
        return True

    # ------------------------------------------------------------ the end

    def finished(self, name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray[Any, Any]]]:
        """The model with outputs chosen, and the values of its inputs."""
        graph = helper.make_graph(
            self._nodes,
            name,
            [_info(value) for value, _ in self._inputs],
            [_info(value) for value in self._outputs()],
            self._initializers,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=OPSETS[self.opset],
            producer_name="ep-compliance",
        )
        return model, {value.name: array for value, array in self._inputs}

    def _outputs(self) -> list[Value]:
        """What nobody has consumed, and some of what has been; anything may be left out."""
        consumed = {name for node in self._nodes for name in node.input}
        made = {name for node in self._nodes for name in node.output}
        chosen = []
        for value in self._values:
            percent = 15 if value.name in consumed else 88
            if self.draws.chance(percent if value.name in made else 2):
                chosen.append(value)
        last = self._values[-1]
        if last not in chosen:
            chosen.append(last)
        return self.draws.some(chosen, len(chosen))


def _is_tame(value: Value) -> bool:
    return size_of(value.shape) <= _LARGEST and fits(value.dtype, value.low, value.high)


def _takes(
    op_type: str, opset: int, inputs: Sequence[Value | None], outputs: Sequence[Value]
) -> bool:
    """True if the operator's schema allows the types, and binds equal ones where it must."""
    if not onnx.defs.has(op_type, opset):
        return False
    schema = _schema(op_type, opset)
    bound: dict[str, DataType] = {}
    for values, formals in ((inputs, schema.inputs), (outputs, schema.outputs)):
        for place, value in enumerate(values):
            if value is None:
                continue
            formal = formals[min(place, len(formals) - 1)]
            if f"tensor({value.dtype.text})" not in formal.types:
                return False
            variadic = formal.option is onnx.defs.OpSchema.FormalParameterOption.Variadic
            if variadic and not formal.is_homogeneous:
                continue
            if bound.setdefault(formal.type_str, value.dtype) is not value.dtype:
                return False
    return True


@functools.cache
def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(op_type, opset)


def _info(value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, int(value.dtype), list(value.shape))
