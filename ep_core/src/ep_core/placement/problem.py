"""A placement problem as plain data: units, tensors, memories, seconds.

Everything the solver knows stands here. No graph, provider or option enters: `build.py` makes a
problem from a graph, and tests make one from random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ep_core.errors import PlacementError

__all__ = [
    "HOST",
    "IMPOSSIBLE",
    "LONGEST",
    "NO_UNIT",
    "Group",
    "Move",
    "Owners",
    "Problem",
    "Route",
    "Tensor",
]

HOST = 0
"""Position of plain host memory among the memories of a problem."""
NO_UNIT = -1
"""Stands where a producer would, for what the caller feeds."""
IMPOSSIBLE = math.inf
"""The cost of a unit on a candidate that can't run it."""
LONGEST = 1e9
"""Seconds that count for whatever takes longer, so that sums stay finite: thirty years."""

Owners = Sequence[int]
"""An assignment: by unit the position of the candidate that runs it."""
Move = tuple[int, int, int]
"""One copy: position of the tensor, source memory, target memory."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value that may have to be copied; constants aren't listed, for they are free everywhere.

    Attributes:
        nbytes: what a copy moves.
        producer: a unit, or NO_UNIT for a graph input.
        consumers: units that read it, ascending, without repeats and without the producer.
        output: the caller gets it, so that it ends in host memory.
        exact: `nbytes` follows from a static shape; otherwise it is assumed.
    """

    name: str
    nbytes: int
    producer: int
    consumers: tuple[int, ...]
    output: bool = False
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """What a copy between two memories takes."""

    latency_seconds: float
    bytes_per_second: float

    def seconds(self, nbytes: int) -> float:
        """Seconds that one copy takes."""
        return min(self.latency_seconds + nbytes / self.bytes_per_second, LONGEST)


@dataclass(frozen=True, slots=True)
class Group:
    """Units that a candidate fuses if it gets them all, in one partition.

    Attributes:
        saving: seconds by which they then take less than each by itself, above 0.
    """

    candidate: int
    units: tuple[int, ...]
    saving: float


@dataclass(frozen=True)
class Problem:
    """What to place, where it may go, and what it takes.

    Attributes:
        candidates: names, in order of preference.
        memory_of: by candidate the position of its memory; candidates may share one.
        names: by unit, for messages.
        seconds: by unit and candidate; IMPOSSIBLE where the candidate can't.
        tensors: the values between units, and those that enter or leave the graph.
        routes: by (source, target) memory. Host to device and device to host must be there;
            a direct way between devices is a bonus.
        partition_seconds: by candidate, what starting one partition takes.
        solo: candidates whose units run one by one, each as its own partition.
        bias: like `seconds`, added when placements are compared and never when time is predicted.
        pinned: units that may run only where they may because the caller says so.
        groups: what candidates fuse; the groups of one candidate share no unit.
        clonable: units that may run twice: cheap, and with one result, which is the same on every
            candidate that can run them.
        weights: constants, as tensors that nobody makes; they only take memory.
        budgets: bytes by memory, where there is a limit; never the host's.
        patient: memories of devices that work while the host goes on.
    """

    candidates: tuple[str, ...]
    memory_of: tuple[int, ...]
    names: Sequence[str]
    seconds: Sequence[tuple[float, ...]]
    tensors: Sequence[Tensor]
    routes: Mapping[tuple[int, int], Route]
    partition_seconds: tuple[float, ...]
    solo: frozenset[int] = frozenset()
    bias: Sequence[tuple[float, ...]] = ()
    pinned: frozenset[int] = frozenset()
    groups: Sequence[Group] = ()
    clonable: frozenset[int] = frozenset()
    weights: Sequence[Tensor] = ()
    budgets: Mapping[int, int] = field(default_factory=dict)
    patient: frozenset[int] = frozenset()

    @cached_property
    def costs(self) -> Sequence[tuple[float, ...]]:
        """Seconds and bias together: what is minimised."""
        if not self.bias:
            return self.seconds
        return [
            tuple(map(sum, zip(seconds, bias, strict=True)))
            for seconds, bias in zip(self.seconds, self.bias, strict=True)
        ]

    @cached_property
    def able(self) -> Sequence[tuple[int, ...]]:
        """By unit the candidates that can run it, in order of preference."""
        found: dict[tuple[bool, ...], tuple[int, ...]] = {}
        result = []
        for row in self.seconds:
            possible = tuple(cost < IMPOSSIBLE for cost in row)
            if possible not in found:
                found[possible] = tuple(c for c, yes in enumerate(possible) if yes)
            result.append(found[possible])
        return result

    @cached_property
    def users(self) -> Sequence[Sequence[int]]:
        """By unit the units that read what it makes, without repeats."""
        found: list[dict[int, None]] = [{} for _ in self.names]
        for tensor in self.tensors:
            if tensor.producer != NO_UNIT:
                found[tensor.producer].update(dict.fromkeys(tensor.consumers))
        return [tuple(users) for users in found]

    @cached_property
    def makers(self) -> Sequence[Sequence[int]]:
        """By unit the units that make what it reads, without repeats."""
        found: list[list[int]] = [[] for _ in self.names]
        for unit, users in enumerate(self.users):
            for user in users:
                found[user].append(unit)
        return found

    @cached_property
    def order(self) -> Sequence[int]:
        """The units, makers before users.

        Raises:
            PlacementError: units depend on each other in a circle.
        """
        missing = [len(makers) for makers in self.makers]
        order = [unit for unit, count in enumerate(missing) if not count]
        for unit in order:
            for user in self.users[unit]:
                missing[user] -= 1
                if not missing[user]:
                    order.append(user)
        if len(order) < len(missing):
            raise PlacementError("units of a placement depend on each other in a circle")
        return order

    @cached_property
    def touching(self) -> Sequence[Sequence[int]]:
        """By unit the tensors that it makes or reads."""
        found: list[list[int]] = [[] for _ in self.names]
        for position, tensor in enumerate(self.tensors):
            if tensor.producer != NO_UNIT:
                found[tensor.producer].append(position)
            for unit in tensor.consumers:
                found[unit].append(position)
        return found

    @cached_property
    def tight(self) -> Mapping[int, int]:
        """The budgets that some placement could exceed."""
        values = sum(tensor.nbytes for tensor in self.tensors)
        found = {}
        for memory, room in self.budgets.items():
            able = [any(self.memory_of[c] == memory for c in row) for row in self.able]
            constants = (w.nbytes * sum(able[u] for u in w.consumers) for w in self.weights)
            if values + sum(constants) > room:
                found[memory] = room
        return found

    @cached_property
    def groups_of(self) -> Mapping[int, Sequence[int]]:
        """Positions of the groups that a unit is in; units in none are left out."""
        found: dict[int, list[int]] = {}
        for position, group in enumerate(self.groups):
            for unit in group.units:
                found.setdefault(unit, []).append(position)
        return found

    def check(self) -> None:
        """Raise PlacementError for units that nobody can run, or that depend in a circle."""
        _ = self.order
        for name, able in zip(self.names, self.able, strict=True):
            if not able:
                raise PlacementError(
                    f"{name!r} can't run on any of the session's providers",
                    expected=f"one of {', '.join(self.candidates)}",
                    fix="Add a provider that supports it.",
                )
