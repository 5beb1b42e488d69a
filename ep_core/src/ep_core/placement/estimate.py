"""What a move changes in units and copies, found without looking at the whole placement."""

from __future__ import annotations

from ep_core.placement.objective import Outcome, moves_to
from ep_core.placement.problem import HOST, NO_UNIT, Problem

__all__ = ["Estimate"]

_Turn = tuple[int, int]
"""When a unit runs: the position of its partition, and its own number."""


class Estimate:
    """Changes to one placement, if its partitions keep their order."""

    def __init__(self, problem: Problem, outcome: Outcome) -> None:
        self._problem = problem
        self._owners = outcome.owners
        self._place = [problem.memory_of[owner] for owner in outcome.owners]
        self._order = outcome.order
        self._fused = frozenset(outcome.fused)
        self._readers: dict[int, dict[int, list[_Turn]]] = {}

    def change(self, units: tuple[int, ...], target: int) -> tuple[float, int]:
        """By how many seconds it gets dearer; and how much was looked at."""
        costs, owners, place = self._problem.costs, self._owners, self._place
        change = sum(costs[unit][target] - costs[unit][owners[unit]] for unit in units)
        if self._problem.groups:
            change += self._separating(units, target)
        memory = self._problem.memory_of[target]
        if all(place[unit] == memory for unit in units):
            return change, len(units)
        moved = frozenset(units)
        first: dict[int, _Turn | None] = {}  # by tensor the first unit that moves and reads it
        for turn in sorted((self._order[unit], unit) for unit in units):
            for position in self._problem.touching[turn[1]]:
                reads = self._problem.tensors[position].producer != turn[1]
                if first.get(position) is None:
                    first[position] = turn if reads else None
        for position, turn_there in first.items():
            change -= self._copying(position, frozenset(), None, memory)
            change += self._copying(position, moved, turn_there, memory)
        return change, len(units) + 2 * len(first)

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

    def _copying(
        self, position: int, moved: frozenset[int], arrival: _Turn | None, memory: int
    ) -> float:
        """Seconds of a tensor's copies where some units have moved to a memory.

        A tensor may have thousands of readers, which aren't looked at one by one for each move.

        Args:
            arrival: the first reader among those that moved.
        """
        problem, tensor = self._problem, self._problem.tensors[position]
        maker = tensor.producer
        home = HOST if maker == NO_UNIT else memory if maker in moved else self._place[maker]
        turns = [] if arrival is None else [(arrival, memory)]
        for there, readers in self._readers_of(position).items():
            turn = next((turn for turn in readers if turn[1] not in moved), None)
            if turn is not None:
                turns.append((turn, there))
        wanted = dict.fromkeys(there for _, there in sorted(turns))
        return sum(
            problem.routes[pair].seconds(tensor.nbytes)
            for pair in moves_to(problem, home, wanted, output=tensor.output)
        )

    def _readers_of(self, position: int) -> dict[int, list[_Turn]]:
        """A tensor's readers by memory, in the order in which they run."""
        found = self._readers.get(position)
        if found is None:
            found = self._readers[position] = {}
            order = self._order
            for unit in sorted(self._problem.tensors[position].consumers, key=order.__getitem__):
                found.setdefault(self._place[unit], []).append((order[unit], unit))
        return found
