"""Inputs for what is measured: of the right type and shape, the same every time, and in range.

Floats lie between 0.1 and 0.9, truth values are True, integers are 0, which is in range for an
index. Where 0 would leave an operator without work (the shape of a Reshape, the trips of a Loop),
the value follows from the shapes around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ep_core.contracts import HostArray
from ep_core.errors import NotSupportedError
from ep_core.graph import Graph, Node
from ep_core.placement.roofline import Sizes
from ep_core.types import DataType, TensorType

__all__ = ["feed"]

_PATTERN = np.linspace(0.1, 0.9, 997)
"""Repeated over all floats; of prime length, so that rows differ."""

_Rule = Callable[[Node, Sizes], Sequence[int]]


def feed(graph: Graph, nodes: Sequence[Node], name: str, sizes: Sizes) -> HostArray:
    """An array for an input of some nodes of a graph.

    Raises:
        NotSupportedError: the input is no tensor, or nothing is known of its type.
        ValueError: the input tells a shape, and isn't as long as that shape.
        MemoryError: it is too large.
    """
    kind = graph.type_of(name)
    if not isinstance(kind, TensorType):
        raise NotSupportedError(f"inputs of type {kind} aren't made up")
    shape = sizes.shape(name)
    told = _told(nodes, name, sizes)
    if told is not None:
        return np.array(told).reshape(shape).astype(kind.dtype.numpy)
    if kind.dtype is DataType.STRING:
        return np.full(shape, "a", object)
    if kind.dtype is DataType.BOOL:
        return np.ones(shape, np.bool_)
    if kind.dtype.is_integer:
        return np.zeros(shape, kind.dtype.numpy)
    return np.resize(_PATTERN.astype(kind.dtype.numpy), shape)


def _told(nodes: Sequence[Node], name: str, sizes: Sizes) -> Sequence[int] | None:
    """Values that follow from what a node does with the input; None if any will do."""
    for node in nodes:
        for position, given in enumerate(node.inputs):
            rule = _RULES.get((node.op_type, position)) if given == name else None
            if rule is not None:
                return rule(node, sizes)
    return None


def _result(node: Node, sizes: Sizes) -> Sequence[int]:
    return sizes.shape(node.outputs[0])


def _repeats(node: Node, sizes: Sizes) -> Sequence[int]:
    before, after = sizes.shape(node.inputs[0]), sizes.shape(node.outputs[0])
    return [new // max(1, old) for old, new in zip(before, after, strict=True)]


def _length(axis: int) -> _Rule:
    return lambda node, sizes: [sizes.shape(node.outputs[0])[axis]]


def _one(node: Node, sizes: Sizes) -> Sequence[int]:
    return [1]


_RULES: Mapping[tuple[str, int], _Rule] = {
    ("Reshape", 1): _result,
    ("Expand", 1): _result,
    ("ConstantOfShape", 0): _result,
    ("Resize", 3): _result,
    ("Tile", 1): _repeats,
    ("TopK", 1): _length(-1),
    ("Range", 1): _length(0),
    ("Range", 2): _one,
    ("Loop", 0): _one,
}
