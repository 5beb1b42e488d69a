"""How long real pretrained models take, beside ONNX Runtime, each with one thread."""

from __future__ import annotations

import statistics
import time
from typing import Any

import onnxruntime

from ep_core import InferenceSession
from pretrained import MODELS, fetch
from pretrained.samples import sample_feeds
from table import print_table

__all__ = ["main"]

ROUNDS = 7
ROUND_SECONDS = 0.1


def seconds_per_run(session: Any, feeds: dict[str, Any], count: int) -> float:
    """Time `count` runs and return the seconds of one."""
    begin = time.perf_counter()
    for _ in range(count):
        session.run(None, feeds)
    return (time.perf_counter() - begin) / count


def compare(name: str) -> tuple[str, str, str, str]:
    """Measure one model and return a row of the table."""
    feeds = sample_feeds(name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(fetch(name), options, providers=["CPUExecutionProvider"])
    with InferenceSession(fetch(name)) as ours:
        sides = (ours, theirs)
        counts = [_count_for(session, feeds) for session in sides]
        pairs = [
            [seconds_per_run(s, feeds, n) for s, n in zip(sides, counts, strict=True)]
            for _ in range(ROUNDS)
        ]
    ratio = statistics.median(our_time / their_time for our_time, their_time in pairs)
    our_time, their_time = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
    return f"{name}: {MODELS[name].kind}", f"{our_time:.2f}", f"{their_time:.2f}", f"{ratio:.2f}"


def _count_for(session: Any, feeds: dict[str, Any]) -> int:
    """How many runs fill a round; the first run, which warms up, isn't looked at."""
    session.run(None, feeds)
    return max(1, round(ROUND_SECONDS / seconds_per_run(session, feeds, 1)))


def main() -> None:
    """Measure and print."""
    print_table(
        f"Pretrained models, median of {ROUNDS} rounds",
        ("model", "ep-core, ms", "onnxruntime, ms", "ratio"),
        [compare(name) for name in MODELS],
    )
