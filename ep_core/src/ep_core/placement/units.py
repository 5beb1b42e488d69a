"""Which nodes belong together: the units of placement; and which of them may run twice.

A unit is one node, or a quantised operator with the DequantizeLinear nodes that only it reads and
the QuantizeLinear node that alone reads it, which providers fuse into one integer kernel. One that
may run twice costs little, and gives the same bits on every provider.
"""

from __future__ import annotations

from collections.abc import Mapping

from ep_core.graph import Graph, Node
from ep_core.placement.roofline import Sizes
from ep_core.types import DataType, TensorType

__all__ = ["is_clonable", "units_of"]

_IN = "DequantizeLinear"
_OUT = "QuantizeLinear"
_MADE_OF_SHAPES = frozenset({"ConstantOfShape", "Shape", "Size"})
_CHEAP = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Range", "Reshape", "Slice"}
    | {"Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"}
)
"""Operators that pick, move and repeat elements, or convert them."""
_ARITHMETIC = frozenset({"Add", "Equal", "Greater", "Less", "Max", "Min", "Mul", "Sub"})
"""Exact for integers."""
_CLONABLE = _MADE_OF_SHAPES | _CHEAP | _ARITHMETIC
_SMALL_BYTES = 4096


def units_of(graph: Graph, able: Mapping[int, tuple[bool, ...]]) -> list[tuple[int, ...]]:
    """Group the nodes to place.

    Args:
        able: by position of a node, ascending, which candidates can run it. Nodes that differ
            stay apart, so that belonging together never costs a node the candidate that it would
            have had alone.

    Returns:
        Positions of nodes, ascending within a unit, units in the order of their last node.
    """
    wanted = frozenset(graph.output_names)
    groups: dict[int, tuple[int, ...]] = {}
    for index in able:
        group = _quantised(graph, index, wanted)
        if len({able.get(member) for member in group}) == 1:
            groups.update(dict.fromkeys(group, group))
    found = (groups.get(index, (index,)) for index in able)
    return [group for index, group in zip(able, found, strict=True) if group[-1] == index]


def _quantised(graph: Graph, index: int, wanted: frozenset[str]) -> tuple[int, ...]:
    """The group around an operator; empty if there is none."""

    def only_reader(name: str) -> int | None:
        readers = graph.consumers.get(name, ())
        return readers[0] if len(readers) == 1 and name not in wanted else None

    node = graph.nodes[index]
    if node.op_type in (_IN, _OUT) or node.bodies or len(node.outputs) != 1:
        return ()
    after = only_reader(node.outputs[0])
    if after is None or not _is(graph.nodes[after], _OUT):
        return ()
    if graph.nodes[after].inputs[0] != node.outputs[0]:
        return ()
    before = []
    for name in dict.fromkeys(node.inputs):
        maker = graph.producers.get(name)
        if maker is not None and _is(graph.nodes[maker], _IN) and only_reader(name) == index:
            before.append(maker)
    return (*sorted(before), index, after) if before else ()


def is_clonable(graph: Graph, index: int, sizes: Sizes) -> bool:
    """True if a node may run twice: what makes a shape, is made of one, or computes with one."""
    node = graph.nodes[index]
    if node.op_type not in _CLONABLE or node.domain or len(node.outputs) != 1:
        return False
    name = node.outputs[0]
    kind = graph.type_of(name)
    if not isinstance(kind, TensorType) or kind.dtype is DataType.STRING:
        return False
    if any(name in graph.nodes[user].captures for user in graph.consumers.get(name, ())):
        return False
    constants = (read for read in node.reads if graph.constant(read) is not None)
    if any(sizes.host_bytes(read) > _SMALL_BYTES for read in constants):
        return False
    if node.op_type in _MADE_OF_SHAPES:
        return True
    exact = node.op_type in _ARITHMETIC and (kind.dtype.is_integer or kind.dtype is DataType.BOOL)
    return (exact or node.op_type in _CHEAP) and sizes.host_bytes(name) <= _SMALL_BYTES


def _is(node: Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in ("", "com.microsoft")
