"""Compares the predicted time of a placement with that of the CPU provider alone, and says why.

Nothing is run: both times come from declared or assumed speeds, as placement by cost has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ep_core import PlacementReport
from ep_core.errors import EpError
from ep_core.partition import CORE
from ep_tools.console import format_bytes, format_seconds
from ep_tools.explain_placing import place_model
from ep_tools.requests import PlacementRequest, SessionRequest

__all__ = ["Predicted", "Times", "predict_against_cpu"]

_CPU = "cpu"
_ALIKE = 1.1
"""Predictions that are closer than this are taken for equal."""
_WORTH_NAMING = 0.2
"""A reason is given if it makes up so much of the difference."""


@dataclass(frozen=True, slots=True)
class Times:
    """Where the predicted seconds of one run go.

    Attributes:
        nodes: by provider, what its nodes take.
        starts: of partitions.
        copies: between memories.
    """

    nodes: Mapping[str, float]
    starts: float
    copies: float

    @property
    def total(self) -> float:
        """All of it, nothing overlapping."""
        return sum(self.nodes.values()) + self.starts + self.copies


@dataclass(frozen=True, slots=True)
class Predicted:
    """A comparison in figures and in words.

    Attributes:
        placed: where the model was placed.
        cpu: on the CPU provider alone; None where that is the same or can't be told.
        text: one or two sentences.
    """

    placed: Times | None
    cpu: Times | None
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data; null where nothing is known."""
        placed, cpu = self.placed, self.cpu
        return {
            "seconds": None if placed is None else placed.total,
            "node_seconds": None if placed is None else dict(placed.nodes),
            "start_seconds": None if placed is None else placed.starts,
            "copy_seconds": None if placed is None else placed.copies,
            "seconds_on_cpu_alone": None if cpu is None else cpu.total,
            "text": self.text,
        }


def predict_against_cpu(request: SessionRequest, report: PlacementReport) -> Predicted:
    """Compare a placement with the CPU provider alone.

    Args:
        request: what was placed.
        report: what came of it.
    """
    placed = _times(report)
    if placed is None:
        told = (
            "How long a run takes isn't predicted: not every provider declares the speed of its "
            "device or the costs of its nodes; --strategy cost assumes what is missing."
        )
        return Predicted(None, None, told)
    if set(placed.nodes) <= {_CPU}:
        told = f"A run is predicted to take {format_seconds(placed.total)} on the CPU alone."
        return Predicted(placed, None, told)
    own = [option for option in request.provider_options if option[0] == _CPU]
    alone = replace(
        request,
        providers=[_CPU],
        provider_options=own,
        # Assumes a speed where the CPU provider declares none, and knows no pins to others.
        placement=PlacementRequest("cost"),
    )
    try:
        other = place_model(alone, compiled=False).report
    except EpError as error:
        told = (
            f"A run is predicted to take {format_seconds(placed.total)}; the CPU alone can't be "
            f"compared with: {error}"
        )
        return Predicted(placed, None, told)
    cpu = _times(other)
    assert cpu is not None, "by cost, all costs are known"
    text = _words(placed, cpu, report)
    if "assumed" in other.basis:
        text += " The speed of the CPU is assumed."
    return Predicted(placed, cpu, text)


def _times(report: PlacementReport) -> Times | None:
    if report.predicted_seconds is None:
        return None
    nodes: dict[str, float] = {}
    for placements in report.nodes.values():
        for node in placements:
            if node.provider != CORE:
                nodes[node.provider] = nodes.get(node.provider, 0.0) + (node.seconds or 0.0)
    copies = sum(copy.seconds or 0.0 for copy in report.copies)
    starts = report.predicted_seconds - sum(nodes.values()) - copies
    return Times(nodes, max(starts, 0.0), copies)


# ---------------------------------------------------------------- words


def _words(placed: Times, cpu: Times, report: PlacementReport) -> str:
    mine, other = format_seconds(placed.total), format_seconds(cpu.total)
    ratio = placed.total / cpu.total if cpu.total else 1.0
    if ratio > _ALIKE:
        start = f"The CPU alone will be faster, by prediction {other} against {mine}"
        return f"{start}, because {_joined(_reasons(placed, cpu, report))}."
    if ratio < 1 / _ALIKE:
        return (
            f"It will be {1 / ratio:.2g} times as fast as the CPU alone, by prediction {mine} "
            f"against {other}."
        )
    return f"It will be about as fast as the CPU alone, by prediction {mine} against {other}."


def _reasons(placed: Times, cpu: Times, report: PlacementReport) -> list[str]:
    """What the time is lost with, the most first."""
    compute = sum(placed.nodes.values())
    parts, copies = len(report.partitions), len(report.copies)
    sizes = [copy.nbytes for copy in report.copies]
    moved = format_bytes(sum(size or 0 for size in sizes))
    moved = f"more than {moved}" if None in sizes else moved
    where = _joined([f"{format_seconds(seconds)} on {name}" for name, seconds in _dearest(placed)])
    found = [
        (
            placed.copies - cpu.copies,
            f"{_count(copies, 'copy', 'copies')} ({moved}) take {format_seconds(placed.copies)}"
            if copies != 1
            else f"a copy ({moved}) takes {format_seconds(placed.copies)}",
        ),
        (
            placed.starts - cpu.starts,
            f"starting {_count(parts, 'partition', 'partitions')} takes "
            f"{format_seconds(placed.starts)}",
        ),
        (
            compute - sum(cpu.nodes.values()),
            f"the nodes themselves take {where}, and {format_seconds(sum(cpu.nodes.values()))} on "
            "the CPU alone",
        ),
    ]
    least = _WORTH_NAMING * (placed.total - cpu.total)
    return [text for lost, text in sorted(found, reverse=True) if lost > least]


def _dearest(times: Times) -> list[tuple[str, float]]:
    return sorted(times.nodes.items(), key=lambda item: -item[1])


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _joined(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
