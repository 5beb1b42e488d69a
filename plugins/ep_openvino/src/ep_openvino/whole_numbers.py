"""64-bit integers: where OpenVINO's 32 bits hold all of them.

OpenVINO computes int64 in int32 and says nothing when a value doesn't fit. A node with int64 is
taken only where its values can't be larger: positions and lengths that count elements of tensors,
small constants, and what is worked out from those alone, as the shapes of a model with dynamic
lengths are. A tensor of 2**31 elements in one dimension is taken for impossible.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ep_core.contracts import HostArray
from ep_core.graph import Graph, Initializer, Node
from ep_core.types import DataType, TensorType

__all__ = ["Sizes", "operators"]


def operators(names: str) -> frozenset[str]:
    """A set of operators, written as a text with spaces between."""
    return frozenset(names.split())


_LARGEST = 2**31 - 1
_MOST_ELEMENTS = 2**16
_LARGEST_FACTOR = 2**16
"""A length times a larger constant counts as large."""

_INDICES: Mapping[str, tuple[int, ...]] = {
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Expand": (1,),
    "Gather": (1,),
    "GatherElements": (1,),
    "GatherND": (1,),
    "MaxUnpool": (1,),
    "NonMaxSuppression": (2,),
    "Pad": (1, 3),
    "Reshape": (1,),
    "Resize": (3,),
    "ReverseSequence": (1,),
    "RoiAlign": (2,),
    "Scatter": (1,),
    "ScatterElements": (1,),
    "ScatterND": (1,),
    "Split": (1,),
    "Squeeze": (1,),
    "TensorScatter": (2,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
}
"""Inputs whose values must lie within the lengths of tensors, or the node is in error."""

_UNREAD: Mapping[str, tuple[int, ...]] = {"Shape": (0,), "Size": (0,)}
"""Inputs of which nothing but the shape matters."""

_ANY_NUMBER: Mapping[str, tuple[int, ...]] = {"Slice": (1, 2, 3, 4), "Trilu": (1,)}
"""Inputs whose values are cut to the lengths of tensors, constants by OpenVINO's reader too."""

_COUNTS: Mapping[str, tuple[int, ...]] = {
    "ArgMax": (0,),
    "ArgMin": (0,),
    "MaxPool": (1,),
    "NonMaxSuppression": (0,),
    "NonZero": (0,),
    "Shape": (0,),
    "Size": (0,),
    "TopK": (1,),
    "Unique": (1, 2, 3),
}
"""Outputs that count elements or say where they are."""

_OF_SIZES = operators(
    "Add Cast Concat Div Equal Expand Flatten Gather Greater GreaterOrEqual Identity Less "
    "LessOrEqual Max Min Mod Mul Neg Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Slice "
    "Split Squeeze Sub Sum Tile Transpose Unsqueeze Where"
)
"""Operators that make sizes of sizes."""

_ZERO = np.zeros(1, np.int64)

_SMALL_TYPES = frozenset(
    {DataType.BOOL, DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16, DataType.INT32}
)


class Sizes:
    """Which int64 values of a graph can't exceed 32 bits."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sizes: set[str] = set()
        for name, constant in graph.initializers.items():
            if name not in graph.overridable and _is_small(constant):
                self._sizes.add(name)
        for node in graph.nodes:
            self._note(node)

    def refusal(self, node: Node) -> str:
        """Why the int64 values of a node may not fit, or nothing."""
        for place, name in enumerate(node.inputs):
            if name and self._is_wide(name) and not self._fits(node, place, name):
                return f"input {name!r} is int64, which OpenVINO computes in 32 bits"
        for name in node.outputs:
            if name and self._is_wide(name) and name not in self._sizes:
                return f"output {name!r} is int64, which OpenVINO computes in 32 bits"
        return ""

    def _is_wide(self, name: str) -> bool:
        kind = self._graph.type_of(name)
        return isinstance(kind, TensorType) and kind.dtype is DataType.INT64

    def _fits(self, node: Node, place: int, name: str) -> bool:
        if node.domain:
            return False
        if place in (*_INDICES.get(node.op_type, ()), *_UNREAD.get(node.op_type, ())):
            return True
        if place in _ANY_NUMBER.get(node.op_type, ()):
            return name in self._sizes or self._graph.constant(name) is not None
        return name in self._sizes and node.op_type in _OF_SIZES

    def _note(self, node: Node) -> None:
        """Add the outputs of a node that are sizes."""
        if node.domain:
            return
        if node.op_type == "ConstantOfShape" and self._is_wide(node.outputs[0]):
            if _are_small(node.attributes.get("value", _ZERO)):
                self._sizes.add(node.outputs[0])
            return
        if node.op_type == "Mul" and any(map(self._is_large_factor, node.inputs)):
            return
        places = _COUNTS.get(node.op_type, ())
        self._sizes.update(node.outputs[p] for p in places if p < len(node.outputs))
        if node.op_type in _OF_SIZES and all(
            self._is_size(node, place, name) for place, name in enumerate(node.inputs) if name
        ):
            self._sizes.update(node.outputs)

    def _is_large_factor(self, name: str) -> bool:
        constant = self._graph.constant(name)
        return constant is not None and not _is_small(constant, _LARGEST_FACTOR)

    def _is_size(self, node: Node, place: int, name: str) -> bool:
        """Whether an input can't make the outputs exceed 32 bits."""
        is_bound = place in (*_INDICES.get(node.op_type, ()), *_ANY_NUMBER.get(node.op_type, ()))
        if is_bound or name in self._sizes:
            return True
        kind = self._graph.type_of(name)
        return (
            node.op_type in ("Cast", "Where")
            and isinstance(kind, TensorType)
            and kind.dtype in _SMALL_TYPES
        )


def _is_small(constant: Initializer, largest: int = _LARGEST) -> bool:
    """Whether no element of an int64 constant is larger; constants of many elements aren't read."""
    if constant.dtype is not DataType.INT64 or constant.nbytes > 8 * _MOST_ELEMENTS:
        return False
    return _are_small(constant.numpy(), largest)


def _are_small(values: HostArray, largest: int = _LARGEST) -> bool:
    return values.size == 0 or bool(values.min() >= -largest and values.max() <= largest)
