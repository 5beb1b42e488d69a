"""The solver: simple placements, cuts at several prices, local search; the best one wins.

The classic greedy placement is always among the candidates for the best, so that the answer is
never costlier under the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ep_core.errors import OptionError, PlacementError
from ep_core.placement.budget import Budget
from ep_core.placement.expansion import Prices, expand
from ep_core.placement.objective import Outcome, evaluate
from ep_core.placement.problem import IMPOSSIBLE, Problem
from ep_core.placement.search import improve

__all__ = ["Limits", "Solution", "greedy", "keep_to", "solve"]

_CROSSINGS = (1.0, 0.0, 0.5, 2.0)
"""Prices of a crossing that are tried, in starts of a partition: no single one fits every graph."""
_BASE_EFFORT = 100_000
_EFFORT = 40
"""Work allowed: so much for any problem, and so much for each unit and use of a tensor."""
_SEARCHED = 3
"""Placements that local search starts from."""
_HOPE = 3.0
"""Starts of a partition that one move may save, at most, for all that is known beforehand."""
_ROUNDS = 4
_RAISES = 8


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
        """What placements are compared by: limits, then cost, then fewer copies."""
        return sum(self.excess(outcome)), outcome.cost, len(outcome.copies)


@dataclass(frozen=True, slots=True)
class Solution:
    """The chosen placement, beside the greedy one.

    Attributes:
        simple: the chosen one is greedy, or one candidate wherever possible.
    """

    chosen: Outcome
    greedy: Outcome
    simple: bool


def greedy(problem: Problem) -> Outcome:
    """Every unit on the first candidate that can run it."""
    return evaluate(problem, [able[0] for able in problem.able])


def solve(problem: Problem, limits: Limits | None = None) -> Solution:
    """Place the units so that the predicted cost is low.

    Raises:
        PlacementError: a unit that nobody can run, units that depend on each other in a circle,
            or limits that no placement found keeps to.
    """
    problem.check()
    limits = limits or Limits()
    budget = Budget(_BASE_EFFORT + _EFFORT * _size(problem))
    classic = greedy(problem)
    found = [classic, *_singles(problem)]
    simple = min(found, key=limits.rank)
    if any(len(able) > 1 for able in problem.able):
        found += _cuts(problem, classic, simple, limits, budget)
        found = _searched(problem, found, limits, budget)
    best = min(found, key=limits.rank)
    keep_to(problem, limits, best)
    if not any(limits.excess(simple)) and simple.cost - best.cost <= limits.min_gain * simple.cost:
        best = simple
    return Solution(best, classic, best is simple)


def _singles(problem: Problem) -> Iterator[Outcome]:
    """One candidate wherever it can, the first that can elsewhere."""
    for candidate in range(1, len(problem.candidates)):
        if any(len(able) > 1 and candidate in able for able in problem.able):
            yield evaluate(
                problem, [candidate if candidate in able else able[0] for able in problem.able]
            )


def _cuts(
    problem: Problem, classic: Outcome, simple: Outcome, limits: Limits, budget: Budget
) -> list[Outcome]:
    starts = [s for c, s in enumerate(problem.partition_seconds) if c not in problem.solo]
    start = sum(starts) / len(starts)
    targets = sorted({c for able in problem.able if len(able) > 1 for c in able})
    origin = classic if len(targets) == 2 else simple
    factors = _CROSSINGS if start > 0 else (0.0,)
    found = []
    for factor in factors:
        if budget.left > 0:
            prices = Prices(crossing=factor * start)
            found.append(evaluate(problem, _expanded(problem, origin, targets, prices, budget)))
    price = max(start, classic.cost / 1000)
    for _ in range(_RAISES):
        copies, partitions = limits.excess(min(found, key=limits.rank))
        enough = budget.left <= 0 and not any(limits.excess(simple))
        if enough or not (copies or partitions):
            break
        prices = Prices(crossing=price if partitions else start, copy=price if copies else 0.0)
        found.append(evaluate(problem, _expanded(problem, origin, targets, prices, budget)))
        price *= 4
    return found


def _expanded(
    problem: Problem, origin: Outcome, targets: list[int], prices: Prices, budget: Budget
) -> list[int]:
    """Steps for each target in turn until a round gains nothing.

    For two targets one step is the whole answer, if every free unit starts on the first.
    """
    owners = list(origin.owners)
    if len(targets) == 2:
        return expand(problem, owners, targets[1], prices, budget)
    for _ in range(_ROUNDS):
        before = owners
        for target in targets:
            owners = expand(problem, owners, target, prices, budget)
        if owners == before or budget.left <= 0:
            break
    return owners


def _searched(
    problem: Problem, found: list[Outcome], limits: Limits, budget: Budget
) -> list[Outcome]:
    """Improve the best few; the rest stays out."""
    different = {outcome.owners: outcome for outcome in reversed(found)}
    best = sorted(different.values(), key=limits.rank)[:_SEARCHED]
    result = list(best)
    for outcome in best:
        violated = any(limits.excess(outcome))
        hope = math.inf if violated else _HOPE * max(problem.partition_seconds)
        result.append(improve(problem, outcome, limits.rank, hope, budget))
    return result


def keep_to(problem: Problem, limits: Limits, best: Outcome) -> None:
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
        f"{name}={limit} contradicts where nodes may run: {_apart(problem)}",
        got=f"{count} at the least, of the placements tried",
        fix=f"Raise {name}, or change the pins and providers.",
    )


def _apart(problem: Problem) -> str:
    """Two units that can't be together, or else a word on the memories."""
    bound: dict[int, int] = {}
    for unit, able in enumerate(problem.able):
        if len(able) == 1:
            bound.setdefault(able[0], unit)
    texts = []
    for candidate, unit in sorted(bound.items()):
        how = "is pinned to" if unit in problem.pinned else "can run only on"
        texts.append(f"{problem.names[unit]!r} {how} {problem.candidates[candidate]!r}")
    return ", ".join(texts) or "inputs and outputs are in host memory"


def _size(problem: Problem) -> int:
    return len(problem.names) + sum(1 + len(tensor.consumers) for tensor in problem.tensors)


def _or_endless(limit: int | None) -> float:
    return IMPOSSIBLE if limit is None else limit
