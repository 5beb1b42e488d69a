"""From an assignment to partitions: runs of units that are ready one after the other.

Each partition is convex, and the partitions in their order are an order of execution: the graph
of partitions has no cycle. With two candidates their number is the least possible; with more,
where that is hard to find, it is close to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ep_core.placement.problem import Owners, Problem

__all__ = ["Batch", "schedule"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Units that run together on one candidate, ascending."""

    candidate: int
    units: tuple[int, ...]


def schedule(problem: Problem, owners: Owners) -> list[Batch]:
    """Group the units into partitions, in execution order; the best of every way to start.

    Raises:
        PlacementError: units depend on each other in a circle.
    """
    present = sorted(dict.fromkeys(owners))
    heights = _heights(problem, owners) if len(present) > 2 else [0] * len(owners)
    tries = (_drain(problem, owners, start, heights) for start in present)
    return min(tries, key=len, default=[])


def _heights(problem: Problem, owners: Owners) -> list[int]:
    """By unit, how many more partitions the worst way from it to the end takes."""
    heights = [0] * len(owners)
    for unit in reversed(problem.order):
        owner = owners[unit]
        most = 0
        for user in problem.users[unit]:
            height = heights[user] + (owners[user] != owner)
            if height > most:
                most = height
        heights[unit] = most
    return heights


def _drain(problem: Problem, owners: Owners, start: int, heights: Sequence[int]) -> list[Batch]:
    """Kahn's algorithm with one ready queue per candidate; a queue is drained before the next.

    The next one is that from which most partitions still have to follow.
    """
    users = problem.users
    missing = [len(makers) for makers in problem.makers]
    ready: list[list[int]] = [[] for _ in problem.candidates]
    tallest = [0] * len(ready)

    def add(unit: int) -> None:
        owner = owners[unit]
        tallest[owner] = max(heights[unit], tallest[owner]) if ready[owner] else heights[unit]
        ready[owner].append(unit)

    for unit, count in enumerate(missing):
        if not count:
            add(unit)
    batches: list[Batch] = []
    current = start
    while any(ready):
        if not ready[current]:
            waiting = [candidate for candidate, queue in enumerate(ready) if queue]
            current = max(waiting, key=lambda c: (tallest[c], len(ready[c])))
        queue = ready[current]
        taken = []
        while queue:
            unit = queue.pop()
            taken.append(unit)
            for user in users[unit]:
                missing[user] -= 1
                if not missing[user]:
                    add(user)
            if current in problem.solo:
                break
        taken.sort()
        batches.append(Batch(current, tuple(taken)))
    return batches
