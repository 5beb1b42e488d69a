"""A model that grows node by node, with seeded inputs and constants."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.models import finished, type_of_value
from ep_compliance.cases.recipes.numbers import Numbers
from ep_core.types import DataType

__all__ = ["OPSET", "Build", "Chain", "builders", "chained"]

OPSET = 21
"""Opset of the chains: one that every maintained runtime takes."""


class Chain:
    """Builds one case; values are called by their names.

    Args:
        name: id of the case, which seeds its values.
        dtype: type of inputs and constants unless they say otherwise.
        opset: of the model.
        symbolic: declare the shapes of inputs by names only.
    """

    def __init__(
        self, name: str, dtype: DataType, *, opset: int = OPSET, symbolic: bool = False
    ) -> None:
        self.name = name
        self.dtype = dtype
        self._opset = opset
        self._symbolic = symbolic
        self._numbers = Numbers(name)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: dict[str, np.ndarray[Any, Any]] = {}
        self._outputs: list[str] = []
        self._count = 0

    def input(self, *shape: int, low: float = -2, high: float = 2) -> str:
        """A new graph input with random values."""
        name = self._fresh("in")
        self._inputs[name] = self._numbers.random(shape, self.dtype, low, high)
        return name

    def constant(self, *shape: int, low: float = -1, high: float = 1) -> str:
        """A new initializer with random values."""
        return self._initializer(self._numbers.random(shape, self.dtype, low, high))

    def scalar(self, value: float, dtype: DataType | None = None) -> str:
        """A new initializer of rank 0."""
        return self._initializer(np.array(value).astype((dtype or self.dtype).numpy))

    def integers(self, *values: int) -> str:
        """A new int64 initializer of rank 1."""
        return self._initializer(np.array(values, np.int64))

    def stored(self, array: np.ndarray[Any, Any]) -> str:
        """A new initializer of given values."""
        return self._initializer(array)

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A new node with one output; returns the output's name."""
        return self.nodes(op_type, 1, *inputs, **attributes)[0]

    def nodes(self, op_type: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A new node with several outputs; returns their names."""
        names = [self._fresh(op_type.lower()) for _ in range(count)]
        self._nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names

    def output(self, *names: str) -> None:
        """Make values the outputs of the graph, in order."""
        self._outputs.extend(names)

    def case(self, level: Level) -> Case:
        """The finished case."""
        infos = [
            helper.make_value_info(name, type_of_value(value, name if self._symbolic else None))
            for name, value in self._inputs.items()
        ]
        graph = helper.make_graph(self._nodes, "chain", infos, [], self._initializers)
        model = finished(graph, self._outputs, {"": self._opset})
        return Case(id=self.name, model=model, inputs=dict(self._inputs), level=level)

    def _initializer(self, value: np.ndarray[Any, Any]) -> str:
        name = self._fresh("constant")
        self._initializers.append(numpy_helper.from_array(value, name))
        return name

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"


Build = Callable[[Chain], None]
"""Adds the nodes of one chain, its outputs included."""

_PARTS = ("chains_float", "chains_quantized", "chains_refused")

_BUILDERS: dict[str, Build] = {}


def chained(name: str) -> Callable[[Build], Build]:
    """Register the decorated function as the chain of that name."""

    def add(build: Build) -> Build:
        _BUILDERS[name] = build
        return build

    return add


def builders() -> Mapping[str, Build]:
    """Every chain by name."""
    for part in _PARTS:
        importlib.import_module(f"ep_compliance.cases.{part}")
    return _BUILDERS
