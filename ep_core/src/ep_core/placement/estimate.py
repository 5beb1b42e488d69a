"""What a move changes in units and copies, found without looking at the whole placement."""

from __future__ import annotations

from ep_core.placement.objective import Outcome, moves_of
from ep_core.placement.problem import HOST, NO_UNIT, Problem

__all__ = ["Estimate"]


class Estimate:
    """Changes to one placement, if its partitions keep their order."""

    def __init__(self, problem: Problem, outcome: Outcome) -> None:
        self._problem = problem
        self._owners = outcome.owners
        self._place = [problem.memory_of[owner] for owner in outcome.owners]
        self._order = outcome.order
        self._fused = frozenset(outcome.fused)

    def change(self, units: tuple[int, ...], target: int) -> tuple[float, int]:
        """By how many seconds it gets dearer; and how much was looked at."""
        costs, owners, place = self._problem.costs, self._owners, self._place
        change = sum(costs[unit][target] - costs[unit][owners[unit]] for unit in units)
        if self._problem.groups:
            change += self._separating(units, target)
        memory = self._problem.memory_of[target]
        kept = [place[unit] for unit in units]
        if all(old == memory for old in kept):
            return change, len(units)
        touched = dict.fromkeys(t for unit in units for t in self._problem.touching[unit])
        change -= self._copying(touched)
        for unit in units:
            place[unit] = memory
        change += self._copying(touched)
        for unit, old in zip(units, kept, strict=True):
            place[unit] = old
        return change, len(units) + 2 * len(touched)

    def _separating(self, units: tuple[int, ...], target: int) -> float:
        """What groups save less, if those that come together share a partition."""
        problem, owners = self._problem, self._owners
        total = 0.0
        touched = dict.fromkeys(p for unit in units for p in problem.groups_of.get(unit, ()))
        for position in touched:
            group = problem.groups[position]
            if position in self._fused:
                total += group.saving if group.candidate != target else 0.0
            elif group.candidate == target:
                away = [u for u in group.units if owners[u] != target]
                total -= group.saving if away and set(away) <= set(units) else 0.0
        return total

    def _copying(self, tensors: dict[int, None]) -> float:
        problem, place = self._problem, self._place
        total = 0.0
        for position in tensors:
            tensor = problem.tensors[position]
            home = HOST if tensor.producer == NO_UNIT else place[tensor.producer]
            for source, target in moves_of(problem, tensor, home, place, self._order):
                total += problem.routes[source, target].seconds(tensor.nbytes)
        return total
