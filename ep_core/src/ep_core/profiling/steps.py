"""Steps of a plan that are timed when they run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ep_core.binding.planner import CopyInto, Duplicate
from ep_core.contracts import Allocator, ExecutionProvider
from ep_core.profiling.trace import Trace
from ep_core.profiling.watching import CopyWatch, WatchedCopy
from ep_core.report import CopyReport, PartitionReport
from ep_core.running.plan import (
    NO_STREAM,
    Copy,
    HostWait,
    Plan,
    Record,
    Release,
    Run,
    RunState,
    Step,
    StreamWait,
)
from ep_core.types import HOST_MEMORY

__all__ = ["timed_plan"]

_COPIES = (Copy, CopyInto, Duplicate)
_SHOWN_NODES = 20
"""Each run of a partition names so many of its nodes; its compilation names them all."""


@dataclass(frozen=True, slots=True)
class _TimedStep:
    """A step, and what the trace says of it.

    Attributes:
        queued: it only hands work to a stream: what is timed is that, not the work.
        counted: its memory is noted afterwards.
    """

    step: Step
    trace: Trace
    name: str
    category: str
    args: Mapping[str, Any] = field(default_factory=dict)
    queued: bool = False
    counted: Allocator | None = None

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return self.step.label

    def execute(self, values: list[Any], state: RunState) -> None:
        args = dict(self.args)
        if isinstance(self.step, _COPIES):
            source = values[self.step.source]
            if source is not None and not isinstance(source, list | dict):
                args["bytes"] = int(source.nbytes)
        name = self.name
        if self.queued:
            name += ", queued"
            args["measured"] = "handing it to a stream, which does the work later"
        start = time.perf_counter_ns()
        try:
            self.step.execute(values, state)
        finally:
            end = time.perf_counter_ns()
            self.trace.add(name, self.category, start, end, **args)
        if self.counted is not None:
            used = self.counted.stats().in_use_bytes
            self.trace.count(f"bytes in use, {self.counted.memory}", in_use=used)


def timed_plan(
    plan: Plan,
    scope: str,
    parts: Sequence[PartitionReport],
    copies: Sequence[CopyReport],
    providers: Mapping[str, ExecutionProvider],
    trace: Trace,
    watch: CopyWatch,
) -> Plan:
    """Return the plan with its steps timed; those that take no time worth noting stay as they are.

    Args:
        scope: of the plan's graph.
        parts: what is known of its partitions, in the order of their steps.
        copies: likewise, in any order.
        providers: by name.
    """
    remaining = iter(parts)
    predicted = {(copy.value, copy.source, copy.target): copy.seconds for copy in copies}
    steps: list[Step] = []
    for step in plan.steps:
        if isinstance(step, _TimedStep | WatchedCopy | Record | Release):
            steps.append(step)
        elif isinstance(step, Run):
            part = next(remaining)
            steps.append(_timed_run(step, part, providers[part.provider], trace))
        elif isinstance(step, _COPIES):
            steps.append(_timed_copy(step, scope, predicted, trace, watch))
        elif isinstance(step, HostWait):
            steps.append(_TimedStep(step, trace, "wait for a stream", "wait"))
        elif isinstance(step, StreamWait):
            steps.append(
                _TimedStep(step, trace, "wait of a stream for another", "wait", queued=True)
            )
        else:
            steps.append(_TimedStep(step, trace, step.label, "control flow", {"scope": scope}))
    return replace(plan, steps=tuple(steps))


def _timed_copy(
    step: Copy | CopyInto | Duplicate,
    scope: str,
    predicted: Mapping[tuple[str, str, str], float | None],
    trace: Trace,
    watch: CopyWatch,
) -> Step:
    hop = None if isinstance(step, Duplicate) else step.hop
    source, target = (HOST_MEMORY, HOST_MEMORY) if hop is None else (hop.source, hop.target)
    args = {"value": step.value, "from": str(source), "to": str(target), "scope": scope}
    args |= _prediction(predicted.get((step.value, str(source), str(target))))
    queued = not isinstance(step, Duplicate) and step.stream != NO_STREAM
    allocator = step.allocator if isinstance(step, Copy) else None
    name = f"copy {step.value}"
    timed = _TimedStep(step, trace, name, "copy", args, queued, allocator)
    if isinstance(step, Duplicate) or not queued:
        return timed
    row = f"copies {source.device} to {target.device}"
    return WatchedCopy(timed, step.stream, name, row, args, watch)


def _timed_run(
    step: Run,
    part: PartitionReport,
    provider: ExecutionProvider,
    trace: Trace,
) -> Step:
    args: dict[str, Any] = {
        "partition": part.name,
        "provider": part.provider,
        "scope": part.scope,
        "node_count": len(part.nodes),
        "nodes": list(part.nodes[:_SHOWN_NODES]),
        **_prediction(part.seconds),
    }
    queued = step.stream != NO_STREAM
    return _TimedStep(step, trace, part.name, "partition", args, queued, provider.allocator)


def _prediction(seconds: float | None) -> dict[str, Any]:
    return {} if seconds is None else {"predicted_us": seconds * 1e6}
