"""Operators in other words, where OpenVINO would give another answer.

The rewritten nodes give ONNX's values under the same names; nothing else of a graph changes. It is
done alike for the questions that claims ask and for what is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ep_core.contracts import HostArray
from ep_core.graph import Graph, Initializer, Node
from ep_core.types import DataType, TensorType

__all__ = ["rewritten"]

_SOFTMAX_OF_ONE_AXIS = 13
_WHERE = 9
_MAX_OF_INTEGERS = 12

# Below this the series is right to the last digits with so many terms: the next one is 1e-9.
_SERIES_BELOW = 0.75
_SERIES = [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(9)]
"""Coefficients of x, x^3, x^5, ... in erf(x); Abramowitz and Stegun 7.1.5."""

_FAR_BELOW = -8.0
_LEAST_OVERLAP = 1e-30
_THREE_QUARTERS_OF_A_STEP = 0.75 * 2.0**-23
"""Of a number from 1 to 2; the sum with any 32-bit float is rounded to the next larger one."""


def rewritten(graph: Graph) -> Graph:
    """Return the graph in OpenVINO's sense of words; itself if nothing is to be said otherwise."""
    words = _Words(graph)
    nodes = tuple(new for node in graph.nodes for new in words.of(node))
    if nodes == graph.nodes:
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
        elif not node.domain and node.op_type == "NonMaxSuppression":
            say = self._non_max_suppression
        elif not node.domain and node.op_type == "Range":
            say = self._range
        elif not node.domain and node.op_type == "Softplus":
            say = self._softplus if self._is_far_out(node) else None
        elif not node.domain and node.op_type == "TopK":
            say = self._top_k if self._counts_at_run_time(node) else None
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
        return not self._is_float(node) or self._feeds_only(node, "Add")

    def _is_float(self, node: Node) -> bool:
        kind = self._graph.type_of(node.inputs[0])
        return isinstance(kind, TensorType) and kind.dtype is DataType.FLOAT

    def _feeds_only(self, node: Node, op_type: str) -> bool:
        """Whether nothing but nodes of an operator, and at least one, reads a node's output."""
        users = self._graph.consumers.get(node.outputs[0], ())
        alike = bool(users) and all(self._graph.nodes[user].op_type == op_type for user in users)
        return alike and node.outputs[0] not in self._graph.output_names

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

    def _is_far_out(self, node: Node) -> bool:
        """Whether a Softplus is said otherwise; not one of Mish, which is one operator there."""
        has_words = self._graph.opsets.get("", 0) >= _WHERE
        return self._is_float(node) and has_words and not self._feeds_only(node, "Tanh")

    def _softplus(self, node: Node) -> Iterator[Node]:
        """Far below zero, where OpenVINO is off by 4e-6, the logarithm's series e - e^2 / 2."""
        (x,), (y,) = node.inputs, node.outputs
        yield _step(node, "Exp", [x], f"{y}/exp")
        yield _step(node, "Mul", [f"{y}/exp", f"{y}/exp"], f"{y}/square")
        yield _step(node, "Mul", [f"{y}/square", self._constant(y, 0, 0.5)], f"{y}/half")
        yield _step(node, "Sub", [f"{y}/exp", f"{y}/half"], f"{y}/far")
        yield node.replace(outputs=(f"{y}/near",))
        yield _step(node, "Less", [x, self._constant(y, 1, _FAR_BELOW)], f"{y}/is_far")
        yield _step(node, "Where", [f"{y}/is_far", f"{y}/far", f"{y}/near"], y)

    def _non_max_suppression(self, node: Node) -> Iterator[Node]:
        """A threshold one step larger: OpenVINO suppresses at the threshold, ONNX above it."""
        y = node.outputs[0]
        boxes, scores, most, threshold, score = (*node.inputs, "", "", "")[:5]
        tiny = self._constant(y, 0, _LEAST_OVERLAP)
        if not threshold:
            yield node.replace(inputs=(boxes, scores, most, tiny, score))
            return
        yield _step(
            node, "Mul", [threshold, self._constant(y, 1, _THREE_QUARTERS_OF_A_STEP)], f"{y}/step"
        )
        yield _step(node, "Add", [threshold, f"{y}/step"], f"{y}/next")
        yield _step(node, "Max", [f"{y}/next", tiny], f"{y}/threshold")
        yield node.replace(inputs=(boxes, scores, most, f"{y}/threshold", score))

    def _range(self, node: Node) -> Iterator[Node]:
        """Nothing where the step leads away from the limit; OpenVINO counts the other way then."""
        (start, limit, step), (y,) = node.inputs, node.outputs
        kind = self._graph.type_of(start)
        assert isinstance(kind, TensorType)
        zero = self._made(f"{y}/zero", np.zeros((), kind.dtype.numpy))
        yield _step(node, "Sub", [limit, start], f"{y}/way")
        yield _step(node, "Less", [f"{y}/way", zero], f"{y}/is_down")
        yield _step(node, "Less", [step, zero], f"{y}/steps_down")
        yield _step(node, "Xor", [f"{y}/is_down", f"{y}/steps_down"], f"{y}/is_away")
        yield _step(node, "Where", [f"{y}/is_away", start, limit], f"{y}/limit")
        yield node.replace(inputs=(start, f"{y}/limit", step))

    def _counts_at_run_time(self, node: Node) -> bool:
        """Whether a TopK is told by another node how many to give, which may be none."""
        if self._graph.opsets.get("", 0) < _MAX_OF_INTEGERS:
            return False
        return self._graph.constant(node.inputs[1]) is None

    def _top_k(self, node: Node) -> Iterator[Node]:
        """At least one, which OpenVINO asks for, and of that as many as are wanted."""
        (x, count), y = node.inputs, next(filter(None, node.outputs))
        axis = [node.attributes.get("axis", -1)]
        zero, one, along = (self._whole(y, n, v) for n, v in enumerate(([0], [1], axis)))
        yield _step(node, "Max", [count, one], f"{y}/count")
        more = tuple(f"{name}/more" if name else "" for name in node.outputs)
        yield node.replace(inputs=(x, f"{y}/count"), outputs=more)
        for name in filter(None, node.outputs):
            yield _step(node, "Slice", [f"{name}/more", zero, count, along], name)

    def _whole(self, name: str, number: int, values: list[int]) -> str:
        return self._made(f"{name}/constant{number}", np.array(values, np.int64))

    def _constant(self, name: str, number: int, value: float) -> str:
        return self._made(f"{name}/constant{number}", np.array(value, np.float32))

    def _made(self, name: str, value: HostArray) -> str:
        self.constants[name] = Initializer.from_array(name, value)
        return name


def _step(node: Node, op_type: str, inputs: list[str], output: str, **attributes: Any) -> Node:
    """A node that stands for a part of another one."""
    return node.replace(
        name=output,
        op_type=op_type,
        inputs=tuple(inputs),
        outputs=(output,),
        attributes=attributes,
    )
