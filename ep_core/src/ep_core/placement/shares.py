"""What of a placement's predicted seconds falls to each unit and to each node.

Only shares out what `objective.py` has added up; nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ep_core.graph import Graph
from ep_core.placement.build import Offer, node_seconds
from ep_core.placement.objective import Outcome
from ep_core.placement.problem import Problem
from ep_core.placement.roofline import Sizes

__all__ = ["node_shares", "unit_seconds"]


def unit_seconds(problem: Problem, outcome: Outcome) -> list[float]:
    """Seconds by unit where it runs; what a group saves is taken off all of its units alike."""
    seconds = [row[owner] for row, owner in zip(problem.seconds, outcome.owners, strict=True)]
    for position in outcome.fused:
        group = problem.groups[position]
        total = sum(seconds[unit] for unit in group.units)
        for unit in group.units:
            seconds[unit] *= (total - group.saving) / total
    return seconds


def node_shares(
    graph: Graph,
    offers: Sequence[Offer],
    sizes: Sizes,
    units: Sequence[tuple[int, ...]],
    owners: Sequence[int],
    seconds: Sequence[float],
) -> list[list[float]]:
    """Seconds of each unit's nodes, shared out by what the nodes would take alone.

    Args:
        units: positions of nodes, by unit.
        owners, seconds: where each unit runs, and what it takes there.
    """
    shares = []
    for unit, owner, whole in zip(units, owners, seconds, strict=True):
        alone = [1.0] * len(unit)
        if len(unit) > 1 and owner < len(offers):
            answers, speed = offers[owner].answers, offers[owner].speed
            alone = [node_seconds(graph.nodes[i], answers[i], speed, sizes) for i in unit]
        total = sum(alone) or 1.0
        shares.append([whole * part / total for part in alone])
    return shares
