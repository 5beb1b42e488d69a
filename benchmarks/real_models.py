"""Real pretrained models beside ONNX Runtime: right answers, placement, and how long both take.

    python benchmarks/run.py models
    python benchmarks/run.py models --providers openvino,cpu --providers openvino,cpu:tune

Models and inputs are those of the tests, which also say what differences are to be expected
(`docs/real-models.md`). All sides have the same processors and take turns, round by round. Ratios
are medians over rounds of ONNX Runtime's time by ours: above 1 we are faster.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from ep_core import EpError, InferenceSession, PlacementReport
from mixes import Mix
from pretrained import MODELS, fetch
from pretrained.answers import TOLERANCE, check_answer
from pretrained.samples import Feeds, sample_feeds
from table import print_table

__all__ = ["main"]

ROUNDS = 7
ROUND_SECONDS = 0.1
HEAD = (
    "model",
    "answer",
    "max error",
    "nodes",
    "parts",
    "copies planned",
    "copies run",
    "KiB run",
    "opened, s",
    "ours, ms",
    "theirs, ms",
    "ratio",
)


@dataclass
class Side:
    """One session of ours, and what is found out about it."""

    mix: Mix
    session: InferenceSession
    opened: float
    answer: str = ""
    error: float = 0.0
    copied: tuple[int, int] = (0, 0)
    count: int = 1
    times: list[float] = field(default_factory=list)

    def row(self, name: str, theirs: Sequence[float]) -> tuple[str, ...]:
        """The row of a table."""
        report = self.session.get_placement()
        copies, moved = self.copied
        return (
            name,
            self.answer,
            f"{self.error:.1e}",
            nodes(report),
            str(len(report.partitions)),
            str(len(report.copies)),
            str(copies),
            f"{moved / 1024:.1f}",
            f"{self.opened:.1f}",
            f"{statistics.median(self.times) * 1e3:.2f}",
            f"{statistics.median(theirs) * 1e3:.2f}",
            f"{self.ratio(theirs):.2f}",
        )

    def ratio(self, theirs: Sequence[float]) -> float:
        """Their time by ours, the median over rounds."""
        return statistics.median(b / a for a, b in zip(self.times, theirs, strict=True))


@dataclass(frozen=True)
class Conditions:
    """What all sides have in common.

    Attributes:
        threads: in an operator, on either side.
        fixed: whether the lengths that a model leaves open are told when it is opened.
        costs: folder of measured costs.
    """

    threads: int
    fixed: bool
    costs: str


def nodes(report: PlacementReport) -> str:
    """Nodes on each provider, such as `openvino 12 + cpu 3`."""
    counts = Counter(p.provider for nodes in report.nodes.values() for p in nodes)
    return " + ".join(f"{name} {count}" for name, count in counts.most_common())


def open_lengths(name: str, feeds: Feeds) -> dict[str, int]:
    """The lengths of the feeds where the model leaves them open, by name, or by input and axis."""
    found: dict[str, set[int]] = {}
    inputs = onnx.load(fetch(name), load_external_data=False).graph.input
    for info in (info for info in inputs if info.name in feeds):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                named = f"{info.name}.{axis}" if dim.dim_param in ("", "?") else dim.dim_param
                found.setdefault(named, set()).add(feeds[info.name].shape[axis])
    # Some models give one name to dimensions of several lengths.
    return {named: lengths.pop() for named, lengths in found.items() if len(lengths) == 1}


def seconds_per_run(session: Any, feeds: Feeds, count: int) -> float:
    """Time `count` runs and return the seconds of one."""
    begin = time.perf_counter()
    for _ in range(count):
        session.run(None, feeds)
    return (time.perf_counter() - begin) / count


def runs_per_round(session: Any, feeds: Feeds) -> int:
    """How many runs fill a round; the first ones, which warm up, don't count."""
    seconds_per_run(session, feeds, 2)
    return max(1, round(ROUND_SECONDS / seconds_per_run(session, feeds, 1)))


