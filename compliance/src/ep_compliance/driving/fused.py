"""Holds the fused groups of a capability to their contract.

The core relies on some of it only; the rest is what a provider means by a group.
"""

from __future__ import annotations

import itertools
import math

from ep_core.contracts import Capability, FusedGroup
from ep_core.graph import Graph

__all__ = ["group_fault", "is_duration"]


def group_fault(graph: Graph, capability: Capability) -> str | None:
    """Return what is wrong with the groups, None if nothing is."""
    if not isinstance(capability.groups, tuple):
        return f"the groups are {type(capability.groups).__name__}, no tuple"
    seen: dict[int, FusedGroup] = {}
    for group in capability.groups:
        if not isinstance(group, FusedGroup):
            return f"{type(group).__name__} stands for a group"
        fault = _fault(graph, capability, group)
        for index in group.nodes if fault is None else ():
            if index in seen:
                fault = f"shares node {index} with {seen[index].nodes}"
        if fault is not None:
            return f"group {group.nodes!r} {fault}"
        seen.update(dict.fromkeys(group.nodes, group))
    return None


def _fault(graph: Graph, capability: Capability, group: FusedGroup) -> str | None:
    nodes = group.nodes
    if not isinstance(nodes, tuple) or not all(type(index) is int for index in nodes):
        return "isn't a tuple of positions"
    if len(nodes) < 2 or any(one >= other for one, other in itertools.pairwise(nodes)):
        return "isn't two positions or more, ascending"
    if nodes[0] < 0 or nodes[-1] >= len(graph.nodes):
        return f"has a node that isn't there: the graph has {len(graph.nodes)}"
    refused = [index for index in nodes if not capability.nodes[index].supported]
    if refused:
        return f"has node {refused[0]}, {graph.nodes[refused[0]].key}, which was said no to"
    if group.cost is not None and not is_duration(group.cost):
        return f"costs {group.cost!r}, no seconds"
    if not _is_connected(graph, nodes):
        return "isn't connected"
    between = _between(graph, nodes)
    if between is not None:
        return f"isn't convex: a path between its nodes leads through node {between}"
    return None


def is_duration(cost: object) -> bool:
    """True for a finite number of seconds from 0 up."""
    if not isinstance(cost, int | float) or isinstance(cost, bool):
        return False
    return math.isfinite(cost) and cost >= 0


def _is_connected(graph: Graph, nodes: tuple[int, ...]) -> bool:
    """Each node reads from another or is read by it, or both read one value."""
    members = set(nodes)
    pending, reached = [nodes[0]], {nodes[0]}
    while pending:
        node = graph.nodes[pending.pop()]
        near = {graph.producers[name] for name in node.reads if name in graph.producers}
        for name in (*node.reads, *node.outputs):
            near.update(graph.consumers.get(name, ()))
        new = (near & members) - reached
        reached |= new
        pending.extend(sorted(new))
    return reached == members


def _between(graph: Graph, nodes: tuple[int, ...]) -> int | None:
    """A node outside that depends on one inside, and on which another inside depends."""
    members = set(nodes)
    after: set[int] = set()
    for index in range(nodes[0], nodes[-1] + 1):
        reads = graph.nodes[index].reads
        makers = {graph.producers[name] for name in reads if name in graph.producers}
        if index in members and makers & after:
            return min(makers & after)
        if index in members:
            continue
        if makers & (members | after):
            after.add(index)
    return None
