"""One cut: every unit stays where it is or goes to one candidate, all decided at once, optimally.

With two candidates one such step is the whole answer; with more, steps for each candidate in turn
come close to it (alpha-expansion). Minimised are the costs of units, copies, what fused groups
save, and a price for each tensor that passes from one candidate to another. A direct way between
devices is seen where a tensor's producer and consumers move together or apart, else its copies
count as through the host; the search that follows measures what is true.

How a copy is counted once: a term "x pays w if any of y, z, ... is on the other side" is a node
between x and the others, with an arc of room w on one side and endless ones on the other.
Sources: H. S. Stone, Multiprocessor scheduling with the aid of network flow algorithms, IEEE TSE
3(1), 1977; Y. Boykov, O. Veksler, R. Zabih, Fast approximate energy minimization via graph cuts,
IEEE TPAMI 23(11), 2001.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ep_core.placement.budget import Budget
from ep_core.placement.mincut import ENDLESS, Network
from ep_core.placement.problem import HOST, IMPOSSIBLE, NO_UNIT, Group, Owners, Problem, Tensor

__all__ = ["Prices", "expand"]

_BITS = 50
"""Costs become whole numbers of about this many bits, so that sums are exact everywhere."""
_ALWAYS = -1
"""Stands where a unit would, for a term that doesn't depend on the tensor's producer."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds added in a cut, for wishes that it can't see otherwise.

    Attributes:
        crossing: for a tensor that a candidate makes and another reads.
        copy: for each copy.
        memory: by memory for each byte of constants and values, whenever they live.
    """

    crossing: float = 0.0
    copy: float = 0.0
    memory: Mapping[int, float] = field(default_factory=dict)


def expand(
    problem: Problem, owners: Owners, target: int, prices: Prices, budget: Budget
) -> list[int]:
    """Return the owners after those units moved to `target` for which that is cheapest together.

    Equal to `owners` if nothing is gained. A cut once begun is finished, whatever it takes from
    the budget.
    """
    step = _Step(problem, owners, target, prices)
    for tensor in problem.tensors:
        step.add(tensor)
    for group in problem.groups:
        step.add_group(group)
    if prices.memory:
        for weight in problem.weights:
            step.add_weight(weight)
    chosen = step.network.cut()
    budget.spend(step.network.work)
    return [
        target if moves and free else owner
        for owner, moves, free in zip(owners, chosen, step.free, strict=False)
    ]


class _Step:
    """The network of one step. A unit on the sink's side goes to the target."""

    def __init__(self, problem: Problem, owners: Owners, target: int, prices: Prices) -> None:
        self._problem = problem
        self._owners = owners
        self._target = target
        self._there = problem.memory_of[target]
        self._prices = prices
        self._scale = _scale(problem, prices)
        self._crossing = self._whole(prices.crossing)
        self._place = [problem.memory_of[owner] for owner in owners]
        self._copies: dict[tuple[int, int, int], int] = {}
        self.network = Network(len(owners))
        self.free = [
            owner != target and row[target] < IMPOSSIBLE
            for owner, row in zip(owners, problem.costs, strict=True)
        ]
        for unit, row in enumerate(problem.costs):
            if self.free[unit]:
                gain = self._whole(row[owners[unit]]) - self._whole(row[target])
                self.network.excess[unit] = -gain
        if prices.memory:
            for tensor in problem.tensors:
                self._add_room(tensor)

    def _whole(self, seconds: float) -> int:
        return round(seconds * self._scale)

    def _copy(self, source: int, target: int, nbytes: int) -> int:
        """Cost of one copy; nothing to do costs nothing."""
        if source == target:
            return 0
        known = self._copies.get((source, target, nbytes))
        if known is None:
            seconds = self._problem.routes[source, target].seconds(nbytes) + self._prices.copy
            known = self._whole(seconds) + self._room(target, nbytes)
            self._copies[source, target, nbytes] = known
        return known

    def _room(self, memory: int, nbytes: int) -> int:
        return self._whole(self._prices.memory.get(memory, 0.0) * nbytes)

    # ------------------------------------------------------------ the terms of one tensor

    def add(self, tensor: Tensor) -> None:
        """Add what the tensor may cost."""
        free, owners = self.free, self._owners
        unit = tensor.producer
        if unit != NO_UNIT and free[unit]:
            owner = owners[unit]
            if all(free[c] and owners[c] == owner for c in tensor.consumers):
                self._add_uniform(tensor, owner)
                return
        elif not any(free[c] for c in tensor.consumers):
            return
        self._add_mixed(tensor)

    def add_weight(self, weight: Tensor) -> None:
        """Add the room that a constant takes in each memory where anybody reads it."""
        if any(self.free[unit] for unit in weight.consumers):
            self._add_arrivals(weight, HOST, _ALWAYS, self._room)

    def _add_room(self, tensor: Tensor) -> None:
        """Add the room that a tensor takes where it is made."""
        unit = tensor.producer
        if unit != NO_UNIT and self.free[unit]:
            here = self._room(self._place[unit], tensor.nbytes)
            self.network.excess[unit] += self._room(self._there, tensor.nbytes) - here

    def add_group(self, group: Group) -> None:
        """Add what is lost if any of its units isn't on its candidate."""
        there = group.candidate == self._target
        owners, free = self._owners, self.free
        if all(owners[u] == group.candidate or (there and free[u]) for u in group.units):
            loose = [unit for unit in group.units if free[unit]]
            self._charge(_ALWAYS, loose, False, self._whole(group.saving), moves=not there)

    def _add_uniform(self, tensor: Tensor, owner: int) -> None:
        """The frequent case: producer and consumers are together and free to move."""
        unit, size = tensor.producer, tensor.nbytes
        here, there = self._problem.memory_of[owner], self._there
        if tensor.output:
            leaving = self._copy(there, HOST, size) - self._copy(here, HOST, size)
            self.network.excess[unit] += leaving
        if tensor.consumers:
            forward = self._crossing + self._between(here, there, tensor)
            backward = self._crossing + self._between(there, here, tensor)
            self._connect(unit, tensor.consumers, forward, backward)

    def _between(self, source: int, target: int, tensor: Tensor) -> int:
        """Cost of bringing a tensor from one memory to another, beyond what its output takes."""
        if source == target:
            return 0
        if HOST not in (source, target) and (source, target) in self._problem.routes:
            return self._copy(source, target, tensor.nbytes)
        departure = 0 if tensor.output else self._copy(source, HOST, tensor.nbytes)
        return departure + self._copy(HOST, target, tensor.nbytes)

    def _add_mixed(self, tensor: Tensor) -> None:
        """The general case: what is free, and where things are now, differs."""
        unit, size, place = tensor.producer, tensor.nbytes, self._place
        home = HOST if unit == NO_UNIT else place[unit]
        producer = unit if unit != NO_UNIT and self.free[unit] else _ALWAYS
        self._add_arrivals(tensor, home, producer, partial(self._copy, HOST))
        if unit != NO_UNIT:
            prices = (self._copy(home, HOST, size), self._copy(self._there, HOST, size))
            self._add_departure(tensor, producer, place, self._there, prices, tensor.output)
            prices = (self._crossing, self._crossing)
            self._add_departure(tensor, producer, self._owners, self._target, prices, False)

    def _add_arrivals(
        self, tensor: Tensor, home: int, producer: int, price_of: Callable[[int, int], int]
    ) -> None:
        """From the host into each device memory where a consumer and not the producer is.

        Args:
            price_of: takes memory and bytes.
        """
        place, free, there = self._place, self.free, self._there
        for memory in dict.fromkeys([*(place[c] for c in tensor.consumers), there]):
            price = price_of(memory, tensor.nbytes)
            at = [c for c in tensor.consumers if place[c] == memory]
            if memory == there:
                others = [c for c in tensor.consumers if free[c] and place[c] != there]
                if home != there:
                    self._charge(producer, others, bool(at), price, moves=True)
            elif home != memory or producer != _ALWAYS:
                unit = producer if home == memory else _ALWAYS
                users, certain = [c for c in at if free[c]], not all(free[c] for c in at)
                self._charge(unit, users, certain, price, moves=False)

    def _add_departure(
        self,
        tensor: Tensor,
        producer: int,
        place: Sequence[int],
        there: int,
        prices: tuple[int, int],
        output: bool,
    ) -> None:
        """The producer pays once if anybody is elsewhere, the first price here, the second there.

        Args:
            place: by unit where it is, for this purpose.
            there: where it is after a move.
        """
        users, free, home = tensor.consumers, self.free, place[tensor.producer]
        outside = [c for c in users if free[c] and place[c] != there]
        certain = output or any(not free[c] and place[c] != there for c in users)
        if home != there:
            away = output or any(place[c] != home for c in users)
            loose = [c for c in users if free[c]]
            self._charge(producer, loose, away, prices[0], moves=True)
        if home == there or producer != _ALWAYS:
            unit = _ALWAYS if home == there else producer
            self._charge(unit, outside, certain, prices[1], moves=False)

    def _charge(
        self, unit: int, users: list[int], certain: bool, price: int, *, moves: bool
    ) -> None:
        """Add a price that is due if the unit stays and any user moves, or the other way round.

        Args:
            unit: _ALWAYS if it doesn't matter what it does.
            certain: some user is on the other side anyway.
            moves: users move; False if the unit moves and users stay.
        """
        if not price:
            return
        network = self.network
        signed = price if moves else -price
        if certain:
            if unit != _ALWAYS:
                network.excess[unit] -= signed
        elif unit != _ALWAYS:
            self._connect(unit, users, price if moves else 0, 0 if moves else price)
        elif len(users) == 1:
            network.excess[users[0]] += signed
        elif users:
            node = self._node_before(users, moves)
            network.excess[node] = signed

    def _connect(self, unit: int, users: Sequence[int], forward: int, backward: int) -> None:
        """`forward` if the unit stays and any user moves, `backward` the other way round."""
        if len(users) == 1:
            self.network.connect(unit, users[0], forward, backward)
            return
        if forward and users:
            self.network.connect(unit, self._node_before(users, True), forward, 0)
        if backward and users:
            self.network.connect(unit, self._node_before(users, False), 0, backward)

    def _node_before(self, users: Sequence[int], moves: bool) -> int:
        """A node that has to be on the sink's side if any user is; or on the source's."""
        node = self.network.new_node()
        for user in users:
            self.network.connect(node, user, ENDLESS if moves else 0, 0 if moves else ENDLESS)
        return node


def _scale(problem: Problem, prices: Prices) -> float:
    """What turns seconds into whole numbers."""
    count = len(problem.tensors)
    total = sum(max(c for c in row if c < IMPOSSIBLE) for row in problem.costs)
    total += count * (prices.crossing + prices.copy)
    nbytes = sum(tensor.nbytes for tensor in problem.tensors)
    if prices.memory:
        weights = sum(weight.nbytes * len(weight.consumers) for weight in problem.weights)
        total += max(prices.memory.values()) * (2 * nbytes + weights)
    for route in problem.routes.values():
        total += count * route.latency_seconds + nbytes / route.bytes_per_second
    return 2.0**_BITS / total if total > 0 else 1.0
