"""Joins a trace to a placement: what each partition, copy and node took, and one run in order.

Knows reports and traces; places nothing and runs nothing.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low
from typing import Any, Literal

from ep_core import PlacementReport
from ep_core.errors import EpError
from ep_tools.traces import Trace, TraceEvent

__all__ = ["MeasuredRuns", "Span", "Timing", "join_trace"]

_DEVICE_COPY = "device copy"
"""A copy as it happened on a stream, beside the event of handing it over."""
_MOST_UNSURE = 0.5
"""They are seen by looking at events now and then; a length that may be wrong by a greater part of
it isn't known."""
_ALIKE = 1e-3
"""So far apart, two predictions for a partition rest on other lengths, speeds or costs."""
_SHOWN = ("partition", "copy", _DEVICE_COPY, "node", "wait", "control flow")
"""Categories of the events that are part of a run."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one thing took.

    Attributes:
        times: how often it happened in a run, on average.
        seconds: of a run, the median over the runs. None where only the handing over to a
            device's stream was timed, and the device's own time isn't known.
    """

    times: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Span:
    """One thing of one run.

    Attributes:
        row: position in `MeasuredRuns.rows`.
        start, seconds: since the run began, and how long.
        kind: what `target` is: a position in the report's partitions or copies, or scope and name
            of a node; None for waits and for what the report doesn't have.
        queued: it is only the handing over to a stream.
        unsure: a copy on a stream that was seen so late that its times tell little.
    """

    row: int
    start: float
    seconds: float
    kind: Literal["partition", "copy", "node", "other"]
    target: int | tuple[str, str] | None
    label: str
    queued: bool = False
    unsure: bool = False


@dataclass(frozen=True)
class MeasuredRuns:
    """What a trace says of a placement.

    Attributes:
        runs: how many count.
        run_seconds: of a run, the median.
        partitions, copies: by position in the report; those that never ran are left out.
        nodes: by scope and name.
        rows: names of threads and queues of the run that is shown.
        spans: of the run whose length is in the middle, in the order of their starts.
        as_predicted: what the profiled session predicted for its partitions is what the report has.
    """

    runs: int
    run_seconds: float
    partitions: Mapping[int, Timing]
    copies: Mapping[int, Timing]
    nodes: Mapping[tuple[str, str], Timing]
    rows: tuple[str, ...]
    spans: tuple[Span, ...]
    as_predicted: bool = True

    def to_json(self) -> dict[str, Any]:
        """The figures as plain data, without the spans."""
        return {
            "runs": self.runs,
            "run_seconds": self.run_seconds,
            "as_predicted": self.as_predicted,
            "partitions": [
                {"partition": place, "times": item.times, "seconds": item.seconds}
                for place, item in self.partitions.items()
            ],
            "copies": [
                {"copy": place, "times": item.times, "seconds": item.seconds}
                for place, item in self.copies.items()
            ],
            "nodes": [
                {"scope": scope, "node": name, "times": item.times, "seconds": item.seconds}
                for (scope, name), item in self.nodes.items()
            ],
        }


def join_trace(report: PlacementReport, trace: Trace, source: str, skip: int = 0) -> MeasuredRuns:
    """Say what a trace says of a placement.

    Args:
        report: of a session that is made as the profiled one was.
        source: where the trace comes from, for messages.
        skip: so many runs at the start don't count. Runs don't overlap.

    Raises:
        EpError: the trace has no run, or is of another placement.
    """
    runs = trace.of("run")[skip:]
    if not runs:
        raise EpError(
            f"'{source}' has no run that counts", expected="a trace of at least one session.run"
        )
    places = _Places(report, source)
    groups = _by_run(trace.events, runs)
    found: dict[tuple[str, Any], list[list[TraceEvent]]] = {}
    kind: str
    for number, events in enumerate(groups):
        for event in events:
            kind, target = places.of(event)
            if target is not None:
                kind = _DEVICE_COPY if event.category == _DEVICE_COPY else kind
                per_run = found.setdefault((kind, target), [[] for _ in runs])
                per_run[number].append(event)
    timings = {key: _timing(per_run) for key, per_run in found.items()}
    partitions = _of_kind(timings, "partition")
    copies = _of_kind(timings, "copy")
    for place, timing in _of_kind(timings, _DEVICE_COPY).items():
        unsure = median(map(_unsure_seconds, found[_DEVICE_COPY, place]))
        if timing.seconds is not None and not _is_unknown(timing.seconds, unsure):
            copies[place] = timing
    nodes = _of_kind(timings, "node")
    for place, timing in partitions.items():
        if timing.seconds is None:
            partitions[place] = Timing(timing.times, _on_device(places, place, found, len(runs)))
    lengths = [run.seconds for run in runs]
    shown = lengths.index(median_low(lengths))
    rows, spans = _spans(groups[shown], runs[shown], places, trace.rows)
    return MeasuredRuns(
        runs=len(runs),
        run_seconds=median(lengths),
        partitions=partitions,
        copies=copies,
        nodes=nodes,
        rows=rows,
        spans=spans,
        as_predicted=all(places.is_as_predicted(event) for event in trace.of("partition")),
    )


