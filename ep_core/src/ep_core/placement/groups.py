"""What providers fuse: from offers of nodes to groups of units with what they save."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ep_core.contracts import FusedGroup
from ep_core.placement.problem import IMPOSSIBLE, Group
from ep_core.placement.roofline import Sizes, fused_seconds, seconds_of
from ep_core.types import DeviceSpeed

__all__ = ["saving_groups"]


def saving_groups(
    offered: Sequence[tuple[Sequence[FusedGroup], DeviceSpeed]],
    units: Sequence[tuple[int, ...]],
    rows: Mapping[int, tuple[float, ...]],
    sizes: Sizes,
) -> tuple[Group, ...]:
    """Return the groups that save time.

    A group is left out if a node of it can't run on its candidate after all, for want of a
    certificate, say, or isn't needed; and if it takes as long as its nodes by themselves.

    Args:
        offered: by candidate its groups and its speed.
        units: positions of their nodes.
        rows: seconds by node and candidate.
    """
    unit_of = {index: unit for unit, members in enumerate(units) for index in members}
    outputs = frozenset(sizes.graph.output_names)
    groups = []
    for candidate, (wanted, speed) in enumerate(offered):
        for group in wanted:
            if any(
                rows.get(i, (IMPOSSIBLE,) * len(offered))[candidate] == IMPOSSIBLE
                for i in group.nodes
            ):
                continue
            parts = math.fsum(rows[index][candidate] for index in group.nodes)
            saving = parts - _seconds(group, parts, sizes, speed, outputs)
            if saving > 0:
                members = tuple(sorted({unit_of[index] for index in group.nodes}))
                groups.append(Group(candidate, members, saving))
    return tuple(groups)


def _seconds(
    group: FusedGroup, parts: float, sizes: Sizes, speed: DeviceSpeed, outputs: frozenset[str]
) -> float:
    """What the group takes: the provider's word, or the part that its roofline is of the nodes'."""
    if group.cost is not None and 0 <= group.cost < IMPOSSIBLE:
        return group.cost
    alone = math.fsum(seconds_of(sizes.graph.nodes[i], sizes, speed) for i in group.nodes)
    return parts * fused_seconds(group.nodes, sizes, speed, outputs) / alone if alone else parts
