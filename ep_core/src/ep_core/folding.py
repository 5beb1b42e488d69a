"""Computes constant nodes through a real host provider, for the constant-folding pass.

So a folded value has exactly the arithmetic of the runtime; the core has none of its own. A node
that comes out the same everywhere is computed where that takes no compiler.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ep_core.contracts import CompiledPartition, HostArray, Support
from ep_core.graph import Graph, Initializer, Node, Subgraph, ValueInfo
from ep_core.partition import Candidate
from ep_core.types import HOST_MEMORY

__all__ = ["Evaluator"]

_SAME_EVERYWHERE = frozenset({"Add", "Concat", "ConstantOfShape", "Expand", "Gather", "Identity"})
_SAME_EVERYWHERE |= {"Mul", "Reshape", "Slice", "Split", "Squeeze", "Sub", "Tile", "Transpose"}
_SAME_EVERYWHERE |= {"Unsqueeze", "Where"}
"""Operators that only move elements, or round once."""


class Evaluator:
    """Evaluates single nodes on the first synchronous host provider that supports them.

    Providers that keep artifacts take long to compile, so that they come last where it is all one.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = [
            c
            for c in candidates
            if c.provider.memory == HOST_MEMORY and not c.provider.features.asynchronous
        ]

    def __call__(
        self, graph: Graph, node: Node, inputs: Sequence[HostArray | None]
    ) -> list[HostArray] | None:
        """Compute a node's outputs.

        Args:
            graph: where the node comes from; gives opsets and output types.
            inputs: the constant inputs in order, None for those left out.

        Returns:
            One array per output that has a name, or None if nobody computes the node or it fails.
        """
        small = _one_node_graph(graph, node, inputs)
        candidates = self._candidates
        if _same_everywhere(small):
            candidates = sorted(candidates, key=lambda c: c.provider.features.artifacts)
        for candidate in candidates:
            if _claims(candidate, small):
                return _compute(candidate, small)
        return None


def _same_everywhere(graph: Graph) -> bool:
    """Whether the one node of a graph leaves no choice in how it is computed."""
    (node,) = graph.nodes
    integers = all(item.dtype.is_integer for item in graph.initializers.values())
    known = node.op_type in _SAME_EVERYWHERE or (node.op_type == "Cast" and integers)
    return known and not node.domain


def _one_node_graph(graph: Graph, node: Node, inputs: Sequence[HostArray | None]) -> Graph:
    initializers = {
        name: Initializer.from_array(name, array)
        for name, array in zip(node.inputs, inputs, strict=True)
        if name and array is not None
    }
    outputs = tuple(ValueInfo(name, graph.type_of(name)) for name in node.outputs if name)
    return Graph(
        name=f"fold_{node.name}",
        inputs=(),
        outputs=outputs,
        nodes=(node,),
        initializers=initializers,
        opsets=graph.opsets,
        values={info.name: info for info in outputs},
    )


def _claims(candidate: Candidate, graph: Graph) -> bool:
    try:
        (answer,) = candidate.provider.get_capability(graph).nodes
    except Exception:  # noqa: BLE001 - placement reports it; here the node just isn't folded
        return False
    granted, _ = candidate.grant(graph, graph.nodes[0])
    return isinstance(answer, Support) and answer.supported and granted


def _compute(candidate: Candidate, graph: Graph) -> list[HostArray] | None:
    partition: CompiledPartition | None = None
    try:
        subgraph = Subgraph.cut(graph, (0,), graph.name)
        partition = candidate.provider.compile(subgraph)
        outputs: list[HostArray | None] = [None] * len(subgraph.outputs)
        partition.run([], outputs, None)
    except Exception:  # noqa: BLE001 - a node that fails now fails at run time, with a message
        return None
    finally:
        if partition is not None:
            partition.close()
    if not all(isinstance(value, np.ndarray) for value in outputs):
        return None
    return [value for value in outputs if value is not None]
