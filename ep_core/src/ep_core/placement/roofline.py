"""What an operator takes on a device, where its provider doesn't say: the roofline.

Seconds are the larger of arithmetic at peak and bytes at full bandwidth, plus a fixed time per
operator. It is a bound and no prediction; it is meant to compare devices.
Source: S. Williams, A. Waterman, D. Patterson, Roofline: an insightful visual performance model for
multicore architectures, CACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ep_core.graph import Graph, Node
from ep_core.placement.problem import LONGEST
from ep_core.types import DataType, DeviceSpeed, TensorType

__all__ = ["Sizes", "assumed_speed", "fused_seconds", "seconds_of", "work_of"]


_ASSUMED = {
    "cpu": DeviceSpeed(1e11, 2e10, 1e-6, 5e-6),
    "gpu": DeviceSpeed(5e12, 3e11, 5e-6, 2e-5),
    "npu": DeviceSpeed(2e12, 5e10, 5e-6, 5e-5),
}


def assumed_speed(kind: str) -> DeviceSpeed:
    """A cautious guess for a device that declares nothing; one of unknown kind is like a CPU."""
    return _ASSUMED.get(kind, _ASSUMED["cpu"])


_UNKNOWN_LENGTH = 64
_MOST_BITS = 60
"""Of a number of elements; a model may say what it likes."""


class Sizes:
    """Shapes and bytes of a graph's values, where symbolic lengths are assumed.

    Args:
        lengths: by symbolic name. One that isn't there, or has no name, counts as 1 where it is the
            first of its shape, for that is mostly a batch, and as 64 elsewhere.
    """

    def __init__(self, graph: Graph, lengths: Mapping[str, int]) -> None:
        self.graph = graph
        self.lengths = lengths
        self._shapes: dict[str, tuple[int, ...]] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape; a value of unknown rank, or none at all, counts as one element."""
        found = self._shapes.get(name)
        if found is None:
            kind = self.graph.type_of(name)
            dims = (kind.shape or ()) if isinstance(kind, TensorType) else ()
            found = tuple(
                dim
                if isinstance(dim, int)
                else self.lengths.get(dim or "", _UNKNOWN_LENGTH if axis else 1)
                for axis, dim in enumerate(dims)
            )
            if math.prod(found).bit_length() > _MOST_BITS:
                found = tuple(min(length, 1 << _MOST_BITS // len(found)) for length in found)
            self._shapes[name] = found
        return found

    def host_bytes(self, name: str) -> int:
        """Bytes of a host array, which is what a copy moves; 0 for what is no tensor."""
        kind = self.graph.type_of(name)
        if not isinstance(kind, TensorType):
            return 0
        return math.prod(self.shape(name)) * kind.dtype.numpy.itemsize

    def is_exact(self, name: str) -> bool:
        """True if `host_bytes` assumes nothing."""
        kind = self.graph.type_of(name)
        if not isinstance(kind, TensorType) or kind.dtype is DataType.STRING:
            return False
        return kind.static_shape is not None

    def packed_bytes(self, name: str) -> float:
        """Bytes on a device, narrow types packed."""
        kind = self.graph.type_of(name)
        bits = kind.dtype.bits if isinstance(kind, TensorType) else 0
        return math.prod(self.shape(name)) * bits / 8


def seconds_of(node: Node, sizes: Sizes, speed: DeviceSpeed) -> float:
    """Seconds of one operator; of control flow as if each body ran once."""
    return _bound(*work_of(node, sizes), speed)


def fused_seconds(
    indices: Sequence[int], sizes: Sizes, speed: DeviceSpeed, outputs: frozenset[str]
) -> float:
    """Seconds of nodes that run as one operator: what passes between them stays out of memory.

    Args:
        indices: positions of the nodes.
        outputs: of the graph.
    """
    graph, members = sizes.graph, frozenset(indices)
    nodes = [graph.nodes[index] for index in indices]
    works = [work_of(node, sizes) for node in nodes]
    made = {name for node in nodes for name in node.outputs if name}
    read = {name for node in nodes for name in node.reads}
    inside = {
        name
        for name in made
        if name not in outputs and members.issuperset(graph.consumers.get(name, ()))
    }
    crossing = sum(sizes.packed_bytes(name) for name in sorted((read | made) - inside))
    flops = sum(work[0] for work in works)
    return _bound(flops, min(sum(work[1] for work in works), crossing), speed)


def _bound(flops: float, moved: float, speed: DeviceSpeed) -> float:
    longest = max(flops / speed.flops_per_second, moved / speed.bytes_per_second)
    return min(speed.operator_seconds + longest, LONGEST)


def work_of(node: Node, sizes: Sizes) -> tuple[float, float]:
    """Floating-point operations, and bytes read and written."""
    if node.bodies:
        return _work_of_bodies(node, sizes)
    inputs = [name for name in node.inputs if name]
    outputs = [name for name in node.outputs if name]
    written = sum(sizes.packed_bytes(name) for name in outputs)
    op_type = node.op_type if node.domain in ("", "com.microsoft") else ""
    if op_type in _VIEWS:
        return 0.0, 0.0
    if op_type in _PICKS:
        return 0.0, 2 * written
    moved = written + sum(sizes.packed_bytes(name) for name in inputs)
    count = _FLOPS.get(op_type)
    if count is not None:
        return count(_Shapes(node, sizes)), moved
    return max(math.prod(sizes.shape(name)) for name in [*inputs, *outputs, ""]), moved


def _work_of_bodies(node: Node, sizes: Sizes) -> tuple[float, float]:
    flops = moved = 0.0
    for body in node.bodies.values():
        inner = Sizes(body, sizes.lengths)
        for item in body.nodes:
            own = work_of(item, inner)
            flops += own[0]
            moved += own[1]
    return flops, moved


class _Shapes:
    """The shapes around one node, by position; what is missing counts as one element."""

    def __init__(self, node: Node, sizes: Sizes) -> None:
        self.node = node
        self._sizes = sizes

    def given(self, position: int) -> tuple[int, ...]:
        names = self.node.inputs
        return self._sizes.shape(names[position]) if position < len(names) else ()

    @property
    def result(self) -> int:
        return math.prod(self._sizes.shape(self.node.outputs[0]))


def _matmul(shapes: _Shapes) -> float:
    """A multiplication and an addition for each result and each element that is summed over."""
    left = shapes.given(0)
    turned = bool(shapes.node.attributes.get("transA"))
    return 2.0 * shapes.result * _length(left, -2 if turned else -1)


def _convolution(weight: int) -> Callable[[_Shapes], float]:
    """The same, summed over a filter; a weight's shape is (M, C/groups, kernel...)."""
    return lambda shapes: 2.0 * shapes.result * math.prod(shapes.given(weight)[1:])


def _transposed(shapes: _Shapes) -> float:
    """Each input element meets each filter once; the weight's shape is (C, M/groups, kernel...)."""
    return 2.0 * math.prod(shapes.given(0)) * math.prod(shapes.given(1)[1:])


def _attention(shapes: _Shapes) -> float:
    """Two products: queries with keys, and what comes of it with values."""
    queries, keys = shapes.given(0), shapes.given(1) or shapes.given(0)
    return 4.0 * math.prod(queries) * _length(keys, -2)


def _recurrent(shapes: _Shapes) -> float:
    """Every step of every sequence meets every weight; X is (steps, batch, features)."""
    weights = math.prod(shapes.given(1)) + math.prod(shapes.given(2))
    return 2.0 * math.prod(shapes.given(0)[:2]) * weights


def _length(shape: tuple[int, ...], axis: int) -> int:
    return shape[axis] if len(shape) >= -axis else 1


_FLOPS: dict[str, Callable[[_Shapes], float]] = {
    **dict.fromkeys(("MatMul", "FusedMatMul", "Gemm", "MatMulInteger", "MatMulNBits"), _matmul),
    **dict.fromkeys(("QLinearMatMul", "MatMulIntegerToFloat"), _matmul),
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger"), _convolution(1)),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed,
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
}
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze"})
_PICKS = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Operators that read no more than they write."""
