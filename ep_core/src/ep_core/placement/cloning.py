"""Cheap producers run a second time where their result is read, if that spares a copy of it.

Given a placement, each producer that may be cloned is looked at once for each memory that its
result is copied to. Producers that may be cloned come along if what they make isn't there yet;
anything else that is lacking there is copied. Where nobody reads the first one any more, it moves.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ep_core.placement.objective import Outcome, evaluate, moves_of
from ep_core.placement.problem import HOST, IMPOSSIBLE, NO_UNIT, Problem, Tensor

__all__ = ["Cloned", "cloned", "relaxed"]

_MOST_ALONG = 8
"""Units of one chain."""
_Item = TypeVar("_Item")


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


def relaxed(problem: Problem) -> Problem:
    """The problem as if clones cost nothing: what clonable units make is where it is read."""
    return replace(
        problem,
        tensors=[
            replace(tensor, consumers=()) if tensor.producer in problem.clonable else tensor
            for tensor in problem.tensors
        ],
    )


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


class _Over(dict[int, _Item]):
    """A list with changes that aren't made yet: what was not changed is as the list has it."""

    def __init__(self, values: list[_Item]) -> None:
        super().__init__()
        self._values = values
        self.size = len(values)

    def __missing__(self, at: int) -> _Item:
        return self._values[at]

    def add(self, value: _Item) -> int:
        """Append an item and return its position."""
        self[self.size] = value
        self.size += 1
        return self.size - 1

    def make(self) -> None:
        """Make the changes."""
        self._values += [value for at, value in self.items() if at >= len(self._values)]
        for at, value in self.items():
            self._values[at] = value


@dataclass
class _Draft:
    """A placement while one chain is tried.

    Attributes:
        place: by unit the memory that it is in.
        versions: by tensor and memory, the position of what a clone makes of it there.
        origins: of the clones of this chain.
    """

    owners: _Over[int]
    place: _Over[int]
    order: _Over[int]
    tensors: _Over[Tensor]
    versions: ChainMap[tuple[int, int], int]
    origins: list[int] = field(default_factory=list)

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
        self._owners = list(outcome.owners)
        self._place = [problem.memory_of[owner] for owner in outcome.owners]
        self._order = list(outcome.order)
        self._tensors = list(problem.tensors)
        self._versions: dict[tuple[int, int], int] = {}
        self._origins: list[int] = []
        self._made = {t.producer: at for at, t in enumerate(problem.tensors)}
        self._rank = {unit: at for at, unit in enumerate(problem.order)}

    def _draft(self) -> _Draft:
        return _Draft(
            owners=_Over(self._owners),
            place=_Over(self._place),
            order=_Over(self._order),
            tensors=_Over(self._tensors),
            versions=ChainMap({}, self._versions),
        )

    def look_at(self, unit: int) -> None:
        """Clone or move a unit to each memory that its result is copied to, where that pays."""
        made = self._made[unit]
        for memory in dict.fromkeys(self._place[user] for user in self._problem.users[unit]):
            readers = [u for u in self._tensors[made].consumers if self._place[u] == memory]
            owners = dict.fromkeys(self._owners[reader] for reader in readers)
            able = [c for c in owners if c in self._problem.able[unit]]
            if memory != self._place[unit] and able:
                target = min(able, key=self._problem.costs[unit].__getitem__)
                chain = self._chain(unit, target)
                if not self._pays(chain, target, readers) and len(chain) > 1:
                    self._pays([unit], target, readers)

    def finish(self) -> Cloned:
        """The problem with the clones, and what it comes to."""
        problem = self._problem
        clones = list(zip(self._origins, self._owners[len(problem.names) :], strict=True))
        if clones:
            again: dict[int, list[int]] = {}
            for clone, unit in enumerate(self._origins, len(problem.names)):
                again.setdefault(unit, []).append(clone)
            problem = replace(
                problem,
                names=[*problem.names, *(problem.names[unit] for unit, _ in clones)],
                seconds=[*problem.seconds, *(_only(problem.seconds[u], c) for u, c in clones)],
                bias=problem.bias and [*problem.bias, *(problem.bias[u] for u, _ in clones)],
                tensors=self._tensors,
                weights=[_read_again(weight, again) for weight in problem.weights],
            )
        return Cloned(problem, evaluate(problem, self._owners), tuple(self._origins))

    # ------------------------------------------------------------ one chain

    def _pays(self, chain: Sequence[int], target: int, readers: Sequence[int]) -> bool:
        """Bring a chain to a candidate, unless that makes units and copies dearer."""
        before, after = self._draft(), self._draft()
        self._bring(after, chain, target, readers)
        touched = {position for unit in chain for position in self._problem.touching[unit]}
        memory = self._problem.memory_of[target]
        touched |= {before.versions.get((position, memory), position) for position in touched}
        new = range(before.tensors.size, after.tensors.size)
        change = self._copying(after, [*touched, *new]) - self._copying(before, touched)
        costs = self._problem.costs
        for unit in chain:
            moved = after.owners[unit] != before.owners[unit]
            change += costs[unit][target] - (costs[unit][before.owners[unit]] if moved else 0.0)
        if change >= 0:
            return False
        for values in (after.owners, after.place, after.order):
            values.make()
        after.tensors.make()
        self._versions.update(after.versions.maps[0])
        self._origins += after.origins
        return True

    def _chain(self, unit: int, target: int) -> list[int]:
        """The unit and what can come along of what it lacks there, users before makers."""
        draft, memory = self._draft(), self._problem.memory_of[target]
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
                unit = draft.owners.add(target)
                draft.origins.append(member)
                draft.place.add(memory)
                draft.order.add(min(draft.order[user] for user in wanted))
                made = draft.tensors.add(replace(tensor, producer=unit, output=False))
                draft.versions[position, memory] = made
                draft.change(position, left)
                draft.change(made, wanted)
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


def _read_again(weight: Tensor, clones: Mapping[int, Sequence[int]]) -> Tensor:
    """A constant that is read by the clones of its readers too."""
    more = [clone for unit in weight.consumers for clone in clones.get(unit, ())]
    return replace(weight, consumers=(*weight.consumers, *more))


def _only(row: Sequence[float], candidate: int) -> tuple[float, ...]:
    return tuple(cost if at == candidate else IMPOSSIBLE for at, cost in enumerate(row))
