"""What a placement takes of each memory that has a limit: constants, and values while they live.

Predicted from the order of execution, with lengths that are assumed where they aren't known. Each
partition holds the constants that it reads, once. A value lives from the unit that makes it, or the
partition that first needs a copy of it, to the last unit that reads it there; one that passes
between partitions lives to the end of the last partition that reads it, and an output to the end of
the run. Where a device works while the host goes on, copies start before that, and memory goes back
after it, as plans have it. What an operator needs beside its inputs and outputs isn't known, nor
what allocators round up. Other sessions don't count.
"""

from __future__ import annotations

import bisect
import itertools
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
        first, last: by partition; behind the last one, the end of the run.
    """

    def __init__(self, problem: Problem, owners: Owners, batches: Sequence[Batch]) -> None:
        self.place = [problem.memory_of[owner] for owner in owners]
        self.order = [0] * len(owners)
        self.time = [0] * len(owners)
        self.first: list[int] = []
        self.last: list[int] = []
        now = 0
        for position, batch in enumerate(batches):
            self.first.append(now)
            for unit in batch.units:
                self.order[unit], self.time[unit] = position, now
                now += 1
            self.last.append(now - 1)
        self.first.append(now)
        self.last.append(now)


class _Waits:
    """What the core does while a device works: copies start early, and memory goes back late.

    A copy into the device starts as soon as the last partition on any device before has begun;
    what others than the maker use goes back when the host next waits for the device.
    """

    def __init__(self, problem: Problem, clock: _Clock, count: int, memory: int) -> None:
        self._working = [0] * count
        known = [-1] * (count + 1)
        known[count] = count
        on_host = [False] * count
        for unit, position in enumerate(clock.order):
            on_host[position] = clock.place[unit] == HOST
        for position in range(1, count):
            before = position - 1
            self._working[position] = self._working[before] if on_host[before] else before + 1
        for tensor in problem.tensors:
            if tensor.producer != NO_UNIT and clock.place[tensor.producer] == memory:
                made = clock.order[tensor.producer]
                for user in tensor.consumers:
                    at = clock.order[user]
                    if on_host[at]:
                        known[at] = max(known[at], made)
        self._known = list(itertools.accumulate(known, max))

    def start(self, wanted: int, made: int) -> int:
        """The partition before which a copy starts that one wants, of what another has made."""
        return min(wanted, max(self._working[wanted], made + 1))

    def end(self, used: int) -> int:
        """The partition before which memory goes back that one has used last."""
        return bisect.bisect_left(self._known, used)


def _peak(problem: Problem, clock: _Clock, moves: Sequence[Move], memory: int) -> int:
    count = len(clock.first) - 1
    waits = _Waits(problem, clock, count, memory) if memory in problem.patient else None
    leaving: dict[int, list[int]] = {}
    arriving = set()
    for position, source, target in moves:
        if source == memory:
            leaving.setdefault(position, []).append(target)
        elif target == memory:
            arriving.add(position)
    place, order, time = clock.place, clock.order, clock.time
    change = [0] * (clock.first[count] + 2)
    for position, tensor in enumerate(problem.tensors):
        maker = tensor.producer
        made = -1 if maker == NO_UNIT else order[maker]
        here = made >= 0 and place[maker] == memory
        if not here and position not in arriving:
            continue
        wanted, last, end = count, made, time[maker] if here else -1
        for unit in tensor.consumers:
            if place[unit] == memory:
                at = order[unit]
                wanted = min(wanted, at)
                last = max(last, at)
                end = max(end, time[unit])
        start = time[maker] if here else clock.first[waits.start(wanted, made) if waits else wanted]
        for target in leaving.get(position, ()):
            away = [order[unit] for unit in tensor.consumers if place[unit] == target]
            if not away and target == HOST and not tensor.output:
                away = [order[unit] for unit in tensor.consumers if place[unit] != memory]
            last = max(last, min(away, default=count))
        if not here or last > made:
            end = max(clock.last[last], clock.first[waits.end(last)] if waits else 0)
        change[start] += tensor.nbytes
        change[end + 1] -= tensor.nbytes
    return max(itertools.accumulate(change))
