"""Real pretrained models beside ONNX Runtime: how far outputs lie apart, how long both take.

    python benchmarks/run.py models

One thread on either side; both take turns. Models and inputs are those of the tests, which also
say what differences are to be expected (`docs/real-models.md`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
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


def compare(name: str) -> tuple[str, ...]:
    """Measure one model and return a row of the table."""
    feeds = sample_feeds(name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(fetch(name), options, providers=["CPUExecutionProvider"])
    with InferenceSession(fetch(name)) as ours:
        sides = (ours, theirs)
        # The first run, which warms up, isn't timed.
        error, largest = largest_error(ours.run(None, feeds), theirs.run(None, feeds))
        counts = [
            max(1, round(ROUND_SECONDS / seconds_per_run(session, feeds, 1))) for session in sides
        ]
        pairs = [
            [seconds_per_run(s, feeds, n) for s, n in zip(sides, counts, strict=True)]
            for _ in range(ROUNDS)
        ]
    ratio = statistics.median(our_time / their_time for our_time, their_time in pairs)
    our_time, their_time = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
    return (
        f"{name}: {MODELS[name].kind}",
        f"{error:.1e}",
        f"{largest:.1e}",
        f"{our_time:.2f}",
        f"{their_time:.2f}",
        f"{ratio:.2f}",
    )


def largest_error(ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[float, float]:
    """Return the largest difference over all outputs, and the largest element for comparison."""
    pairs = list(zip(ours, theirs, strict=True))
    for our_value, their_value in pairs:
        assert our_value.dtype == their_value.dtype
        assert our_value.shape == their_value.shape
    error = max(float(np.max(np.abs(a.astype(float) - b))) for a, b in pairs)
    return error, max(float(np.max(np.abs(b))) for _, b in pairs)


def main() -> None:
    """Measure and print."""
    print_table(
        f"{len(MODELS)} pretrained models; times are medians of {ROUNDS} rounds",
        ("model", "max error", "max value", "ep-core, ms", "onnxruntime, ms", "ratio"),
        [compare(name) for name in MODELS],
    )