def judge(name: str, ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[str, float]:
    """Return `right`, `far off` or `wrong`, and the largest difference from ONNX Runtime's."""
    pairs = list(zip(ours, theirs, strict=True))
    if any((a.dtype, a.shape) != (b.dtype, b.shape) for a, b in pairs):
        return "wrong", float("inf")
    error = max(float(np.max(np.abs(a.astype(float) - b))) for a, b in pairs)
    try:
        check_answer(name, ours)
    except AssertionError:
        return "wrong", error
    rtol, atol = TOLERANCE[name]["rtol"], TOLERANCE[name]["atol"]
    close = all(np.allclose(a, b, rtol, atol) for a, b in pairs)
    return "right" if close else "far off", error


def copies_run(
    mix: Mix, name: str, lengths: dict[str, int], feeds: Feeds, conditions: Conditions
) -> tuple[int, int]:
    """How many copies one run makes, and how many bytes they move, by a trace."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "trace")
        with mix.open(
            fetch(name),
            lengths,
            threads=conditions.threads,
            costs=conditions.costs,
            profile=prefix,
        ) as session:
            session.run(None, feeds)
            trace = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    moved = [event["args"]["bytes"] for event in trace if event.get("cat") == "copy"]
    return len(moved), sum(moved)


def opened(name: str, feeds: Feeds, mixes: Iterable[Mix], conditions: Conditions) -> list[Side]:
    """A session of ours for each mix; one that can't be opened is told and left out."""
    lengths = open_lengths(name, feeds) if conditions.fixed else {}
    sides = []
    for mix in mixes:
        begin = time.perf_counter()
        try:
            session = mix.open(
                fetch(name), lengths, threads=conditions.threads, costs=conditions.costs
            )
            side = Side(mix, session, time.perf_counter() - begin)
            if session.get_placement().copies:
                side.copied = copies_run(mix, name, lengths, feeds, conditions)
        except EpError as error:
            print(f"{name} on {mix}: {type(error).__name__}: {error}", flush=True)
        else:
            sides.append(side)
    return sides


def compare(
    name: str, mixes: Iterable[Mix], conditions: Conditions
) -> tuple[list[Side], list[float]]:
    """Measure one model; return our sides, closed, and ONNX Runtime's times by round."""
    feeds = sample_feeds(name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = conditions.threads
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(fetch(name), options, providers=["CPUExecutionProvider"])
    expected = theirs.run(None, feeds)
    count = runs_per_round(theirs, feeds)
    sides = opened(name, feeds, mixes, conditions)
    times = []
    for side in sides:
        side.answer, side.error = judge(name, side.session.run(None, feeds), expected)
        side.count = runs_per_round(side.session, feeds)
    for _ in range(ROUNDS):
        times.append(seconds_per_run(theirs, feeds, count))
        for side in sides:
            side.times.append(seconds_per_run(side.session, feeds, side.count))
    for side in sides:
        side.session.close()
    return sides, times


@contextlib.contextmanager
def processors(count: int) -> Iterator[None]:
    """Keep to so many processors where that can be, as drivers have threads of their own."""
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def main(
    mixes: Sequence[Mix] = (Mix(("cpu",)),),
    names: Sequence[str] = tuple(MODELS),
    *,
    threads: int = 1,
    fixed: bool = False,
    costs: str = "",
) -> None:
    """Measure and print: a table for each mix, then one of all ratios."""
    with tempfile.TemporaryDirectory() as folder, processors(threads):
        conditions = Conditions(threads, fixed, costs or folder)
        rows: dict[Mix, list[tuple[str, ...]]] = {mix: [] for mix in mixes}
        ratios = []
        for name in names:
            sides, theirs = compare(name, mixes, conditions)
            found = {side.mix: side for side in sides}
            for mix, side in found.items():
                rows[mix].append(side.row(name, theirs))
            cells = [f"{found[mix].ratio(theirs):.2f}" if mix in found else "-" for mix in mixes]
            print(name, *cells, file=sys.stderr, flush=True)
            ratios.append((f"{name}: {MODELS[name].kind}", *cells))
    print(
        f"{len(names)} pretrained models beside ONNX Runtime's CPU provider; certificates don't"
        f" count; medians of {ROUNDS} rounds; open lengths "
        f"{'told beforehand' if fixed else 'left open'}; ratio above 1: ours is faster"
    )
    for mix in mixes:
        print_table(f"\n{mix}", HEAD, rows[mix])
    if len(mixes) > 1:
        print_table("\nRatios", ("model", *map(str, mixes)), ratios)
