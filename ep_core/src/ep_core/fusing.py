"""Keeps fusions from moving work to a provider that the caller likes less.

A fusion may make an operator that the preferred provider lacks, though it had all the parts. Such
a pass is undone; the graph then runs as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ep_core.graph import Graph, Node
from ep_core.partition import CONTROL_FLOW, Candidate, answers

__all__ = ["PlacementGuard", "placement_ranks"]


class PlacementGuard:
    """Says whether a rewritten graph is placed as well as the one it came from."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates

    def __call__(self, before: Graph, after: Graph) -> bool:
        """True unless a new node ranks lower than every node that it may stand for."""
        old = placement_ranks(before, self._candidates)
        new = placement_ranks(after, self._candidates)
        removed = [rank for node, rank in old.items() if node not in new]
        added = [rank for node, rank in new.items() if node not in old]
        return max(added, default=0) <= max(removed, default=0)


def placement_ranks(graph: Graph, candidates: Sequence[Candidate]) -> dict[Node, int]:
    """Position of the first provider that takes each node; their number if none does.

    Nodes of bodies are included; control flow that the core runs isn't.
    """
    ranks: dict[Node, int] = {}
    for part in _with_bodies(graph):
        given = [answers(part, candidate, {}) for candidate in candidates]
        for index, node in enumerate(part.nodes):
            if node.domain or node.op_type not in CONTROL_FLOW:
                yes = (i for i, answer in enumerate(given) if answer[index].supported)
                ranks[node] = next(yes, len(given))
    return ranks


def _with_bodies(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for body in node.bodies.values():
            yield from _with_bodies(body)
