"""Which nodes belong together: the units of placement.

A unit is one node, or a quantised operator with the DequantizeLinear nodes that only it reads and
the QuantizeLinear node that alone reads it, which providers fuse into one integer kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from ep_core.graph import Graph, Node

__all__ = ["units_of"]

_IN = "DequantizeLinear"
_OUT = "QuantizeLinear"


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


def _is(node: Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in ("", "com.microsoft")
