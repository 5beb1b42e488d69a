"""A trace of `ep_core` in figures: where the time of its runs went.

Reads what `InferenceSession.end_profiling` has written; knows no sessions and prints nothing.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ep_tools.console import scoped

__all__ = ["ProfileSummary", "Share", "summarise_trace"]

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """What one thing (a node, an operator, a partition, a copy) took of the runs that count.

    Attributes:
        name, kind, provider: of the thing; a kind is an operator, or a way between memories.
        times: how often it happened in a run, on average.
        seconds: in a run, on average.
        share: of the time of the runs.
        queued: the seconds are those of handing it to a device, not of the device's work.
        nbytes: moved by a copy in a run, on average.
        predicted: seconds that the provider expected for a run of a partition.
    """

    name: str
    kind: str
    provider: str
    times: float
    seconds: float
    share: float
    queued: bool = False
    nbytes: float | None = None
    predicted: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True)
class ProfileSummary:
    """A trace in figures; each list has the longest first.

    Attributes:
        runs: how many count.
        run_seconds: of one run, on average.
        phases: seconds of making the session, in order.
        silent: providers that ran something and don't tell the times of nodes.
    """

    runs: int
    run_seconds: float
    phases: Mapping[str, float]
    nodes: tuple[Share, ...]
    operators: tuple[Share, ...]
    partitions: tuple[Share, ...]
    copies: tuple[Share, ...]
    waits: tuple[Share, ...]
    silent: tuple[str, ...]

    def without_predictions(self) -> ProfileSummary:
        """Return the same, for predictions that were for something else than was run."""
        partitions = tuple(replace(share, predicted=None) for share in self.partitions)
        copies = tuple(replace(share, predicted=None) for share in self.copies)
        return replace(self, partitions=partitions, copies=copies)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        lists = ("nodes", "operators", "partitions", "copies", "waits")
        return {
            "runs": self.runs,
            "run_seconds": self.run_seconds,
            "phases": dict(self.phases),
            **{name: [share.to_json() for share in getattr(self, name)] for name in lists},
            "providers_without_node_times": list(self.silent),
        }


def summarise_trace(path: str, skip: int) -> ProfileSummary:
    """Sum a trace up.

    Args:
        skip: the first so many runs don't count. Runs don't overlap.
    """
    events = [e for e in json.loads(Path(path).read_text("ascii")) if e["ph"] == "X"]
    runs = sorted((e for e in events if e["cat"] == "run"), key=lambda e: e["ts"])[skip:]
    total = sum(run["dur"] for run in runs) / 1e6
    starts = [run["ts"] for run in runs]

    def counts(event: Event) -> bool:
        place = bisect.bisect_right(starts, event["ts"]) - 1
        return place >= 0 and event["ts"] <= starts[place] + runs[place]["dur"]

    by_category: dict[str, list[Event]] = {}
    for event in events:
        if event["cat"] != "session" and counts(event):
            by_category.setdefault(event["cat"], []).append(event)

    def shares(category: str, key: Callable[[Event], tuple[str, str, str]]) -> tuple[Share, ...]:
        return _shares(by_category.get(category, ()), key, len(runs), total)

    partitions = shares("partition", lambda e: (e["args"]["partition"], "", e["args"]["provider"]))
    nodes = by_category.get("node", ())
    telling = {event["args"]["provider"] for event in nodes}
    scopes = {e["args"]["partition"]: e["args"]["scope"] for e in by_category.get("partition", ())}
    return ProfileSummary(
        runs=len(runs),
        run_seconds=total / max(len(runs), 1),
        phases={e["name"]: e["dur"] / 1e6 for e in events if e["cat"] == "session"},
        nodes=shares("node", lambda event: _node_key(event, scopes)),
        operators=shares("node", lambda e: (e["args"]["operator"], "", e["args"]["provider"])),
        partitions=partitions,
        copies=shares("copy", _copy_key),
        waits=shares("wait", lambda e: (e["name"].removesuffix(", queued"), "", "")),
        silent=tuple(sorted({part.provider for part in partitions} - telling)),
    )


def _node_key(event: Event, scopes: Mapping[str, str]) -> tuple[str, str, str]:
    args = event["args"]
    name = scoped(scopes.get(args["partition"], ""), event["name"])
    return name, args["operator"], args["provider"]


def _copy_key(event: Event) -> tuple[str, str, str]:
    args = event["args"]
    return args["value"], f"{args['from']} -> {args['to']}", ""


def _shares(
    events: Iterable[Event], key: Callable[[Event], tuple[str, str, str]], runs: int, total: float
) -> tuple[Share, ...]:
    groups: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        groups.setdefault(key(event), []).append(event)
    found = [_share(names, group, runs, total) for names, group in groups.items()]
    return tuple(sorted(found, key=lambda share: (-share.seconds, share.name)))


def _share(names: tuple[str, str, str], group: Sequence[Event], runs: int, total: float) -> Share:
    seconds = sum(event["dur"] for event in group) / 1e6
    args = group[0]["args"]
    moved = [event["args"]["bytes"] for event in group if "bytes" in event["args"]]
    predicted = args.get("predicted_us")
    return Share(
        *names,
        times=len(group) / runs,
        seconds=seconds / runs,
        share=seconds / total if total else 0.0,
        queued="measured" in args,
        nbytes=sum(moved) / runs if moved else None,
        predicted=None if predicted is None else predicted * len(group) / runs / 1e6,
    )
