"""Runs sessions in turns and keeps the times; the figures that sum times up.

Knows nothing of where sessions come from or how results are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_tools.sessions import Session

__all__ = ["Pace", "Statistics", "Times", "ratio_spread", "take_turns", "timed_run"]

ROUND_SECONDS = 0.1
"""One side's turn: long enough for the clock, short enough to share the machine's moods."""
MIN_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """How much to measure.

    Attributes:
        runs: of each thread; None measures by `duration`.
        duration: seconds, all sides together.
        threads: that run a session at the same time.
    """

    runs: int | None
    duration: float
    threads: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Seconds of one run, in figures, and runs per second of all threads together."""

    runs: int
    minimum: float
    mean: float
    p50: float
    p90: float
    p99: float
    runs_per_second: float

    @classmethod
    def of(cls, rounds: Sequence[Times]) -> Statistics:
        """Sum up the rounds of one side."""
        seconds = np.concatenate([np.array(entry.seconds) for entry in rounds])
        p50, p90, p99 = np.percentile(seconds, [50, 90, 99]).tolist()
        return cls(
            runs=len(seconds),
            minimum=float(seconds.min()),
            mean=float(seconds.mean()),
            p50=p50,
            p90=p90,
            p99=p99,
            runs_per_second=len(seconds) / sum(entry.wall for entry in rounds),
        )


@dataclass(frozen=True, slots=True)
class Times:
    """One round of one side: the seconds of every run, and those of the whole round."""

    seconds: tuple[float, ...]
    wall: float


def timed_run(session: Session, feeds: Mapping[str, Any]) -> tuple[list[Any], float]:
    """Run once; return the outputs and the seconds."""
    start = time.perf_counter()
    outputs = session.run(None, feeds)
    return outputs, time.perf_counter() - start


def take_turns(
    sessions: Sequence[Session],
    feeds: Mapping[str, Any],
    pace: Pace,
    estimates: Sequence[float],
    report: Callable[[float, float], None],
) -> list[list[Times]]:
    """Measure sessions in rounds; who begins changes from round to round.

    Args:
        sessions: warmed up.
        feeds: the inputs, the same for all.
        pace: when to stop; at least three rounds if there are several sessions.
        estimates: seconds of one run of each session.
        report: told how much is done, and of how much.

    Returns:
        The rounds of each session.
    """
    batches = [max(1, round(ROUND_SECONDS / max(seconds, 1e-9))) for seconds in estimates]
    rounds: list[list[Times]] = [[] for _ in sessions]
    left = [pace.runs] * len(sessions)
    least = MIN_ROUNDS if len(sessions) > 1 else 1
    start = time.perf_counter()
    order = list(range(len(sessions)))
    with ThreadPoolExecutor(pace.threads) as pool:
        while True:
            for side in order:
                batch = batches[side]
                remaining = left[side]
                if remaining is not None:
                    # Rounds of a fixed number of runs are cut so that there are several.
                    batch = min(batch, remaining, -(-(pace.runs or 1) // least))
                    left[side] = remaining - batch
                if batch:
                    rounds[side].append(_round(pool, sessions[side], feeds, batch, pace.threads))
            order.reverse()
            if pace.runs is not None:
                done = sum(pace.runs - (n or 0) for n in left)
                total = pace.runs * len(sessions)
                report(done, total)
                if done == total:
                    return rounds
            else:
                elapsed = time.perf_counter() - start
                report(min(elapsed, pace.duration), pace.duration)
                if elapsed >= pace.duration and len(rounds[0]) >= least:
                    return rounds


def ratio_spread(rounds: Sequence[Sequence[Times]]) -> tuple[float, float]:
    """Return the 10% and the 90% point of the ratios of the medians, first by second, per round."""
    ratios = [
        float(np.median(first.seconds) / np.median(second.seconds))
        for first, second in zip(*rounds, strict=False)
    ]
    low, high = np.percentile(ratios, [10, 90]).tolist()
    return low, high


def _round(
    pool: ThreadPoolExecutor, session: Session, feeds: Mapping[str, Any], batch: int, threads: int
) -> Times:
    start = time.perf_counter()
    if threads == 1:
        seconds = _series(session, feeds, batch)
    else:
        series = [pool.submit(_series, session, feeds, batch) for _ in range(threads)]
        seconds = tuple(value for one in series for value in one.result())
    return Times(seconds, time.perf_counter() - start)


def _series(session: Session, feeds: Mapping[str, Any], batch: int) -> tuple[float, ...]:
    clock = time.perf_counter
    run = session.run
    seconds = []
    for _ in range(batch):
        start = clock()
        run(None, feeds)
        seconds.append(clock() - start)
    return tuple(seconds)
