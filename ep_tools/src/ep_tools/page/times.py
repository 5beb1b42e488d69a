"""What the page knows of time: predictions, what was measured, and one run in order.

Numbers have six digits, which is more than a clock gives and keeps a large page small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ep_tools.explain_measured import MeasuredRuns, Timing
from ep_tools.explain_placing import Placed

__all__ = ["seconds_json", "timeline_json", "times_json", "timing_json"]


def times_json(placed: Placed) -> dict[str, Any]:
    """What the whole placement is predicted to take and took, and what it had to keep to.

    Memory too, in words.
    """
    report, measured = placed.report, placed.measured
    return {
        "strategy": report.strategy,
        "basis": report.basis,
        "predicted": seconds_json(report.predicted_seconds),
        "greedy": seconds_json(report.greedy_seconds),
        "rules": [list(rule) for rule in placed.rules],
        "memory": [[name, str(peak)] for name, peak in report.peak_bytes.items()],
        "measured": None
        if measured is None
        else {"runs": measured.runs, "seconds": seconds_json(measured.run_seconds)},
    }


def seconds_json(seconds: float | None) -> float | None:
    """A number that JSON has a word for; a provider may say anything."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return float(f"{seconds:.6g}")


def timing_json(timing: Timing | None) -> list[Any] | None:
    """How often it happened in a run, and the seconds; null for what never did."""
    if timing is None:
        return None
    return [float(f"{timing.times:.6g}"), seconds_json(timing.seconds)]


def timeline_json(
    measured: MeasuredRuns | None,
    places: Mapping[tuple[str, int], Sequence[int]],
    boxes: Mapping[tuple[str, str], Sequence[int]],
) -> dict[str, Any] | None:
    """One run: its rows, and spans of row, microseconds of start and length, kind, scope, place.

    A span of something else has a label in place of the scope. A last 1 says that it is only the
    handing over to a stream, a last 2 that it was seen so late that its times tell little.

    Args:
        places: by kind and position in the report, scope and position in its list.
        boxes: by scope and name of a node, scope and position of its box.
    """
    if measured is None:
        return None
    spans: list[list[Any]] = []
    for span in measured.spans:
        start, length = _microseconds(span.start), _microseconds(span.seconds)
        what: Sequence[int | str] = [span.label]
        if isinstance(span.target, int):
            what = places[span.kind, span.target]
        elif span.target is not None:
            what = boxes[span.target]
        marks = [1] if span.queued else [2] if span.unsure else []
        spans.append([span.row, start, length, span.kind, *what, *marks])
    return {"rows": list(measured.rows), "spans": spans}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
