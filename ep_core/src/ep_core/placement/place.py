"""The way in: from a graph and the candidates' answers to partitions, with reasons.

What this room decides is data; providers are neither called nor known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ep_core.graph import Graph
from ep_core.placement.build import Offer, Wishes, build
from ep_core.placement.estimate import Estimate
from ep_core.placement.objective import Outcome, evaluate
from ep_core.placement.problem import Problem
from ep_core.placement.solve import Limits, Solution, keep_to, solve
from ep_core.types import HOST_MEMORY, MemoryInfo

__all__ = ["Note", "Placement", "PredictedCopy", "Strategy", "place"]

Strategy = Literal["cost", "greedy"]


@dataclass(frozen=True, slots=True)
class PredictedCopy:
    """A copy that a run will make; `nbytes` is assumed where `exact` is False."""

    value: str
    source: MemoryInfo
    target: MemoryInfo
    nbytes: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Note:
    """Why a node is where it is.

    Attributes:
        owner: position of its candidate; the number of candidates stands for the core.
        runner_up: the candidate to which moving the node's unit alone costs least, None if no
            other can run it.
        difference: seconds by which units and copies would then get dearer. Below 0 where fewer
            partitions outweigh it.
    """

    owner: int
    runner_up: int | None
    difference: float | None
    reason: str


@dataclass(frozen=True)
class Placement:
    """Where every node goes.

    Attributes:
        notes: by position of a node.
        partitions: candidate and positions of nodes, ascending; in execution order.
        copies: of one run.
        chosen, greedy: what this placement, and the greedy one, come to.
    """

    notes: Mapping[int, Note]
    partitions: tuple[tuple[int, tuple[int, ...]], ...]
    copies: tuple[PredictedCopy, ...]
    chosen: Outcome
    greedy: Outcome


def place(
    graph: Graph,
    live: Sequence[int],
    offers: Sequence[Offer],
    *,
    strategy: Strategy = "cost",
    wishes: Wishes | None = None,
    limits: Limits | None = None,
    direct: Iterable[tuple[MemoryInfo, MemoryInfo]] = (),
) -> Placement:
    """Decide where the live nodes of a graph run.

    Args:
        live: positions of the nodes to place, ascending.
        offers: in order of preference.
        strategy: `cost` looks for the least predicted time; `greedy` gives every node to the one
            that is preferred for it, else to the first that can run it. Both obey pins and limits.
        direct: pairs of device memories, source and target, with a way that avoids the host.

    Raises:
        PlacementError: nodes that nobody can run, or wishes that contradict each other or what
            the candidates can do.
    """
    wishes = wishes or Wishes()
    problem, units = build(graph, live, offers, wishes, direct)
    limits = limits or Limits()
    if strategy == "greedy":
        problem.check()
        classic = evaluate(problem, _first_choices(problem, units, wishes.prefer))
        keep_to(problem, limits, classic)
        solution = Solution(classic, classic, True)
    else:
        solution = solve(problem, limits)
    chosen = solution.chosen
    memories = list(dict.fromkeys([HOST_MEMORY, *(offer.memory for offer in offers)]))
    tensors = problem.tensors
    return Placement(
        notes=_notes(problem, units, solution),
        partitions=tuple(
            (batch.candidate, tuple(sorted(i for unit in batch.units for i in units[unit])))
            for batch in chosen.batches
        ),
        copies=tuple(
            PredictedCopy(
                value=tensors[position].name,
                source=memories[source],
                target=memories[target],
                nbytes=tensors[position].nbytes,
                exact=tensors[position].exact,
            )
            for position, source, target in chosen.copies
        ),
        chosen=chosen,
        greedy=solution.greedy,
    )


def _first_choices(
    problem: Problem, units: Sequence[tuple[int, ...]], prefer: Mapping[int, str]
) -> list[int]:
    """By unit the preferred candidate, if it can run the unit, else the first that can."""
    owners = []
    for unit, able in zip(units, problem.able, strict=True):
        wanted = {prefer[index] for index in unit if index in prefer}
        owners.append(next((c for c in able if problem.candidates[c] in wanted), able[0]))
    return owners


def _notes(
    problem: Problem, units: Sequence[tuple[int, ...]], solution: Solution
) -> dict[int, Note]:
    estimate = Estimate(problem, solution.chosen)
    classic = solution.chosen.owners == solution.greedy.owners
    notes = {}
    for unit, owner in enumerate(solution.chosen.owners):
        note = _note(problem, estimate, unit, owner, classic)
        notes.update(dict.fromkeys(units[unit], note))
    return notes


def _note(problem: Problem, estimate: Estimate, unit: int, owner: int, classic: bool) -> Note:
    others = [candidate for candidate in problem.able[unit] if candidate != owner]
    if not others:
        pinned = unit in problem.pinned
        return Note(owner, None, None, "pinned" if pinned else "no other can run it")
    changes = {candidate: estimate.change((unit,), candidate)[0] for candidate in others}
    runner_up = min(others, key=changes.__getitem__)
    costs = problem.costs[unit]
    fastest = min(problem.able[unit], key=costs.__getitem__)
    if costs[owner] == costs[fastest]:
        reason = "fastest"
    elif classic:
        reason = "first in the caller's order, and no better placement was found"
    elif changes[fastest] > 0:
        reason = f"copy cost: faster on {problem.candidates[fastest]}, copies would outweigh it"
    else:
        reason = f"fewer partitions than with {problem.candidates[fastest]}"
    return Note(owner, runner_up, changes[runner_up], reason)
