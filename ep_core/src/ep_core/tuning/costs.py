"""From measured seconds to what placement computes with. Data in, data out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ep_core.contracts import FusedGroup, Support
from ep_core.graph import Graph
from ep_core.placement.build import Offer, node_seconds
from ep_core.placement.roofline import Sizes
from ep_core.types import DeviceSpeed

__all__ = ["Figures", "Nodes", "measured_offer", "scaled"]

Nodes = tuple[int, ...]
"""Positions in a graph, ascending."""

_Said = TypeVar("_Said", Support, FusedGroup)
_FARTHEST = 1e4
"""Estimates that are farther off than this aren't scaled any further."""


@dataclass(frozen=True)
class Figures:
    """What was measured of a device apart from its work; None for what wasn't.

    Attributes:
        start: seconds of starting a partition.
        latency, rate: seconds of a small copy, and bytes per second of a large one.
    """

    start: float | None = None
    latency: float | None = None
    rate: float | None = None


def measured_offer(
    graph: Graph, offer: Offer, runs: Mapping[Nodes, float], figures: Figures, sizes: Sizes
) -> Offer:
    """An offer with measured costs; where there are none, estimates scaled to those there are.

    Args:
        runs: by positions of nodes the seconds of a partition of these, its start included.
    """
    speed = offer.speed
    start = figures.start
    if start is None:
        start = min([speed.partition_seconds, *runs.values()])
    speed = replace(
        speed,
        partition_seconds=start,
        copy_seconds=speed.copy_seconds if figures.latency is None else figures.latency,
        copy_bytes_per_second=figures.rate or speed.copy_bytes_per_second,
    )
    offer = replace(offer, speed=speed, declared=offer.declared or bool(runs))
    if not runs:
        return offer
    costs = {nodes: max(0.0, seconds - start) for nodes, seconds in runs.items()}
    single = {nodes[0]: seconds for nodes, seconds in costs.items() if len(nodes) == 1}
    expected = sum(
        node_seconds(graph.nodes[index], offer.answers[index], speed, sizes) for index in single
    )
    offer = scaled(offer, sum(single.values()) / expected if expected > 0 else 1.0)
    answers = enumerate(offer.answers)
    return replace(
        offer,
        answers=[replace(one, cost=single.get(index, one.cost)) for index, one in answers],
        groups=[replace(one, cost=costs.get(one.nodes, one.cost)) for one in offer.groups],
    )


def scaled(offer: Offer, factor: float) -> Offer:
    """The offer of a device on which any work takes so many times as long."""
    factor = min(max(factor, 1 / _FARTHEST), _FARTHEST)
    return replace(
        offer,
        speed=_slower(offer.speed, factor),
        answers=[_dearer(answer, factor) for answer in offer.answers],
        groups=[_dearer(group, factor) for group in offer.groups],
    )


def _slower(speed: DeviceSpeed, factor: float) -> DeviceSpeed:
    return replace(
        speed,
        flops_per_second=speed.flops_per_second / factor,
        bytes_per_second=speed.bytes_per_second / factor,
        operator_seconds=speed.operator_seconds * factor,
    )


def _dearer(said: _Said, factor: float) -> _Said:
    return said if said.cost is None else replace(said, cost=said.cost * factor)
