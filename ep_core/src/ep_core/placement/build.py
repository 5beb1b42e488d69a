"""From a graph and the candidates' answers to a placement problem.

The only file here that knows graphs. Calls no provider: what they answered comes in as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ep_core.contracts import FusedGroup, Support
from ep_core.errors import PlacementError, did_you_mean
from ep_core.graph import Graph, Node
from ep_core.placement.groups import saving_groups
from ep_core.placement.problem import IMPOSSIBLE, LONGEST, NO_UNIT, Problem, Route, Tensor
from ep_core.placement.roofline import Sizes, seconds_of
from ep_core.placement.units import is_clonable, units_of
from ep_core.types import HOST_MEMORY, DeviceSpeed, MemoryInfo

__all__ = ["CONTROL_FLOW", "CORE", "Offer", "Wishes", "build", "node_seconds"]

CORE = "core"
"""Stands where a provider's name would, for control flow that the core runs itself."""
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_PREFERENCE = 1.0
"""What a unit pays elsewhere than on its preferred candidate, as a part of its own seconds."""

_Rows = dict[int, tuple[float, ...]]


@dataclass(frozen=True)
class Offer:
    """What one candidate offers.

    Attributes:
        answers: one per node of the graph, certificates and earlier refusals taken into account.
        declared: `speed` is the device's own word; otherwise it is assumed.
        named: the caller asked for it, as opposed to the automatic fallback.
        groups: what it would fuse.
        memory_bytes: size of its memory, 0 where that isn't known.
        asynchronous: it works while the host goes on.
    """

    name: str
    memory: MemoryInfo
    speed: DeviceSpeed
    answers: Sequence[Support]
    declared: bool = True
    named: bool = True
    groups: Sequence[FusedGroup] = ()
    memory_bytes: int = 0
    asynchronous: bool = False


@dataclass(frozen=True)
class Wishes:
    """What the caller wants of a placement.

    Attributes:
        pins: candidate by position of a node; hard.
        prefer: the same, soft: everywhere else the node counts as taking twice as long.
        lengths: of symbolic dimensions, by name; others are assumed, see `Sizes`.
        sources: where a pin comes from, in the caller's words, by position of its node.
    """

    pins: Mapping[int, str] = field(default_factory=dict)
    prefer: Mapping[int, str] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[int, str] = field(default_factory=dict)


def build(
    graph: Graph,
    live: Sequence[int],
    offers: Sequence[Offer],
    wishes: Wishes,
    direct: Iterable[tuple[MemoryInfo, MemoryInfo]] = (),
    room: Mapping[MemoryInfo, int] = MappingProxyType({}),
) -> tuple[Problem, list[tuple[int, ...]]]:
    """Return the problem, and by unit the positions of its nodes in the graph.

    Args:
        live: positions of the nodes to place, ascending.
        offers: in order of preference.
        direct: pairs of device memories, source and target, with a way that avoids the host.
        room: bytes by device memory, where there is a limit.

    Raises:
        PlacementError: a pin to a candidate that can't run the node, or that isn't there.
    """
    sizes = Sizes(graph, wishes.lengths)
    costs = _costs(graph, live, offers, sizes)
    _check_names(graph, offers, wishes)
    _pin(graph, costs, offers, wishes)
    able = {index: tuple(cost < IMPOSSIBLE for cost in row) for index, row in costs.items()}
    units = units_of(graph, able)
    seconds = [
        tuple(map(sum, zip(*(costs[index] for index in unit), strict=True))) for unit in units
    ]
    memories = list(dict.fromkeys([HOST_MEMORY, *(offer.memory for offer in offers)]))
    problem = Problem(
        candidates=(*(offer.name for offer in offers), CORE),
        memory_of=(*(memories.index(offer.memory) for offer in offers), 0),
        names=[graph.nodes[unit[-1]].name for unit in units],
        seconds=seconds,
        tensors=_tensors(graph, units, sizes),
        routes=_routes(memories, offers, direct),
        partition_seconds=(*(min(o.speed.partition_seconds, LONGEST) for o in offers), 0.0),
        solo=frozenset({len(offers)}),
        bias=_bias(units, seconds, offers, wishes.prefer),
        pinned=frozenset(u for u, unit in enumerate(units) if any(i in wishes.pins for i in unit)),
        groups=saving_groups([(o.groups, o.speed) for o in offers], units, costs, sizes),
        clonable=frozenset(
            u for u, unit in enumerate(units) if len(unit) == 1 and is_clonable(graph, *unit, sizes)
        ),
        weights=_weights(graph, units, sizes) if room else (),
        budgets={memories.index(memory): limit for memory, limit in room.items()},
        patient=frozenset(memories.index(o.memory) for o in offers if o.asynchronous),
    )
    return problem, units


def _costs(graph: Graph, live: Sequence[int], offers: Sequence[Offer], sizes: Sizes) -> _Rows:
    """Seconds by node and candidate; the core takes control flow that nobody else does."""
    rows: _Rows = {}
    for index in live:
        node = graph.nodes[index]
        row = [node_seconds(node, offer.answers[index], offer.speed, sizes) for offer in offers]
        unclaimed = min(row, default=IMPOSSIBLE) == IMPOSSIBLE
        core = unclaimed and not node.domain and node.op_type in CONTROL_FLOW
        rows[index] = (*row, 0.0 if core else IMPOSSIBLE)
    return rows


