"""Reads a trace of `ep_core` from its file, strictly; what it means is for others to say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ep_core.errors import EpError

__all__ = ["Trace", "TraceEvent", "read_trace"]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that took time.

    Attributes:
        start, seconds: since the trace began, and how long.
        row: where it happened: a thread of the host, or a queue of a device.
    """

    name: str
    category: str
    start: float
    seconds: float
    row: int
    args: Mapping[str, Any]

    @property
    def end(self) -> float:
        """When it was over."""
        return self.start + self.seconds


@dataclass(frozen=True)
class Trace:
    """What is in a file.

    Attributes:
        events: in the order of their starts; one that is around others comes before them.
        rows: names of threads and queues.
    """

    events: tuple[TraceEvent, ...]
    rows: Mapping[int, str]

    def of(self, category: str) -> Sequence[TraceEvent]:
        """The events of one category, in order."""
        return [event for event in self.events if event.category == category]


def read_trace(path: str) -> Trace:
    """Read a file that `end_profiling` or `ep profile` has written.

    Raises:
        EpError: it can't be read, or is no such trace.
    """
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        listed = content["traceEvents"] if isinstance(content, dict) else content
        rows = {
            int(item["tid"]): str(item["args"]["name"])
            for item in listed
            if item["ph"] == "M" and item["name"] == "thread_name"
        }
        events = [_event(item) for item in listed if item["ph"] == "X"]
    except OSError as error:
        raise EpError(f"the trace can't be read from '{path}'", got=str(error)) from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise EpError(
            f"'{path}' is no trace of ep-core",
            expected="a JSON file as ep profile writes it",
            got=f"{type(error).__name__}: {error}",
            fix="Make one with: ep profile MODEL --out FILE",
        ) from error
    events.sort(key=lambda event: (event.start, -event.seconds))
    return Trace(tuple(events), rows)


def _event(item: Mapping[str, Any]) -> TraceEvent:
    start, seconds = float(item["ts"]) / 1e6, float(item["dur"]) / 1e6
    if not (math.isfinite(start) and math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"an event at {item['ts']} of length {item['dur']}")
    args = item.get("args", {})
    if not isinstance(args, dict):
        raise TypeError(f"args {args!r}")
    return TraceEvent(str(item["name"]), str(item["cat"]), start, seconds, int(item["tid"]), args)
