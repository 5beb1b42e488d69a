"""Local search over the true objective: what cuts can't see, above all the number of partitions.

Moves are whole partitions, fused groups and single units. A move is measured in full only if the
change of units and copies, which is quick to find, leaves hope. Effort is counted in what is looked
at, never by the clock, so that the same problem gives the same answer everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ep_core.placement.budget import Budget
from ep_core.placement.estimate import Estimate
from ep_core.placement.objective import Outcome, evaluate
from ep_core.placement.problem import Problem

__all__ = ["MEASURING", "Rank", "improve", "moved", "promising"]

Rank = Callable[[Outcome], tuple[float, ...]]
"""What placements are compared by, lowest first."""

MEASURING = 4
"""What measuring a placement takes, for each unit and tensor."""

_Move = tuple[tuple[int, ...], int]
"""Units, and the candidate that they go to."""


def improve(problem: Problem, outcome: Outcome, rank: Rank, hope: float, budget: Budget) -> Outcome:
    """Return the best placement found from `outcome` on.

    Args:
        hope: seconds by which a move may make units and copies dearer and still be measured.
    """
    while True:
        better = _round(problem, outcome, rank, hope, budget)
        if better is outcome:
            return outcome
        outcome = better


def _round(problem: Problem, outcome: Outcome, rank: Rank, hope: float, budget: Budget) -> Outcome:
    """Measure the moves, the most promising first, and make those that pay."""
    done: set[int] = set()
    for units, target in promising(problem, outcome, hope, budget):
        if not done.isdisjoint(units):
            continue
        if not budget.spend(MEASURING * (len(problem.names) + len(problem.tensors))):
            break
        found = moved(problem, outcome, units, target)
        if rank(found) < rank(outcome):
            outcome = found
            done.update(units)
    return outcome


def moved(problem: Problem, outcome: Outcome, units: tuple[int, ...], target: int) -> Outcome:
    """The placement with some units elsewhere."""
    owners = list(outcome.owners)
    for unit in units:
        owners[unit] = target
    return evaluate(problem, owners)


def promising(problem: Problem, outcome: Outcome, hope: float, budget: Budget) -> list[_Move]:
    """Moves that make units and copies dearer by no more than is hoped for, the best first."""
    estimate = Estimate(problem, outcome)
    rated: list[tuple[float, int, tuple[int, ...], int]] = []
    for units, target in _moves(problem, outcome):
        change, looked_at = estimate.change(units, target)
        if change <= hope:
            rated.append((change, len(rated), units, target))
        if not budget.spend(looked_at):
            break
    rated.sort()
    return [(units, target) for _, _, units, target in rated]


def _moves(problem: Problem, outcome: Outcome) -> Iterator[_Move]:
    """Each partition to each other candidate; groups to theirs; single units where it may pay.

    That is to a neighbour's candidate or a faster one, or to any if memory is short.
    """
    owners, able = outcome.owners, problem.able
    for batch in outcome.batches:
        for target in range(len(problem.candidates)):
            units = tuple(u for u in batch.units if target in able[u])
            if units and target != batch.candidate:
                yield units, target
    for group in problem.groups:
        units = tuple(u for u in group.units if owners[u] != group.candidate)
        if len(units) > 1 and all(group.candidate in able[u] for u in units):
            yield units, group.candidate
    for unit, owner in enumerate(owners):
        if len(able[unit]) > 1:
            row = problem.costs[unit]
            near = {owners[other] for other in problem.makers[unit]}
            near.update(owners[other] for other in problem.users[unit])
            for target in able[unit]:
                likely = target in near or row[target] < row[owner] or outcome.overflow
                if target != owner and likely:
                    yield (unit,), target
