"""The way in: from a graph and the candidates' answers to partitions, with reasons.

What this room decides is data; providers are neither called nor known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from ep_core.graph import Graph
from ep_core.placement.build import Offer, Wishes, build
from ep_core.placement.estimate import Estimate
from ep_core.placement.memory import needs
from ep_core.placement.objective import Outcome
from ep_core.placement.problem import Problem
from ep_core.placement.rewrite import with_clones
from ep_core.placement.roofline import Sizes
from ep_core.placement.shares import node_shares, unit_seconds
from ep_core.placement.solve import Limits, Solution, first_choices, solve
from ep_core.types import HOST_MEMORY, MemoryInfo

__all__ = ["SHORT_OF_ROOM", "Note", "Placement", "PredictedCopy", "Strategy", "place"]

Strategy = Literal["cost", "greedy"]
SHORT_OF_ROOM = "memory budget of"
"""How a reason begins that is a lack of memory."""


@dataclass(frozen=True, slots=True)
class PredictedCopy:
    """A copy that a run will make; `nbytes` is assumed where `exact` is False."""

    value: str
    source: MemoryInfo
    target: MemoryInfo
    nbytes: int
    exact: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Note:
    """Why a node is where it is.

    Attributes:
        owner: position of its candidate; the number of candidates stands for the core.
        runner_up: the candidate to which moving the node's unit alone costs least, None if no
            other can run it.
        difference: seconds by which units and copies would then get dearer. Below 0 where fewer
            partitions outweigh it.
        seconds: what the node takes where it is; of a unit of several nodes its part.
        fused: names of the others that its candidate runs with it as one.
    """

    owner: int
    runner_up: int | None
    difference: float | None
    reason: str
    seconds: float = 0.0
    fused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """Where every node goes.

    Attributes:
        graph: with the copies of cheap nodes; the same as was given where there are none.
        origins: by position of a node in it, the position in the graph that was given.
        notes: by position of a node.
        partitions: candidate and positions of nodes, ascending; in execution order.
        partition_seconds: what each of them takes, its start included.
        copies: of one run.
        needs: bytes by memory that has a limit.
        chosen, greedy: what this placement, and the greedy one, come to.
    """

    graph: Graph
    origins: Sequence[int]
    notes: Mapping[int, Note]
    partitions: tuple[tuple[int, tuple[int, ...]], ...]
    partition_seconds: tuple[float, ...]
    copies: tuple[PredictedCopy, ...]
    needs: Mapping[MemoryInfo, int]
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
    room: Mapping[MemoryInfo, int] = MappingProxyType({}),
    lead: str | None = None,
) -> Placement:
    """Decide where the live nodes of a graph run.

    Args:
        live: positions of the nodes to place, ascending.
        offers: in order of preference.
        strategy: `cost` looks for the least predicted time; `greedy` gives every node to the one
            that is preferred for it, else to the first that can run it and has room. Both obey
            pins and limits.
        direct: pairs of device memories, source and target, with a way that avoids the host.
        room: bytes by device memory, where there is a limit.
        lead: a candidate that gets, whatever the strategy, all that it can run and that isn't
            preferred elsewhere; the rest goes to the first that can run it.

    Raises:
        PlacementError: nodes that nobody can run, or wishes that contradict each other or what
            the candidates can do.
    """
    wishes = wishes or Wishes()
    problem, units = build(graph, live, offers, wishes, direct, room)
    limits = limits or Limits()
    if lead is not None or strategy == "greedy":
        choices = _first_choices(problem, units, wishes.prefer, lead)
        solution = first_choices(problem, choices, limits)
    else:
        solution = solve(problem, limits)
    problem, chosen = solution.problem, solution.chosen
    memories = list(dict.fromkeys([HOST_MEMORY, *(offer.memory for offer in offers)]))
    tensors = problem.tensors
    new = with_clones(graph, units, problem, chosen.owners, solution.origins)
    taken = unit_seconds(problem, chosen)
    shares = node_shares(
        graph,
        offers,
        Sizes(graph, wishes.lengths),
        [*units, *(units[unit] for unit in solution.origins)],
        chosen.owners,
        taken,
    )
    needed = needs(problem, chosen.owners, chosen.batches, chosen.copies, problem.budgets)
    return Placement(
        graph=new.graph,
        origins=new.origins,
        notes={
            index: replace(note, seconds=seconds)
            for note, own, alone in zip(_notes(solution), new.units, shares, strict=True)
            for index, seconds in zip(own, alone, strict=True)
        },
        partitions=tuple(
            (batch.candidate, tuple(sorted(i for unit in batch.units for i in new.units[unit])))
            for batch in chosen.batches
        ),
        partition_seconds=tuple(
            problem.partition_seconds[batch.candidate] + sum(taken[unit] for unit in batch.units)
            for batch in chosen.batches
        ),
        copies=tuple(
            PredictedCopy(
                value=new.values[position],
                source=memories[source],
                target=memories[target],
                nbytes=tensors[position].nbytes,
                exact=tensors[position].exact,
                seconds=problem.routes[source, target].seconds(tensors[position].nbytes),
            )
            for position, source, target in chosen.copies
        ),
        needs={memories[memory]: sum(found) for memory, found in needed.items()},
        chosen=chosen,
        greedy=solution.greedy,
    )


def _first_choices(
    problem: Problem,
    units: Sequence[tuple[int, ...]],
    prefer: Mapping[int, str],
    lead: str | None = None,
) -> list[int]:
    """By unit the preferred candidate, else the lead, if it can run it, else the first that can."""
    owners = []
    for unit, able in zip(units, problem.able, strict=True):
        wished = {prefer[index] for index in unit if index in prefer}
        wanted: set[str | None] = {*wished} or {lead}
        owners.append(next((c for c in able if problem.candidates[c] in wanted), able[0]))
    return owners


def _notes(solution: Solution) -> list[Note]:
    """One per unit, those of clones last."""
    problem, chosen = solution.problem, solution.chosen
    estimate = Estimate(problem, chosen)
    classic = chosen.owners == solution.greedy.owners
    notes = [
        _note(problem, estimate, unit, owner, classic) for unit, owner in enumerate(chosen.owners)
    ]
    for position in chosen.fused:
        group = problem.groups[position].units
        for unit in group:
            others = tuple(problem.names[other] for other in group if other != unit)
            notes[unit] = replace(notes[unit], fused=others)
    first = len(notes) - len(solution.origins)
    for clone, unit in enumerate(solution.origins, first):
        why = f"a copy of {problem.names[unit]!r}, so that its result needn't be copied"
        notes[clone] = replace(notes[clone], reason=why)
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
    elif problem.memory_of[fastest] in problem.tight and changes[fastest] <= 0:
        reason = f"{SHORT_OF_ROOM} {problem.candidates[fastest]}"
    elif classic:
        reason = "first in the caller's order, and no better placement was found"
    elif changes[fastest] > 0:
        reason = f"copy cost: faster on {problem.candidates[fastest]}, copies would outweigh it"
    else:
        reason = f"fewer partitions than with {problem.candidates[fastest]}"
    return Note(owner, runner_up, changes[runner_up], reason)
