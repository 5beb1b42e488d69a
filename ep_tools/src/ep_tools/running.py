"""The work of `ep run`: load, feed, run, show."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ep_core import InferenceSession
from ep_tools.console import Console, format_seconds
from ep_tools.feeds import feeds_for, telling_of_random
from ep_tools.inputs import InputSource
from ep_tools.outputs import OutputSummary, save_outputs, summarise
from ep_tools.progress import Progress
from ep_tools.requests import FeedRequest, SessionRequest
from ep_tools.sessions import open_session

__all__ = ["RunRequest", "run_model"]

_MAX_TEXT = 60


@dataclass(frozen=True)
class RunRequest:
    """What the command line of `ep run` asks for.

    Attributes:
        repeat: runs after the first.
        output: where to save the outputs; None for nowhere.
    """

    session: SessionRequest
    feeds: FeedRequest
    repeat: int
    output: str | None


@dataclass(frozen=True, slots=True)
class Times:
    """Wall-clock seconds: making the session, the first run, the best of the runs after it."""

    load: float
    first_run: float
    best_run: float | None
    repeats: int


def run_model(request: RunRequest, *, as_json: bool) -> int:
    """Run a model as asked and print what came of it; return the exit code.

    Raises:
        EpError: anything that goes wrong, from the arguments to the run.
    """
    console = Console()
    start = time.perf_counter()
    with Progress(console, f"loading {request.session.model}"):
        session = open_session(request.session)
    load = time.perf_counter() - start
    with session:
        feeds, sources = feeds_for(session, request.feeds)
        with Progress(console, "running") as progress, telling_of_random(sources):
            values, first, rest = _timed_runs(session, feeds, request.repeat, progress)
        outputs = {
            arg.name: value for arg, value in zip(session.get_outputs(), values, strict=True)
        }
        times = Times(load, first, min(rest, default=None), request.repeat)
        summaries = [entry for name, value in outputs.items() for entry in summarise(name, value)]
        saved = [] if request.output is None else save_outputs(request.output, outputs)
        placement = session.get_placement()
        if as_json:
            console.json(
                {
                    "model": request.session.model,
                    "inputs": [_input_json(name, feeds[name], sources[name]) for name in feeds],
                    "outputs": [summary.to_json() for summary in summaries],
                    "saved": [str(path) for path in saved],
                    "placement": placement.to_dict(),
                    "seconds": {
                        "load": times.load,
                        "first_run": times.first_run,
                        "best_run": times.best_run,
                        "repeats": times.repeats,
                    },
                }
            )
            return 0
        _show_outputs(console, summaries)
        for path in saved:
            console.line(f"saved      {path}")
        console.line(f"placement  {placement.summary}")
        console.line(f"time       {_times_text(times)}")
    return 0


def _timed_runs(
    session: InferenceSession, feeds: Mapping[str, Any], repeat: int, progress: Progress
) -> tuple[Sequence[Any], float, list[float]]:
    """Return the outputs of the first run, its time, and the times of the others."""
    start = time.perf_counter()
    values = session.run(None, feeds)
    first = time.perf_counter() - start
    rest = []
    for count in range(1, repeat + 1):
        start = time.perf_counter()
        session.run(None, feeds)
        rest.append(time.perf_counter() - start)
        progress.update(count, repeat)
    return values, first, rest


def _input_json(name: str, value: Any, source: InputSource) -> dict[str, Any]:
    (summary,) = summarise(name, value)
    return {
        "name": name,
        "type": summary.type,
        "shape": list(value.shape),
        "source": str(source),
    }


def _show_outputs(console: Console, summaries: Sequence[OutputSummary]) -> None:
    for summary in summaries:
        shape = "" if summary.shape is None else f" {list(summary.shape)}"
        console.line(f"{console.style(summary.name, 'bold')}  {summary.type}{shape}")
        figures = _figures(summary)
        if figures:
            console.line(f"  {figures}")
        if summary.values:
            console.line(f"  {_values(summary)}")


def _figures(summary: OutputSummary) -> str:
    parts = []
    if summary.minimum is not None:
        parts.append(f"min {_number(summary.minimum)}  max {_number(summary.maximum)}")
    if summary.mean is not None:
        parts.append(f"mean {_number(summary.mean)}")
    if summary.nan:
        parts.append(f"{summary.nan} NaN")
    if summary.inf:
        parts.append(f"{summary.inf} infinite")
    return "  ".join(parts)


def _values(summary: OutputSummary) -> str:
    text = ", ".join(_number(value) for value in summary.values)
    return f"{text}, ..." if summary.truncated else text


def _number(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _times_text(times: Times) -> str:
    text = f"load {format_seconds(times.load)}, first run {format_seconds(times.first_run)}"
    if times.best_run is not None:
        text += f", best of {times.repeats} more {format_seconds(times.best_run)}"
    return text
