"""Old versions of operators in other words, where OpenVINO's reader takes them for newer ones.

The rewritten nodes give the same values under the same names; nothing else of a graph changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ep_core.graph import Graph, Node

__all__ = ["modernised"]

_SOFTMAX_OF_ONE_AXIS = 13


def modernised(graph: Graph) -> Graph:
    """Return the graph with every Softmax below version 13 as one over the rows of a matrix."""
    if not any(_is_old_softmax(node) for node in graph.nodes):
        return graph
    nodes = tuple(new for node in graph.nodes for new in _rewritten(node))
    return graph.replace(nodes=nodes)


def _is_old_softmax(node: Node) -> bool:
    is_softmax = node.op_type == "Softmax" and not node.domain
    return is_softmax and node.since_version < _SOFTMAX_OF_ONE_AXIS


def _rewritten(node: Node) -> Iterator[Node]:
    """Below version 13, all dimensions from `axis` on count as one."""
    if not _is_old_softmax(node):
        yield node
        return
    (x,), (y,) = node.inputs, node.outputs
    names = {part: f"{y}/{part}" for part in ("shape", "matrix", "rows")}
    axis = {"axis": node.attributes.get("axis", 1)}

    def step(op_type: str, inputs: tuple[str, ...], output: str, **attributes: int) -> Node:
        return node.replace(
            name=f"{node.name}/{op_type}",
            op_type=op_type,
            inputs=inputs,
            outputs=(output,),
            attributes=attributes,
        )

    yield step("Shape", (x,), names["shape"])
    yield step("Flatten", (x,), names["matrix"], **axis)
    yield step("Softmax", (names["matrix"],), names["rows"], axis=1)
    yield step("Reshape", (names["rows"], names["shape"]), y)