class _Places:
    """Finds what an event of a trace is in a report."""

    def __init__(self, report: PlacementReport, source: str) -> None:
        self._source = source
        self._report = report
        self._parts = {(p.scope, p.name): place for place, p in enumerate(report.partitions)}
        self._scopes = {p.name: p.scope for p in report.partitions}
        self._copies = {
            (c.scope, c.value, c.source, c.target): place for place, c in enumerate(report.copies)
        }
        self._nodes = {(scope, n.node) for scope, nodes in report.nodes.items() for n in nodes}

    def of(self, event: TraceEvent) -> tuple[Literal["partition", "copy", "node", "other"], Any]:
        """What kind of thing it is, and which; None for what the report doesn't have.

        Raises:
            EpError: a partition that the report has otherwise, or not at all.
        """
        args = event.args
        try:
            if event.category == "partition":
                return "partition", self._partition(args)
            if event.category == _DEVICE_COPY:
                float(args["right_to_us"])
            if event.category in ("copy", _DEVICE_COPY):
                key = (args["scope"], args["value"], args["from"], args["to"])
                return "copy", self._copies.get(key)
            if event.category == "node":
                node = (self._scopes.get(args["partition"], ""), event.name)
                return "node", node if node in self._nodes else None
        except (KeyError, TypeError) as error:
            raise EpError(
                f"'{self._source}' is no trace of this version of ep-core",
                got=f"a {event.category} {event.name!r} without {error}",
                fix="Make one with: ep profile MODEL --out FILE",
            ) from error
        return "other", None

    def _partition(self, args: Mapping[str, Any]) -> int:
        place = self._parts.get((args["scope"], args["partition"]))
        if place is not None:
            part = self._report.partitions[place]
            names = list(part.nodes[: len(args["nodes"])])
            if (part.provider, len(part.nodes), names) == (
                args["provider"],
                args["node_count"],
                args["nodes"],
            ):
                return place
        raise EpError(
            f"the trace '{self._source}' is of another placement",
            expected=f"partitions {', '.join(p.name for p in self._report.partitions[:4])}",
            got=f"{args['partition']!r} of {args['node_count']} nodes on {args['provider']}",
            fix="Give the model, --providers, --dim and options that were profiled.",
        )

    def is_as_predicted(self, event: TraceEvent) -> bool:
        """False if the session of the trace predicted another time for a partition."""
        seconds = self._report.partitions[self._partition(event.args)].seconds
        told = event.args.get("predicted_us")
        if seconds is None or not isinstance(told, int | float):
            return True
        return math.isclose(seconds * 1e6, told, rel_tol=_ALIKE)

    def nodes_of(self, place: int) -> set[tuple[str, str]]:
        """The nodes of a partition, by scope and name."""
        part = self._report.partitions[place]
        return {(part.scope, name) for name in part.nodes}


def _by_run(events: Iterable[TraceEvent], runs: Sequence[TraceEvent]) -> list[list[TraceEvent]]:
    """The events that are part of each run."""
    starts = [run.start for run in runs]
    found: list[list[TraceEvent]] = [[] for _ in runs]
    for event in events:
        place = bisect.bisect_right(starts, event.start) - 1
        if event.category in _SHOWN and place >= 0 and event.start <= runs[place].end:
            found[place].append(event)
    return found


def _timing(per_run: Sequence[Sequence[TraceEvent]]) -> Timing:
    times = sum(map(len, per_run)) / len(per_run)
    if any(_is_queued(event) for events in per_run for event in events):
        return Timing(times, None)
    return Timing(times, median(sum(event.seconds for event in events) for events in per_run))


def _on_device(
    places: _Places,
    place: int,
    found: Mapping[tuple[str, Any], Sequence[Sequence[TraceEvent]]],
    runs: int,
) -> float | None:
    """What the nodes of a partition took on the device, None if it doesn't tell."""
    events = [found[key] for node in places.nodes_of(place) if (key := ("node", node)) in found]
    if not events:
        return None
    return median(
        sum(event.seconds for per_run in events for event in per_run[number])
        for number in range(runs)
    )


def _of_kind(timings: Mapping[tuple[str, Any], Timing], kind: str) -> dict[Any, Timing]:
    return {target: timing for (other, target), timing in timings.items() if other == kind}


def _is_queued(event: TraceEvent) -> bool:
    return "measured" in event.args


def _unsure_seconds(copies: Sequence[TraceEvent]) -> float:
    """By how much the time of copies on streams may be wrong."""
    return sum(float(event.args["right_to_us"]) for event in copies) / 1e6


def _is_unknown(seconds: float, unsure: float) -> bool:
    return unsure > _MOST_UNSURE * seconds


def _spans(
    events: Sequence[TraceEvent], run: TraceEvent, places: _Places, names: Mapping[int, str]
) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """The rows that a run used, its own thread first, and what happened in them."""
    used = dict.fromkeys([run.row, *sorted(event.row for event in events)])
    rows = {row: place for place, row in enumerate(used)}
    spans = []
    for event in events:
        kind, target = places.of(event)
        spans.append(
            Span(
                row=rows[event.row],
                start=event.start - run.start,
                seconds=event.seconds,
                kind=kind if target is not None else "other",
                target=target,
                label=event.name,
                queued=_is_queued(event),
                unsure=event.category == _DEVICE_COPY
                and _is_unknown(event.seconds, _unsure_seconds([event])),
            )
        )
    return tuple(names.get(row, f"row {row}") for row in used), tuple(spans)
