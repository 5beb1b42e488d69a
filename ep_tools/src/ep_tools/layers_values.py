"""Values inside a model and single nodes of it, for comparing layers and for dumping nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ep_core.graph import Graph, Node, Subgraph, ValueInfo
from ep_tools.sessions import Session

__all__ = ["NodeValue", "live_values", "one_node_model", "values_of"]


@dataclass(frozen=True, slots=True)
class NodeValue:
    """A result of a node of the main graph.

    Attributes:
        index: the node's place in topological order.
    """

    index: int
    node: Node
    name: str


def live_values(graph: Graph, outputs: Sequence[str]) -> list[NodeValue]:
    """Results of the nodes that the outputs depend on, in topological order."""
    needed = set(outputs)
    live: list[NodeValue] = []
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if needed.isdisjoint(node.outputs):
            continue
        needed.update(node.reads)
        results = [NodeValue(index, node, name) for name in node.outputs if name]
        live.extend(reversed(results))
    return live[::-1]


def values_of(
    graph: Graph,
    names: Iterable[str],
    opener: Callable[[bytes], Session],
    feeds: Mapping[str, Any],
) -> dict[str, Any]:
    """Run a model and return values of its main graph by name: inputs, constants and results.

    Args:
        opener: makes a session from a serialized model.

    Raises:
        EpError: the model can't be loaded or run with these values as outputs.
    """
    wanted = [name for name in dict.fromkeys(names) if name]
    results = [name for name in wanted if name in graph.producers]
    found: dict[str, Any] = {}
    if results:
        outputs = tuple(graph.values.get(name, ValueInfo(name)) for name in results)
        session = opener(graph.replace(outputs=outputs).to_model().SerializeToString())
        try:
            found = dict(zip(results, session.run(None, feeds), strict=True))
        finally:
            session.close()
    for name in wanted:
        if name not in found:
            found[name] = feeds[name] if name in feeds else _default(graph, name)
    return {name: found[name] for name in wanted}


def _default(graph: Graph, name: str) -> Any:
    """The value of an initializer; None for an optional input that isn't fed."""
    initializer = graph.initializers.get(name)
    return None if initializer is None else initializer.numpy()


def one_node_model(graph: Graph, value: NodeValue) -> Graph:
    """The node of a value as a graph of its own, whose only output is the value.

    Its inputs are what the node reads, without constants, which it keeps.
    """
    alone = Subgraph.cut(graph, (value.index,), f"{value.node.op_type} alone").as_graph()
    return alone.replace(outputs=(graph.values.get(value.name, ValueInfo(value.name)),))
