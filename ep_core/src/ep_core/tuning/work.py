"""What is measured: one node or one partition, with a key that says what its time depends on.

Weights count by type and shape. Small constants count by content, for they may be axes, shapes or
bounds. So equal layers of a model, and models that differ in their weights, share a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ep_core.artifacts.content import Digest, add_subgraph
from ep_core.graph import Graph, Initializer, Subgraph, ValueInfo
from ep_core.placement.roofline import Sizes

__all__ = ["Work", "key_of_text", "work_of"]

_TELLING_BYTES = 1024
"""Constants up to this size count by content."""


@dataclass(frozen=True, eq=False)
class Work:
    """Nodes of a graph to be timed.

    Attributes:
        graph, indices: what to cut out.
        sizes: shapes of the graph's values, with lengths that are assumed.
        key: 32 hexadecimal digits.
    """

    graph: Graph
    indices: tuple[int, ...]
    sizes: Sizes
    key: str


def work_of(graph: Graph, indices: Sequence[int], sizes: Sizes) -> Work:
    """Return nodes as work; a single node under names that don't depend on the model.

    Raises:
        NotSupportedError: an attribute holds something that isn't an `AttributeValue`.
    """
    indices = tuple(indices)
    if len(indices) == 1:
        graph = _alone(graph, indices[0])
        indices = (0,)
        sizes = Sizes(graph, sizes.lengths)
    return Work(graph, indices, sizes, _key(Subgraph.cut(graph, indices), sizes))


def key_of_text(*texts: str) -> str:
    """The key of something that isn't part of a graph."""
    digest = Digest()
    digest.add_text("text", *texts)
    return digest.result().hex()[:32]


def _key(subgraph: Subgraph, sizes: Sizes) -> str:
    small = {name: c for name, c in subgraph.constants.items() if c.nbytes <= _TELLING_BYTES}
    digest = Digest()
    add_subgraph(digest, replace(subgraph, constants=MappingProxyType(small)))
    digest.add_text("weights", *sorted(set(subgraph.constants) - set(small)))
    digest.add_text("lengths", *(repr(sizes.shape(name)) for name in subgraph.inputs))
    return digest.result().hex()[:32]


def _alone(graph: Graph, index: int) -> Graph:
    """A node as a graph of its own. The names inside bodies, and so of captures, stay."""
    node = graph.nodes[index]
    new = {"": ""} | {name: name for name in node.captures}
    for name in (*node.inputs, *node.outputs):
        new.setdefault(name, name if node.bodies else f"value_{len(new)}")
    constants: dict[str, Initializer] = {}
    inputs: dict[str, ValueInfo] = {}
    for name in node.reads:
        constant = graph.constant(name)
        if constant is not None:
            constants[new[name]] = constant.renamed(new[name])
        else:
            inputs[new[name]] = ValueInfo(new[name], graph.type_of(name))
    outputs = {name: ValueInfo(new[name], graph.type_of(name)) for name in node.outputs if name}
    wanted = Subgraph.cut(graph, (index,)).outputs
    return Graph(
        name="alone",
        inputs=tuple(inputs.values()),
        outputs=tuple(outputs[name] for name in wanted),
        nodes=(
            node.replace(
                name="alone",
                inputs=tuple(new[name] for name in node.inputs),
                outputs=tuple(new[name] for name in node.outputs),
            ),
        ),
        initializers=constants,
        opsets=graph.opsets,
        values={info.name: info for info in (*inputs.values(), *outputs.values())},
    )
