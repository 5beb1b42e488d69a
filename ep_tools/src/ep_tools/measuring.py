"""The work of `ep bench`: how long a model takes, alone or beside ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ep_core import InferenceSession
from ep_tools.comparing import compare_outputs, difference_rows
from ep_tools.console import Console, format_seconds
from ep_tools.differences import Difference
from ep_tools.feeds import feeds_for, telling_of_random
from ep_tools.inputs import InputSource
from ep_tools.progress import Progress
from ep_tools.requests import FeedRequest, SessionRequest, Tolerance
from ep_tools.sessions import OnnxRuntimeSession, Session, onnxruntime_module, open_session
from ep_tools.sides import ONNXRUNTIME
from ep_tools.timing import Pace, Statistics, ratio_spread, take_turns, timed_run

__all__ = ["BenchRequest", "measure"]

OURS = "ep-core"


@dataclass(frozen=True)
class BenchRequest:
    """What the command line of `ep bench` asks for.

    Attributes:
        warmup: runs after the first that don't count.
        duration, runs, threads: as in `Pace`.
        versus: measure ONNX Runtime beside.
        import_seconds: what loading our modules took.
        warnings: sentences on what keeps the numbers from being fair.
    """

    session: SessionRequest
    feeds: FeedRequest
    tolerance: Tolerance
    warmup: int
    duration: float
    runs: int | None
    threads: int
    versus: bool
    import_seconds: float
    warnings: Sequence[str]


@dataclass(frozen=True)
class Contender:
    """One side, loaded and warm.

    Attributes:
        estimate: seconds of one warm run.
    """

    name: str
    session: Session
    import_seconds: float
    load_seconds: float
    first_seconds: float
    outputs: list[Any]
    estimate: float


@dataclass(frozen=True)
class Verdict:
    """Both sides beside one another: the ratio of the medians, ours by theirs, and its spread."""

    ratio: float
    low: float
    high: float
    rounds: int
    differences: tuple[Difference, ...]

    @property
    def agrees(self) -> bool:
        """True if the outputs do."""
        return all(difference.agrees for difference in self.differences)


def measure(request: BenchRequest, *, as_json: bool) -> int:
    """Print how long the model takes; return 0, or 1 if the two sides' outputs differ.

    Raises:
        EpError: a side can't load or run the model, or ONNX Runtime is missing.
    """
    console = Console()
    sessions: list[Session] = []
    try:
        sides, feeds = _prepare(console, request, sessions)
        ours = sessions[0]
        assert isinstance(ours, InferenceSession)
        placement = ours.get_placement().summary
        names = [arg.name for arg in ours.get_outputs()]
        pace = Pace(request.runs, request.duration, request.threads)
        with Progress(console, "measuring") as progress:
            rounds = take_turns(
                sessions, feeds, pace, [side.estimate for side in sides], progress.update
            )
    finally:
        for session in sessions:
            session.close()
    statistics = [Statistics.of(entries) for entries in rounds]
    verdict = None
    if len(sides) == 2:
        outputs = [dict(zip(names, side.outputs, strict=True)) for side in sides]
        verdict = Verdict(
            statistics[0].p50 / statistics[1].p50,
            *ratio_spread(rounds),
            rounds=len(rounds[0]),
            differences=tuple(compare_outputs(outputs[0], outputs[1], request.tolerance)),
        )
    if as_json:
        console.json(_to_json(request, placement, sides, statistics, verdict))
    else:
        _show(console, request, placement, sides, statistics)
        if verdict is not None:
            _show_verdict(console, verdict)
    return 0 if verdict is None or verdict.agrees else 1


def _prepare(
    console: Console, request: BenchRequest, sessions: list[Session]
) -> tuple[list[Contender], dict[str, Any]]:
    """Load and warm up; return the sides and the feeds, the same for both.

    Sessions are added to the list as soon as they exist, so that the caller can close them.
    """
    sides = []
    feeds: dict[str, Any] = {}
    sources: dict[str, InputSource] = {}
    for name in (OURS, ONNXRUNTIME) if request.versus else (OURS,):
        with Progress(console, f"{name}: loading {request.session.model}") as progress:
            start = time.perf_counter()
            if name == ONNXRUNTIME:
                onnxruntime_module()
            imported = time.perf_counter()
            theirs = name == ONNXRUNTIME
            session: Session = (
                OnnxRuntimeSession(request.session) if theirs else open_session(request.session)
            )
            sessions.append(session)
            loaded = time.perf_counter()
            if not theirs:
                feeds, sources = feeds_for(session, request.feeds)
            with telling_of_random(sources):
                outputs, first = timed_run(session, feeds)
            estimate = first
            for count in range(1, request.warmup + 1):
                _, estimate = timed_run(session, feeds)
                progress.update(count, request.warmup, "warm-up")
        sides.append(
            Contender(
                name,
                session,
                imported - start if theirs else request.import_seconds,
                loaded - imported,
                first,
                outputs,
                estimate,
            )
        )
    return sides, feeds


# ---------------------------------------------------------------- showing


def _to_json(
    request: BenchRequest,
    placement: str,
    sides: Sequence[Contender],
    statistics: Sequence[Statistics],
    verdict: Verdict | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "model": request.session.model,
        "placement": placement,
        "threads": request.threads,
        "intra_op_num_threads": request.session.intra_op_num_threads,
        "warmup": request.warmup,
        "warnings": list(request.warnings),
        "sides": [
            {
                "name": side.name,
                "seconds": {
                    "import": side.import_seconds,
                    "load": side.load_seconds,
                    "first_run": side.first_seconds,
                    "min": figures.minimum,
                    "mean": figures.mean,
                    "p50": figures.p50,
                    "p90": figures.p90,
                    "p99": figures.p99,
                },
                "runs": figures.runs,
                "runs_per_second": figures.runs_per_second,
            }
            for side, figures in zip(sides, statistics, strict=True)
        ],
    }
    if verdict is not None:
        document["ratio"] = {
            "of_medians": verdict.ratio,
            "low": verdict.low,
            "high": verdict.high,
            "rounds": verdict.rounds,
        }
        document["agree"] = verdict.agrees
        document["outputs"] = [difference.to_json() for difference in verdict.differences]
    return document


def _show(
    console: Console,
    request: BenchRequest,
    placement: str,
    sides: Sequence[Contender],
    statistics: Sequence[Statistics],
) -> None:
    inner = request.session.intra_op_num_threads
    console.line(f"{console.style('placement', 'bold')}  {placement}")
    console.line(
        f"{console.style('threads', 'bold')}    {request.threads} at the same time, "
        f"{inner} inside an operator"
    )
    for warning in request.warnings:
        console.warning(warning)
    console.line()
    rows = [["", *(side.name for side in sides)]]
    rows += [
        ["import", *(format_seconds(side.import_seconds) for side in sides)],
        ["load", *(format_seconds(side.load_seconds) for side in sides)],
        ["first run", *(format_seconds(side.first_seconds) for side in sides)],
        ["runs", *(str(figures.runs) for figures in statistics)],
        ["min", *(format_seconds(figures.minimum) for figures in statistics)],
        ["mean", *(format_seconds(figures.mean) for figures in statistics)],
        ["p50", *(format_seconds(figures.p50) for figures in statistics)],
        ["p90", *(format_seconds(figures.p90) for figures in statistics)],
        ["p99", *(format_seconds(figures.p99) for figures in statistics)],
        ["runs per second", *(f"{figures.runs_per_second:.1f}" for figures in statistics)],
    ]
    for line in console.columns(rows, right=True):
        console.line(line)


def _show_verdict(console: Console, verdict: Verdict) -> None:
    console.line()
    console.line(
        f"{console.style('ratio', 'bold')}      {verdict.ratio:.2f} (median of {OURS} by median of "
        f"{ONNXRUNTIME}; {verdict.low:.2f} to {verdict.high:.2f} in {verdict.rounds} rounds)"
    )
    if verdict.agrees:
        console.line(f"{console.style('outputs', 'bold')}    agree")
        return
    console.line(f"{console.style('outputs', 'bold')}    {console.style('differ', 'red')}")
    for line in console.columns(difference_rows(console, verdict.differences)):
        console.line(f"  {line}")
