"""Cheap producers run a second time where their result is read, if that spares a copy of it.

Given a placement, each producer that may be cloned is looked at once for each memory that its
result is copied to. Producers that may be cloned come along if what they make isn't there yet;
anything else that is lacking there is copied. Where nobody reads the first one any more, it moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ep_core.placement.objective import Outcome, evaluate, moves_of
from ep_core.placement.problem import HOST, IMPOSSIBLE, NO_UNIT, Problem, Tensor

__all__ = ["Cloned", "cloned"]

_MOST_ALONG = 8
"""Units of one chain."""


@dataclass(frozen=True, slots=True)
class Cloned:
    """A placement with clones.

    Attributes:
        problem: the one that was given, with the clones as its last units, which can run nowhere
            else, and their results as its last tensors.
        origins: by clone the unit that it does the same as.
    """

    problem: Problem
    outcome: Outcome
    origins: tuple[int, ...] = ()


def cloned(problem: Problem, outcome: Outcome, cost: float = math.inf) -> Cloned:
    """Return the placement with the clones that pay, as far as units and copies are concerned.

    Args:
        cost: of a placement to be better than; without a hope of that none are looked for.
    """
    copies: dict[int, float] = {}
    for position, source, target in outcome.copies:
        tensor = problem.tensors[position]
        if tensor.producer in problem.clonable:
            seconds = problem.routes[source, target].seconds(tensor.nbytes)
            copies[tensor.producer] = copies.get(tensor.producer, 0.0) + seconds
    if not copies or outcome.cost - sum(copies.values()) >= cost:
        return Cloned(problem, outcome)
    cloner = _Cloner(problem, outcome)
    for unit in problem.order:
        if unit in copies:
            cloner.look_at(unit)
    return cloner.finish()


@dataclass
class _Draft:
    """A placement that clones are added to.

    Attributes:
        place: by unit the memory that it is in.
        versions: by tensor and memory, the position of what a clone makes of it there.
    """

    owners: list[int]
    place: list[int]
    order: list[int]
    tensors: list[Tensor]
    origins: list[int]
    versions: dict[tuple[int, int], int]

    def copy(self) -> _Draft:
        return _Draft(
            list(self.owners),
            list(self.place),
            list(self.order),
            list(self.tensors),
            list(self.origins),
            dict(self.versions),
        )

    def home(self, tensor: Tensor) -> int:
        """The memory that a tensor is made in."""
        return HOST if tensor.producer == NO_UNIT else self.place[tensor.producer]

    def change(self, position: int, users: Iterable[int]) -> None:
        """Give a tensor other readers."""
        changed = replace(self.tensors[position], consumers=tuple(sorted(users)))
        self.tensors[position] = changed


class _Cloner:
    """Tries clones and moves one after the other and keeps those that pay."""

    def __init__(self, problem: Problem, outcome: Outcome) -> None:
        self._problem = problem
        self._draft = _Draft(
            owners=list(outcome.owners),
            place=[problem.memory_of[owner] for owner in outcome.owners],
            order=list(outcome.order),
            tensors=list(problem.tensors),
            origins=[],
            versions={},
        )
        self._made = {t.producer: at for at, t in enumerate(problem.tensors)}
        self._rank = {unit: at for at, unit in enumerate(problem.order)}

    def look_at(self, unit: int) -> None:
        """Clone or move a unit to each memory that its result is copied to, where that pays."""
        made = self._made[unit]
        for memory in dict.fromkeys(self._draft.place[u] for u in self._problem.users[unit]):
            draft = self._draft
            readers = [u for u in draft.tensors[made].consumers if draft.place[u] == memory]
            owners = dict.fromkeys(draft.owners[reader] for reader in readers)
            able = [c for c in owners if c in self._problem.able[unit]]
            if memory != draft.place[unit] and able:
                target = min(able, key=self._problem.costs[unit].__getitem__)
                chain = self._chain(unit, target)
                if not self._pays(chain, target, readers) and len(chain) > 1:
                    self._pays([unit], target, readers)

    def finish(self) -> Cloned:
        """The problem with the clones, and what it comes to."""
        problem, draft = self._problem, self._draft
        clones = list(zip(draft.origins, draft.owners[len(problem.names) :], strict=True))
        if clones:
            problem = replace(
                problem,
                names=[*problem.names, *(problem.names[unit] for unit, _ in clones)],
                seconds=[*problem.seconds, *(_only(problem.seconds[u], c) for u, c in clones)],
                bias=problem.bias and [*problem.bias, *(problem.bias[u] for u, _ in clones)],
                tensors=draft.tensors,
            )
        return Cloned(problem, evaluate(problem, draft.owners), tuple(draft.origins))

    # ------------------------------------------------------------ one chain

    def _pays(self, chain: Sequence[int], target: int, readers: Sequence[int]) -> bool:
        """Bring a chain to a candidate, unless that makes units and copies dearer."""
        before, after = self._draft, self._draft.copy()
        self._bring(after, chain, target, readers)
        touched = {position for unit in chain for position in self._problem.touching[unit]}
        memory = self._problem.memory_of[target]
        touched |= {before.versions.get((position, memory), position) for position in touched}
        new = range(len(before.tensors), len(after.tensors))
        change = self._copying(after, [*touched, *new]) - self._copying(before, touched)
        costs = self._problem.costs
        for unit in chain:
            moved = after.owners[unit] != before.owners[unit]
            change += costs[unit][target] - (costs[unit][before.owners[unit]] if moved else 0.0)
        if change >= 0:
            return False
        self._draft = after
        return True

    def _chain(self, unit: int, target: int) -> list[int]:
        """The unit and what can come along of what it lacks there, users before makers."""
        draft, memory = self._draft, self._problem.memory_of[target]
        chain = [unit]
        for member in chain:
            for position in self._reads(member):
                tensor = draft.tensors[position]
                maker = tensor.producer
                there = (position, memory) in draft.versions or (tensor.output and memory == HOST)
                there |= memory in (draft.home(tensor), *(draft.place[u] for u in tensor.consumers))
                able = maker in self._problem.clonable and target in self._problem.able[maker]
                if able and not there and maker not in chain and len(chain) < _MOST_ALONG:
                    chain.append(maker)
        return sorted(chain, key=self._rank.__getitem__, reverse=True)

    def _reads(self, unit: int) -> list[int]:
        return [at for at in self._problem.touching[unit] if at != self._made.get(unit)]

    def _bring(
        self, draft: _Draft, chain: Sequence[int], target: int, readers: Sequence[int]
    ) -> None:
        """Clone each unit of a chain for those that are to read it there, or move it if it can."""
        memory = self._problem.memory_of[target]
        takers: dict[int, list[int]] = {self._made[chain[0]]: list(readers)}
        for member in chain:
            position = self._made[member]
            tensor, wanted = draft.tensors[position], takers[position]
            left = [user for user in tensor.consumers if user not in wanted]
            unit = member
            if left or (tensor.output and memory != HOST):
                unit = len(draft.owners)
                draft.origins.append(member)
                draft.owners.append(target)
                draft.place.append(memory)
                draft.order.append(min(draft.order[user] for user in wanted))
                draft.versions[position, memory] = len(draft.tensors)
                draft.tensors.append(replace(tensor, producer=unit, output=False))
                draft.change(position, left)
                draft.change(-1, wanted)
            else:
                draft.owners[member], draft.place[member] = target, memory
                draft.change(position, wanted)
            for read in self._reads(member):
                if draft.tensors[read].producer in chain:
                    takers.setdefault(read, []).append(unit)
                    continue
                found = draft.versions.get((read, memory), read)
                if unit == member:
                    draft.change(read, [u for u in draft.tensors[read].consumers if u != member])
                draft.change(found, [*draft.tensors[found].consumers, unit])

    def _copying(self, draft: _Draft, positions: Iterable[int]) -> float:
        problem, total = self._problem, 0.0
        for position in sorted(positions):
            tensor = draft.tensors[position]
            moves = moves_of(problem, tensor, draft.home(tensor), draft.place, draft.order)
            total += sum(problem.routes[move].seconds(tensor.nbytes) for move in moves)
        return total


def _only(row: Sequence[float], candidate: int) -> tuple[float, ...]:
    return tuple(cost if at == candidate else IMPOSSIBLE for at, cost in enumerate(row))