def node_seconds(node: Node, answer: Support, speed: DeviceSpeed, sizes: Sizes) -> float:
    """What a node takes where that answer was given, by itself; IMPOSSIBLE after a no."""
    if not answer.supported:
        return IMPOSSIBLE
    cost = answer.cost
    if cost is not None and 0 <= cost < IMPOSSIBLE:
        return min(cost, LONGEST)
    return seconds_of(node, sizes, speed)


def _check_names(graph: Graph, offers: Sequence[Offer], wishes: Wishes) -> None:
    known = [offer.name for offer in offers]
    for verb, chosen in (("pinned to", wishes.pins), ("to prefer", wishes.prefer)):
        for index, name in chosen.items():
            if name not in known:
                node = graph.nodes[index]
                raise PlacementError(
                    f"{node.key} {node.name!r} is {verb} {name!r}, which isn't in the session",
                    fix=did_you_mean(name, known),
                )


def _pin(graph: Graph, rows: _Rows, offers: Sequence[Offer], wishes: Wishes) -> None:
    """Leave each pinned node only the candidate that it is pinned to."""
    positions = {offer.name: position for position, offer in enumerate(offers)}
    for index, name in wishes.pins.items():
        if index not in rows:
            continue  # no output needs the node
        position = positions[name]
        if rows[index][position] == IMPOSSIBLE:
            node = graph.nodes[index]
            reason = offers[position].answers[index].reason or "not supported"
            words = f" by {wishes.sources[index]!r}" if index in wishes.sources else ""
            raise PlacementError(
                f"{node.key} {node.name!r} is pinned to {name!r}{words}, which can't run it: "
                f"{reason}",
                fix="Remove the pin, or pin the node to another provider.",
            )
        rows[index] = tuple(
            cost if at == position else IMPOSSIBLE for at, cost in enumerate(rows[index])
        )


def _bias(
    units: Sequence[tuple[int, ...]],
    seconds: Sequence[tuple[float, ...]],
    offers: Sequence[Offer],
    prefer: Mapping[int, str],
) -> list[tuple[float, ...]]:
    """Empty if there are no preferences."""
    if not prefer:
        return []
    names = [*(offer.name for offer in offers), CORE]
    result = []
    for unit, row in zip(units, seconds, strict=True):
        wanted = {prefer[index] for index in unit if index in prefer}
        result.append(
            tuple(
                _PREFERENCE * cost if wanted and name not in wanted and cost < IMPOSSIBLE else 0.0
                for name, cost in zip(names, row, strict=True)
            )
        )
    return result


def _tensors(graph: Graph, units: Sequence[tuple[int, ...]], sizes: Sizes) -> list[Tensor]:
    """The values that pass between units, or between a unit and the caller."""
    unit_of = {index: unit for unit, members in enumerate(units) for index in members}
    users: dict[str, dict[int, None]] = {}
    for unit, members in enumerate(units):
        for index in members:
            for name in graph.nodes[index].reads:
                if graph.constant(name) is None:
                    users.setdefault(name, {})[unit] = None
    wanted = frozenset(graph.output_names)
    for name in graph.output_names:
        users.setdefault(name, {})
    tensors = []
    for name, readers in users.items():
        maker = graph.producers.get(name)
        producer = NO_UNIT if maker is None else unit_of[maker]
        readers.pop(producer, None)
        output = name in wanted and producer != NO_UNIT
        if readers or output:
            size = sizes.host_bytes(name)
            consumers = tuple(sorted(readers))
            tensors.append(Tensor(name, size, producer, consumers, output, sizes.is_exact(name)))
    return tensors


def _weights(graph: Graph, units: Sequence[tuple[int, ...]], sizes: Sizes) -> list[Tensor]:
    """The constants, each once; those of bodies too, whoever has the same by another name."""
    users: dict[str, list[int]] = {}
    inner = []
    for unit, members in enumerate(units):
        for node in (graph.nodes[index] for index in members):
            for name in node.reads:
                if graph.constant(name) is not None:
                    users.setdefault(name, []).append(unit)
            held = sum(_held(body) for body in node.bodies.values())
            if held:
                inner.append(Tensor(node.name, held, NO_UNIT, (unit,)))
    return inner + [
        Tensor(name, sizes.host_bytes(name), NO_UNIT, tuple(dict.fromkeys(readers)))
        for name, readers in users.items()
    ]


def _held(graph: Graph) -> int:
    """Bytes of a body's constants, and of the bodies inside."""
    own = sum(Sizes(graph, {}).host_bytes(name) for name in graph.initializers)
    return own + sum(_held(body) for node in graph.nodes for body in node.bodies.values())


def _routes(
    memories: Sequence[MemoryInfo],
    offers: Sequence[Offer],
    direct: Iterable[tuple[MemoryInfo, MemoryInfo]],
) -> dict[tuple[int, int], Route]:
    """Copies to and from the host as the device's first provider declares them."""
    speeds: dict[int, DeviceSpeed] = {}
    for offer in offers:
        speeds.setdefault(memories.index(offer.memory), offer.speed)
    routes = {}
    for memory, speed in speeds.items():
        if memory:
            route = Route(speed.copy_seconds, speed.copy_bytes_per_second)
            routes[memory, 0] = routes[0, memory] = route
    for source, target in direct:
        pair = (memories.index(source), memories.index(target))
        ends = [speeds[memory] for memory in pair]
        routes[pair] = Route(
            max(speed.copy_seconds for speed in ends),
            min(speed.copy_bytes_per_second for speed in ends),
        )
    return routes
