"""From a placement with clones to the graph that has them, as nodes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ep_core.graph import Graph, Node, ValueInfo
from ep_core.placement.problem import Problem

__all__ = ["Rewritten", "with_clones"]


@dataclass(frozen=True)
class Rewritten:
    """A graph and how it relates to the one that it was made of.

    Attributes:
        units: positions of their nodes, by unit, clones last.
        origins: by position of a node that of the node it was, or does the same as.
        values: by position of a tensor its name.
    """

    graph: Graph
    units: Sequence[tuple[int, ...]]
    origins: Sequence[int]
    values: Sequence[str]


def with_clones(
    graph: Graph,
    units: Sequence[tuple[int, ...]],
    problem: Problem,
    owners: Sequence[int],
    origins: Sequence[int],
) -> Rewritten:
    """Add the clones, each after its origin, and have their readers read what they make.

    Args:
        units: positions of nodes, without the clones.
        problem, owners: with the clones as the last units.
        origins: by clone the unit that it does the same as.
    """
    values = [tensor.name for tensor in problem.tensors]
    if not origins:
        return Rewritten(graph, units, range(len(graph.nodes)), values)
    count = len(units)
    fresh_value = _Names({*graph.values, *graph.producers, *graph.initializers})
    fresh_node = _Names({node.name for node in graph.nodes})
    renamed: dict[int, dict[str, str]] = {}
    for position, tensor in enumerate(problem.tensors):
        if tensor.producer >= count:
            candidate = problem.candidates[owners[tensor.producer]]
            values[position] = new = fresh_value.copy_of(tensor.name, candidate)
            for unit in (tensor.producer, *tensor.consumers):
                renamed.setdefault(unit, {})[tensor.name] = new
    unit_of = {index: unit for unit, members in enumerate(units) for index in members}
    clones: dict[int, list[int]] = {}
    for clone, unit in enumerate(origins, count):
        clones.setdefault(unit, []).append(clone)
    nodes: list[Node] = []
    old: list[int] = []
    places: list[list[int]] = [[] for _ in problem.names]
    for index, node in enumerate(graph.nodes):
        own = unit_of.get(index)
        for unit in [] if own is None else [own, *clones.get(own, ())]:
            places[unit].append(len(nodes))
            changed = _renamed(node, renamed.get(unit, {}))
            if unit >= count:
                name = fresh_node.copy_of(node.name, problem.candidates[owners[unit]])
                changed = changed.replace(name=name)
            nodes.append(changed)
            old.append(index)
        if own is None:
            nodes.append(node)
            old.append(index)
    added = dict(_infos(graph, problem, values))
    result = graph.replace(nodes=tuple(nodes), values={**graph.values, **added})
    return Rewritten(result, [tuple(own) for own in places], old, values)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The node with other names for what it reads, or, if it's a clone, makes."""
    if not names:
        return node
    return node.replace(
        inputs=tuple(names.get(name, name) for name in node.inputs),
        outputs=tuple(names.get(name, name) for name in node.outputs),
    )


def _infos(
    graph: Graph, problem: Problem, values: Sequence[str]
) -> Iterator[tuple[str, ValueInfo]]:
    for tensor, name in zip(problem.tensors, values, strict=True):
        if name != tensor.name:
            yield name, ValueInfo(name, graph.type_of(tensor.name))


class _Names:
    """Names for what is new, beside those that are taken."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def copy_of(self, old: str, candidate: str) -> str:
        """A name that says what it is a copy of; with a number where that isn't enough."""
        new, number = f"{old} (copy for {candidate})", 1
        while new in self._taken:
            number += 1
            new = f"{old} (copy {number} for {candidate})"
        self._taken.add(new)
        return new
