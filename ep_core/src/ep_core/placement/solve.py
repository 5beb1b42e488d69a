"""The solver: simple placements, cuts at several prices, local search; the best one wins.

The classic greedy placement is always among the candidates for the best, so that the answer is
never costlier under the model, unless greedy doesn't fit into a memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ep_core.errors import OptionError, PlacementError
from ep_core.placement.budget import Budget
from ep_core.placement.cloning import Cloned, cloned, relaxed
from ep_core.placement.expansion import Prices, expand
from ep_core.placement.fitting import check_room, roomy
from ep_core.placement.objective import Outcome, evaluate
from ep_core.placement.problem import IMPOSSIBLE, Problem
from ep_core.placement.search import MEASURING, improve, moved, promising

__all__ = ["Limits", "Solution", "first_choices", "greedy", "solve"]

_CROSSINGS = (1.0, 0.0, 0.5, 2.0)
"""Prices of a crossing that are tried, in starts of a partition: no single one fits every graph."""
_BASE_EFFORT = 100_000
_EFFORT = 40
"""Work allowed: so much for any problem, and so much for each unit and use of a tensor."""
_SEARCHED = 3
"""Placements that local search starts from."""
_CLONED = 2
"""Placements in which clones are looked for."""
_HOPE = 3.0
"""Starts of a partition that one move may save, at most, for all that is known beforehand."""
_ROUNDS = 4
_RAISES = 8
_ROOM_PRICES = (0.1, 0.3, 3.0, 30.0, 300.0)
"""Of all the room of a memory, in costs of a simple placement; raised until everything fits."""
_HALVINGS = 2
_JOINTS = 6
_FEW = 2000
"""Placements that are all looked at, where nothing else fits into memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a placement has to keep to.

    Attributes:
        max_copies, max_partitions: None for no limit.
        min_gain: the part of its cost that a simple placement (greedy, or one candidate wherever
            possible) has to lose before it is given up for a better one.

    Raises:
        OptionError: a number out of its range.
    """

    max_copies: int | None = None
    max_partitions: int | None = None
    min_gain: float = 0.0

    def __post_init__(self) -> None:
        for name, limit in (("copies", self.max_copies), ("partitions", self.max_partitions)):
            if limit is not None and limit < 0:
                raise OptionError(f"max_{name}", expected="0 or more, or None", got=limit)
        if not 0 <= self.min_gain <= 1:
            raise OptionError("min_gain", expected="a part, from 0 to 1", got=self.min_gain)

    def excess(self, outcome: Outcome) -> tuple[int, int]:
        """Copies and partitions beyond what is allowed."""
        copies = len(outcome.copies) - _or_endless(self.max_copies)
        partitions = outcome.partitions - _or_endless(self.max_partitions)
        return int(max(0, copies)), int(max(0, partitions))

    def rank(self, outcome: Outcome) -> tuple[float, ...]:
        """What placements are compared by: room, limits, then cost, then fewer copies."""
        return outcome.overflow, sum(self.excess(outcome)), outcome.cost, len(outcome.copies)


@dataclass(frozen=True, slots=True)
class Solution:
    """The chosen placement, beside the greedy one.

    Attributes:
        simple: the chosen one is greedy, or one candidate wherever possible.
        problem: the one that was solved, and with it the clones that the chosen placement has.
        origins: by clone the unit that it does the same as.
    """

    chosen: Outcome
    greedy: Outcome
    simple: bool
    problem: Problem
    origins: tuple[int, ...] = ()


def greedy(problem: Problem) -> Outcome:
    """Every unit on the first candidate that can run it."""
    return evaluate(problem, [able[0] for able in problem.able])


def solve(problem: Problem, limits: Limits | None = None) -> Solution:
    """Place the units so that the predicted cost is low.

    Raises:
        PlacementError: a unit that nobody can run, units that depend on each other in a circle,
            or memories or limits that no placement found keeps to.
    """
    problem.check()
    limits = limits or Limits()
    budget = Budget(_BASE_EFFORT + _EFFORT * _size(problem))
    classic = greedy(problem)
    found = [classic, *_singles(problem)]
    if problem.tight:
        found += roomy(problem, classic.owners)
    simple = min(found, key=limits.rank)
    if any(len(able) > 1 for able in problem.able):
        cutter = _Cutter(problem, classic, simple, budget)
        cuts = _cuts(cutter, limits, classic, simple)
        found = _searched(problem, [*found, *cuts], limits, budget)
        if min(found, key=limits.rank).overflow:
            found += _every(problem)
        found = sorted(found, key=limits.rank)
        if problem.clonable:
            del found[_CLONED:]
            cutter.problem = relaxed(problem)
            if budget.left > 0:
                cut = cutter.cut(Prices(crossing=cutter.start))
                found.append(evaluate(problem, cut.owners))
    best = _with_clones(problem, found, limits, budget)
    check_room(problem, best.outcome)
    _keep_to(problem, limits, best.outcome)
    kept = not simple.overflow and not any(limits.excess(simple))
    if kept and simple.cost - best.outcome.cost <= limits.min_gain * simple.cost:
        best = Cloned(problem, simple)
    return Solution(best.outcome, classic, best.outcome is simple, best.problem, best.origins)


def first_choices(problem: Problem, choices: Sequence[int], limits: Limits) -> Solution:
    """Every unit where it is chosen to be, as far as there is room.

    Raises:
        PlacementError: as `solve`.
    """
    problem.check()
    best = evaluate(problem, choices)
    if best.overflow:
        found = [best, *roomy(problem, choices)]
        best = found[-1] if not found[-1].overflow else min(found, key=limits.rank)
    if best.overflow:
        best = improve(problem, best, limits.rank, math.inf, Budget(_EFFORT * _size(problem)))
    if best.overflow:
        best = min([best, *_every(problem)], key=limits.rank)
    check_room(problem, best)
    _keep_to(problem, limits, best)
    return Solution(best, greedy(problem), True, problem)


def _with_clones(
    problem: Problem, found: Sequence[Outcome], limits: Limits, budget: Budget
) -> Cloned:
    """The best, with clones where that makes it better; then by moves that pay only with clones."""
    best = Cloned(problem, min(found, key=limits.rank))
    if not problem.clonable:
        return best
    base, free = best.outcome, relaxed(problem)
    for outcome in found:
        other = cloned(problem, outcome, _cost_to_beat(best.outcome, limits))
        if limits.rank(other.outcome) < limits.rank(best.outcome):
            best, base = other, outcome
    effort = 2 * MEASURING * (len(problem.names) + len(problem.tensors))
    waiting = promising(free, base, 0.0, budget)
    while waiting and budget.spend(effort):
        outcome = moved(problem, base, *waiting.pop(0))
        other = cloned(problem, outcome, _cost_to_beat(best.outcome, limits))
        if limits.rank(other.outcome) < limits.rank(best.outcome):
            best, base = other, outcome
            waiting = promising(free, base, 0.0, budget)
    return best


def _cost_to_beat(best: Outcome, limits: Limits) -> float:
    """Of a placement that takes the place of this one; any cost where this keeps to no limits."""
    return math.inf if best.overflow or any(limits.excess(best)) else best.cost


def _every(problem: Problem) -> Iterator[Outcome]:
    """All placements, if they are few."""
    if math.prod(map(len, problem.able)) <= _FEW:
        for owners in itertools.product(*problem.able):
            yield evaluate(problem, owners)


def _singles(problem: Problem) -> Iterator[Outcome]:
    """One candidate wherever it can, the first that can elsewhere."""
    for candidate in range(1, len(problem.candidates)):
        if any(len(able) > 1 and candidate in able for able in problem.able):
            yield evaluate(
                problem, [candidate if candidate in able else able[0] for able in problem.able]
            )


class _Cutter:
    """Makes placements by cuts.

    Attributes:
        start: what starting a partition takes, on average.
    """

    def __init__(self, problem: Problem, classic: Outcome, simple: Outcome, budget: Budget) -> None:
        starts = [s for c, s in enumerate(problem.partition_seconds) if c not in problem.solo]
        self.problem = problem
        self.budget = budget
        self.start = sum(starts) / len(starts)
        self._targets = sorted({c for able in problem.able if len(able) > 1 for c in able})
        self._origin = classic if len(self._targets) == 2 else simple

    def cut(
        self, prices: Prices, start: Outcome | None = None, first: Sequence[int] = ()
    ) -> Outcome:
        """Steps for each target in turn until none of them gains anything.

        For two targets one step is the whole answer, as every free unit starts on the first.

        Args:
            start: a placement to begin with where there are more, near to what is looked for.
            first: targets to begin with; without any effort left, those have to do.
        """
        problem, budget = self.problem, self.budget
        if len(self._targets) == 2:
            owners = expand(problem, self._origin.owners, self._targets[1], prices, budget)
            return evaluate(problem, owners)
        targets = [*first, *(t for t in self._targets if t not in first)]
        least = len(first) or len(targets)
        owners, idle = list((start or self._origin).owners), 0
        for step in range(_ROUNDS * len(targets)):
            if idle == len(targets) or (budget.left <= 0 and step and step % least == 0):
                break
            before = owners
            owners = expand(problem, owners, targets[step % len(targets)], prices, budget)
            idle = idle + 1 if owners == before else 0
        return evaluate(problem, owners)

    def fit(self, over: Outcome) -> Iterator[Outcome]:
        """Placements that fit, or nearly: cuts with a price of room, and what lies between two.

        Args:
            over: a placement that doesn't fit.
        """
        low = high = 0.0
        for high in _ROOM_PRICES:
            fitting = self._priced(high, over)
            yield fitting
            if not fitting.overflow:
                break
            over, low = fitting, high
        if low == high:
            return
        for halving in range(_HALVINGS):
            if halving and self.budget.left <= 0:
                break
            middle = math.sqrt(low * high) if low else high / 16
            found = self._priced(middle, over)
            yield found
            if found.overflow:
                over, low = found, middle
            else:
                fitting, high = found, middle
        yield from self._joined(over, fitting)

    def _joined(self, over: Outcome, fitting: Outcome) -> Iterator[Outcome]:
        """The first units as in one placement and the rest as in the other, as far as it fits."""
        low, high = 0, len(self.problem.order)
        for _ in range(_JOINTS):
            middle = (low + high) // 2
            owners = list(fitting.owners)
            for unit in self.problem.order[:middle]:
                owners[unit] = over.owners[unit]
            found = evaluate(self.problem, owners)
            yield found
            low, high = (low, middle) if found.overflow else (middle, high)

    def _priced(self, factor: float, over: Outcome) -> Outcome:
        """Cut where all the room of a memory costs so many times what the origin does.

        Args:
            over: a placement that takes more room; what has to leave goes where there is no limit.
        """
        total = factor * (self._origin.cost or 1.0)
        tight, place = self.problem.tight, self.problem.memory_of
        memory = {m: total / max(1, room) for m, room in tight.items()}
        spare = [target for target in self._targets if place[target] not in tight]
        return self.cut(Prices(crossing=self.start, memory=memory), over, spare)


def _cuts(cutter: _Cutter, limits: Limits, classic: Outcome, simple: Outcome) -> list[Outcome]:
    start, budget = cutter.start, cutter.budget
    factors = _CROSSINGS if start > 0 else (0.0,)
    found = []
    for factor in factors:
        if budget.left > 0:
            found.append(cutter.cut(Prices(crossing=factor * start)))
            if found[-1].overflow and len(found) == 1:
                found += cutter.fit(found[-1])
    price = max(start, classic.cost / 1000)
    for _ in range(_RAISES):
        copies, partitions = limits.excess(min(found, key=limits.rank))
        enough = budget.left <= 0 and not any(limits.excess(simple))
        if enough or not (copies or partitions):
            break
        prices = Prices(crossing=price if partitions else start, copy=price if copies else 0.0)
        found.append(cutter.cut(prices))
        price *= 4
    return found


def _searched(
    problem: Problem, found: list[Outcome], limits: Limits, budget: Budget
) -> list[Outcome]:
    """Improve the best few, and more as long as nothing fits into memory; the rest stays out."""
    different = {outcome.owners: outcome for outcome in reversed(found)}
    best = sorted(different.values(), key=limits.rank)
    result = best[:_SEARCHED]
    for position, outcome in enumerate(best):
        if position >= _SEARCHED and not min(result, key=limits.rank).overflow:
            break
        violated = outcome.overflow or any(limits.excess(outcome))
        hope = math.inf if violated else _HOPE * max(problem.partition_seconds)
        result.append(improve(problem, outcome, limits.rank, hope, budget))
    return result


def _keep_to(problem: Problem, limits: Limits, best: Outcome) -> None:
    """Raise PlacementError if a placement exceeds the limits; names what stands against them."""
    copies, partitions = limits.excess(best)
    if not copies and not partitions:
        return
    name, limit, count = (
        ("max_copies", limits.max_copies, len(best.copies))
        if copies
        else ("max_partitions", limits.max_partitions, best.partitions)
    )
    raise PlacementError(
        f"{name}={limit} contradicts where nodes may run: {_apart(problem, name)}",
        got=f"{count} at the least, of the placements tried",
        fix=f"Raise {name}, or change the pins and providers.",
    )


def _apart(problem: Problem, name: str) -> str:
    """Two units that can't be together, or else a word on what there is at the least."""
    counted = name == "max_copies"  # what the core runs is in no partition
    bound: dict[int, int] = {}
    for unit, able in enumerate(problem.able):
        if len(able) == 1 and (counted or able[0] not in problem.solo):
            bound.setdefault(able[0], unit)
    texts = []
    for candidate, unit in sorted(bound.items()):
        how = "is pinned to" if unit in problem.pinned else "can run only on"
        texts.append(f"{problem.names[unit]!r} {how} {problem.candidates[candidate]!r}")
    if texts:
        return ", ".join(texts)
    return "inputs and outputs are in host memory" if counted else "each is in a partition"


def _size(problem: Problem) -> int:
    return len(problem.names) + sum(1 + len(tensor.consumers) for tensor in problem.tensors)


def _or_endless(limit: int | None) -> float:
    return IMPOSSIBLE if limit is None else limit
