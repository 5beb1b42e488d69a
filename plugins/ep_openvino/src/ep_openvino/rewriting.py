"""Operators in other words, where OpenVINO would give another answer.

The rewritten nodes give ONNX's values under the same names; nothing else of a graph changes. It is
done alike for the questions that claims ask and for what is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ep_core.graph import Graph, Initializer, Node
from ep_core.types import DataType, TensorType

__all__ = ["rewritten"]

_SOFTMAX_OF_ONE_AXIS = 13

# Below this the series is right to the last digits with so many terms: the next one is 1e-9.
_SERIES_BELOW = 0.75
_SERIES = [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(9)]
"""Coefficients of x, x^3, x^5, ... in erf(x); Abramowitz and Stegun 7.1.5."""


def rewritten(graph: Graph) -> Graph:
    """Return the graph in OpenVINO's sense of words; itself if nothing is to be said otherwise."""
    words = _Words(graph)
    nodes = tuple(new for node in graph.nodes for new in words.of(node))
    if len(nodes) == len(graph.nodes):
        return graph
    return graph.replace(nodes=nodes, initializers={**graph.initializers, **words.constants})


class _Words:
    """Says nodes of one graph otherwise, and collects the constants that it takes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.constants: dict[str, Initializer] = {}

    def of(self, node: Node) -> Iterator[Node]:
        """The nodes for a node; itself where OpenVINO means the same by it."""
        say: Callable[[Node], Iterator[Node]] | None = None
        if not node.domain and node.op_type == "Softmax":
            say = self._softmax if node.since_version < _SOFTMAX_OF_ONE_AXIS else None
        elif not node.domain and node.op_type == "Erf":
            say = None if self._is_shifted(node) else self._erf
        yield from (node,) if say is None else say(node)

    def _softmax(self, node: Node) -> Iterator[Node]:
        """Below version 13, all dimensions from `axis` on count as one."""
        (x,), (y,) = node.inputs, node.outputs
        axis = node.attributes.get("axis", 1)
        yield _step(node, "Shape", [x], f"{y}/shape")
        yield _step(node, "Flatten", [x], f"{y}/matrix", axis=axis)
        yield _step(node, "Softmax", [f"{y}/matrix"], f"{y}/rows", axis=1)
        yield _step(node, "Reshape", [f"{y}/rows", f"{y}/shape"], y)

    def _is_shifted(self, node: Node) -> bool:
        """Whether an Erf is left as it is: OpenVINO's is off by 5e-7 near zero.

        That is nothing where 1 is added, as in Gelu, which OpenVINO then knows for one operator.
        """
        kind = self._graph.type_of(node.inputs[0])
        is_float = isinstance(kind, TensorType) and kind.dtype is DataType.FLOAT
        users = self._graph.consumers.get(node.outputs[0], ())
        added = bool(users) and all(self._graph.nodes[user].op_type == "Add" for user in users)
        return not is_float or (added and node.outputs[0] not in self._graph.output_names)

    def _erf(self, node: Node) -> Iterator[Node]:
        """The series near zero, OpenVINO's own beyond."""
        (x,), (y,) = node.inputs, node.outputs
        yield _step(node, "Mul", [x, x], f"{y}/square")
        total = self._constant(y, len(_SERIES) - 1, _SERIES[-1])
        for place in range(len(_SERIES) - 2, -1, -1):
            yield _step(node, "Mul", [total, f"{y}/square"], f"{y}/product{place}")
            term = self._constant(y, place, _SERIES[place])
            total = f"{y}/sum{place}"
            yield _step(node, "Add", [f"{y}/product{place}", term], total)
        yield _step(node, "Mul", [total, x], f"{y}/near")
        yield node.replace(outputs=(f"{y}/far",))
        limit = self._constant(y, len(_SERIES), _SERIES_BELOW**2)
        yield _step(node, "Less", [f"{y}/square", limit], f"{y}/is_near")
        yield _step(node, "Where", [f"{y}/is_near", f"{y}/near", f"{y}/far"], y)

    def _constant(self, name: str, number: int, value: float) -> str:
        made = f"{name}/constant{number}"
        self.constants[made] = Initializer.from_array(made, np.array(value, np.float32))
        return made


def _step(node: Node, op_type: str, inputs: list[str], output: str, **attributes: Any) -> Node:
    """A node that stands for a part of another one."""
    return node.replace(
        name=output,
        op_type=op_type,
        inputs=tuple(inputs),
        outputs=(output,),
        attributes=attributes,
    )
