"""What a placement takes of each memory that has a limit: constants, and values while they live.

Predicted from the order of execution, with lengths that are assumed where they aren't known. Each
partition holds the constants that it reads, once. A value lives from the unit that makes it, or the
partition that first needs a copy of it, to the last unit that reads it there; one that passes
between partitions lives to the end of the last partition that reads it, and an output to the end of
the run. What an operator needs beside its inputs and outputs isn't known, nor what allocators round
up. Other sessions don't count.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ep_core.placement.problem import HOST, NO_UNIT, Move, Owners, Problem
from ep_core.placement.schedule import Batch

__all__ = ["needs"]


def needs(
    problem: Problem,
    owners: Owners,
    batches: Sequence[Batch],
    moves: Sequence[Move],
    memories: Collection[int],
) -> dict[int, tuple[int, int]]:
    """By memory the bytes of constants, and the most of values at any time.

    Args:
        memories: those that are asked for, without the host's.
    """
    clock = _Clock(problem, owners, batches)
    found = {}
    for memory in memories:
        constants = 0
        for weight in problem.weights:
            holders = {clock.order[u] for u in weight.consumers if clock.place[u] == memory}
            constants += weight.nbytes * len(holders)
        found[memory] = constants, _peak(problem, clock, moves, memory)
    return found


class _Clock:
    """When units run, by their place in one sequence.

    Attributes:
        place: by unit the memory of its candidate.
        order: by unit the position of its partition.
        time: by unit.
        first, last: by partition.
        end: after everything.
    """

    def __init__(self, problem: Problem, owners: Owners, batches: Sequence[Batch]) -> None:
        self.place = [problem.memory_of[owner] for owner in owners]
        self.order = [0] * len(owners)
        self.time = [0] * len(owners)
        self.first: list[int] = []
        self.last: list[int] = []
        self.end = 0
        for position, batch in enumerate(batches):
            self.first.append(self.end)
            for unit in batch.units:
                self.order[unit], self.time[unit] = position, self.end
                self.end += 1
            self.last.append(self.end - 1)


def _peak(problem: Problem, clock: _Clock, moves: Sequence[Move], memory: int) -> int:
    change = [0] * (clock.end + 2)
    leaving: dict[int, list[int]] = {}
    arriving = set()
    for position, source, target in moves:
        if source == memory:
            leaving.setdefault(position, []).append(target)
        elif target == memory:
            arriving.add(position)
    for position, tensor in enumerate(problem.tensors):
        here = tensor.producer != NO_UNIT and clock.place[tensor.producer] == memory
        if not here and position not in arriving:
            continue
        readers = [unit for unit in tensor.consumers if clock.place[unit] == memory]
        if here:
            start = clock.time[tensor.producer]
            own = clock.order[tensor.producer]
        else:
            own = -1
            start = clock.first[min(clock.order[unit] for unit in readers)]
        ends = [
            clock.time[u] if clock.order[u] == own else clock.last[clock.order[u]] for u in readers
        ]
        for target in leaving.get(position, ()):
            away = [clock.order[u] for u in tensor.consumers if clock.place[u] == target]
            if not away and target == HOST and not tensor.output:
                away = [clock.order[u] for u in tensor.consumers if clock.place[u] != memory]
            ends.append(clock.first[min(away)] if away else clock.end)
        end = max(ends, default=start)
        change[start] += tensor.nbytes
        change[end + 1] -= tensor.nbytes
    most = now = 0
    for amount in change:
        now += amount
        most = max(most, now)
    return most
