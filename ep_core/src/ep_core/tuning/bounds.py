"""What may be run with inputs that are made up: nothing without an end, nothing too large.

A loop whose condition is computed may never end if it starts from zeros, and lengths that are
assumed may come to more memory than there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ep_core.errors import NotSupportedError
from ep_core.graph import Graph, Node
from ep_core.placement.roofline import Sizes

__all__ = ["check_bounds"]

_MOST_BYTES = 2**31
"""Of values at one time."""
_MOST_TRIPS = 1000
"""Of a loop, as the model says it."""


def check_bounds(graph: Graph, indices: Sequence[int], sizes: Sizes) -> None:
    """Raise NotSupportedError for nodes that aren't measured.

    Args:
        indices: ascending.
        sizes: shapes of the graph's values.
    """
    nodes = [graph.nodes[index] for index in indices]
    made = {name for node in nodes for name in node.outputs}
    for node in nodes:
        _check_trips(node, (graph,), made)
    if _most_bytes(graph, nodes, sizes) > _MOST_BYTES:
        raise NotSupportedError(f"values of more than {_MOST_BYTES} bytes at one time")


def _check_trips(node: Node, scopes: tuple[Graph, ...], made: set[str]) -> None:
    """Raise for a loop that may not end soon; one whose trips are an input is given one trip."""
    if node.op_type == "Loop" and not node.domain:
        name = node.inputs[0]
        count = next((c for graph in scopes if (c := graph.constant(name)) is not None), None)
        fed = bool(name) and len(scopes) == 1 and name not in made
        trips = None if count is None else int(count.numpy().flat[0])
        may_take_long = not fed if trips is None else trips > _MOST_TRIPS
        if may_take_long:
            raise NotSupportedError(f"loop {node.name!r} may take long")
    for body in node.bodies.values():
        for inner in body.nodes:
            _check_trips(inner, (body, *scopes), made)


def _most_bytes(graph: Graph, nodes: Sequence[Node], sizes: Sizes) -> int:
    """The most that values take, run in this order; inputs and outputs are held all the time."""
    last = {name: at for at, node in enumerate(nodes) for name in node.reads}
    made = {name for node in nodes for name in node.outputs if name}
    held = {name for name in last if name not in made and graph.constant(name) is None}
    now = most = sum(map(sizes.host_bytes, held))
    for at, node in enumerate(nodes):
        now += sum(sizes.host_bytes(name) for name in node.outputs if name)
        most = max(most, now)
        for name in dict.fromkeys((*node.reads, *node.outputs)):
            if name in made and last.get(name, at) == at and name not in graph.output_names:
                now -= sizes.host_bytes(name)
    return most
