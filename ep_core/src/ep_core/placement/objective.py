"""What a placement costs: partitions, copies with bytes, seconds.

The one place that says so; the solver, the report and the tests ask here. Copies are those that
`running/planner.py` plans for the same partitions in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ep_core.placement.memory import needs
from ep_core.placement.problem import HOST, NO_UNIT, Move, Owners, Problem, Tensor
from ep_core.placement.schedule import Batch, schedule

__all__ = ["Outcome", "evaluate", "moves_of", "moves_to"]


_ByUnit = Sequence[int] | Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a placement comes to.

    Attributes:
        batches: partitions in execution order.
        partitions: how many of them there are, without those of solo candidates.
        order: by unit the position of its partition.
        copies: in the order of the tensors.
        fused: positions of the groups that are together.
        seconds: predicted for one run, nothing overlapping: units, copies, partition starts.
        cost: seconds and bias, what placements are compared by.
        overflow: bytes by which memories are too small, all together.
    """

    owners: tuple[int, ...]
    batches: tuple[Batch, ...]
    partitions: int
    order: Sequence[int]
    copies: tuple[Move, ...]
    fused: tuple[int, ...]
    compute_seconds: float
    copy_seconds: float
    seconds: float
    cost: float
    overflow: int = 0


def evaluate(problem: Problem, owners: Owners) -> Outcome:
    """Say what an assignment costs.

    Raises:
        PlacementError: units depend on each other in a circle.
    """
    batches = schedule(problem, owners)
    order = [0] * len(owners)
    for position, batch in enumerate(batches):
        for unit in batch.units:
            order[unit] = position
    moves = _moves(problem, owners, order)
    fused = _fused(problem, owners, order)
    compute = sum(row[owner] for row, owner in zip(problem.seconds, owners, strict=True))
    compute -= sum(problem.groups[position].saving for position in fused)
    bias = sum(row[owner] for row, owner in zip(problem.bias, owners, strict=False))
    copying = sum(
        problem.routes[source, target].seconds(problem.tensors[position].nbytes)
        for position, source, target in moves
    )
    starts = sum(problem.partition_seconds[batch.candidate] for batch in batches)
    seconds = compute + copying + starts
    return Outcome(
        owners=tuple(owners),
        batches=tuple(batches),
        partitions=sum(batch.candidate not in problem.solo for batch in batches),
        order=order,
        copies=tuple(moves),
        fused=fused,
        compute_seconds=compute,
        copy_seconds=copying,
        seconds=seconds,
        cost=seconds + bias,
        overflow=_overflow(problem, owners, batches, moves) if problem.tight else 0,
    )


def _fused(problem: Problem, owners: Owners, order: Sequence[int]) -> tuple[int, ...]:
    """The groups whose units are on their candidate and in one partition."""
    return tuple(
        position
        for position, group in enumerate(problem.groups)
        if all(owners[unit] == group.candidate for unit in group.units)
        and len({order[unit] for unit in group.units}) == 1
    )


def _overflow(
    problem: Problem, owners: Owners, batches: Sequence[Batch], moves: Sequence[Move]
) -> int:
    taken = needs(problem, owners, batches, moves, problem.tight)
    return sum(max(0, sum(taken[memory]) - room) for memory, room in problem.tight.items())


def _moves(problem: Problem, owners: Owners, order: Sequence[int]) -> list[Move]:
    place = [problem.memory_of[owner] for owner in owners]
    moves: list[Move] = []
    for position, tensor in enumerate(problem.tensors):
        home = HOST if tensor.producer == NO_UNIT else place[tensor.producer]
        if (home == HOST or not tensor.output) and all(place[u] == home for u in tensor.consumers):
            continue
        for source, target in moves_of(problem, tensor, home, place, order):
            moves.append((position, source, target))
    return moves


def moves_of(
    problem: Problem, tensor: Tensor, home: int, place: _ByUnit, order: _ByUnit
) -> list[tuple[int, int]]:
    """The copies of one tensor, each memory once, in the order in which it is needed there.

    Args:
        home: memory in which it is produced.
        place: by unit the memory of its candidate.
        order: by unit the position of its partition.
    """
    wanted = dict.fromkeys(place[u] for u in sorted(tensor.consumers, key=order.__getitem__))
    return moves_to(problem, home, wanted, output=tensor.output)


def moves_to(
    problem: Problem, home: int, wanted: dict[int, None], *, output: bool
) -> list[tuple[int, int]]:
    """The copies that bring a tensor from the memory it is made in to others.

    Args:
        wanted: memories in the order in which it is needed there; becomes this function's own.
        output: the caller gets it as well.
    """
    if output:
        wanted[HOST] = None
    present = [home]
    moves: list[tuple[int, int]] = []
    for target in wanted:
        if target in present:
            continue
        # Copies start from host memory if the tensor is there, else from the first candidate's.
        present.sort()
        source = next((s for s in present if (s, target) in problem.routes), None)
        if source is None:
            source = HOST
            moves.append((present[0], HOST))
            present.append(HOST)
        moves.append((source, target))
        present.append(target)
    return moves
