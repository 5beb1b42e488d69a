"""What was predicted beside what was measured, of everything that has both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ep_core import PlacementReport
from ep_tools.console import scoped
from ep_tools.explain_measured import MeasuredRuns, Timing

__all__ = ["Deviation", "deviations"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """Predicted and measured seconds of one thing in a run.

    Attributes:
        kind, name: of the thing; a partition's or node's name, or a copied value's.
        where: the provider, or the way between memories.
    """

    kind: Literal["partition", "copy", "node"]
    name: str
    where: str
    predicted: float
    measured: float

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def deviations(report: PlacementReport, measured: MeasuredRuns) -> list[Deviation]:
    """Everything that was predicted and measured, what is farthest apart first."""
    found: list[Deviation] = []

    def add(
        kind: Literal["partition", "copy", "node"],
        name: str,
        where: str,
        predicted: float | None,
        timing: Timing | None,
    ) -> None:
        if predicted is not None and timing is not None and timing.seconds is not None:
            found.append(Deviation(kind, name, where, predicted * timing.times, timing.seconds))

    for place, part in enumerate(report.partitions):
        name = scoped(part.scope, part.name)
        add("partition", name, part.provider, part.seconds, measured.partitions.get(place))
    for place, copy in enumerate(report.copies):
        way = f"{copy.source} -> {copy.target}"
        name = scoped(copy.scope, copy.value)
        add("copy", name, way, copy.seconds, measured.copies.get(place))
    for scope, nodes in report.nodes.items():
        for node in nodes:
            timing = measured.nodes.get((scope, node.node))
            add("node", scoped(scope, node.node), node.provider, node.seconds, timing)
    return sorted(found, key=lambda item: -abs(item.measured - item.predicted))
