"""The native core beside ONNX Runtime: a run on one and two threads, and making a session.

    python benchmarks/run.py native

The two sides take turns. Before its turn a side waits and runs once unmeasured: the threads of
ONNX Runtime look for work for a while after a run, and would take a core from the other side.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

import networks
import quantised_networks
from ep_core import CertificatePolicy, InferenceSession, SessionOptions
from pretrained import fetch
from pretrained.samples import sample_feeds
from table import print_table

__all__ = ["main"]

Builder = Callable[[], tuple[bytes, dict[str, networks.Array]]]


def yolov8n() -> tuple[bytes, dict[str, networks.Array]]:
    """Return the pretrained detector and a feed of one picture of 320 by 320 points."""
    return fetch("picture-detector").read_bytes(), dict(sample_feeds("picture-detector"))


BUILDERS: dict[str, Builder] = {
    "digits, 1 picture": networks.digits,
    "digits, 64 pictures": lambda: networks.digits(64),
    "MiniLM, 128 tokens": networks.minilm,
    "BERT-base, 128 tokens": networks.bert_base,
    "ResNet-50": networks.resnet50,
    "MobileNetV2": networks.mobilenet_v2,
    "YOLOv8n, 320 x 320": yolov8n,
    "ResNet-50, 8 bits": quantised_networks.resnet50_qdq,
    "BERT-base, 8-bit weights": quantised_networks.bert_base_dynamic,
    "ResNet-50, bf16": networks.resnet50,
    "BERT-base, bf16": networks.bert_base,
    "LSTM, 50 steps": networks.lstm,
}
OPTIONS: dict[str, dict[str, str]] = {
    name: {"precision": "bf16"} for name in BUILDERS if name.endswith("bf16")
}
"""Beside ONNX Runtime in float32, where a network has some."""
THREADS = (1, 2)
ROUNDS = 15
ROUND_SECONDS = 0.02
PAUSE_SECONDS = 0.03


def turn(session: Any, feeds: dict[str, Any], count: int) -> float:
    """Seconds of a run, over `count` runs."""
    time.sleep(PAUSE_SECONDS)
    session.run(None, feeds)
    begin = time.perf_counter()
    for _ in range(count):
        session.run(None, feeds)
    return (time.perf_counter() - begin) / count


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """What `make` makes, and the seconds that it takes."""
    begin = time.perf_counter()
    made = make()
    return made, time.perf_counter() - begin


def compare(name: str, threads: int) -> tuple[str, ...]:
    """Measure one network and return a row of the table."""
    model, feeds = BUILDERS[name]()
    their_options = onnxruntime.SessionOptions()
    their_options.intra_op_num_threads = threads
    our_options = SessionOptions()
    our_options.intra_op_num_threads = threads
    # How fast it is doesn't depend on whether the present sources are certified.
    our_options.certificate_policy = CertificatePolicy.OFF
    theirs, their_start = timed(
        lambda: onnxruntime.InferenceSession(
            model, their_options, providers=["CPUExecutionProvider"]
        )
    )
    providers = [("cpu", OPTIONS.get(name, {}))]
    ours, our_start = timed(lambda: InferenceSession(model, our_options, providers=providers))
    with ours:
        pairs = list(zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True))
        error = max(float(np.abs(one - other).max() / np.abs(other).max()) for one, other in pairs)
        count = max(1, round(ROUND_SECONDS / turn(theirs, feeds, 1)))
        times = [
            [turn(side, feeds, count) for side in (ours, theirs)]
            if number % 2
            else [turn(side, feeds, count) for side in (theirs, ours)][::-1]
            for number in range(ROUNDS)
        ]
    our_time, their_time = (statistics.median(side) * 1e3 for side in zip(*times, strict=True))
    ratio = statistics.median(their / our for our, their in times)
    return (
        name,
        str(threads),
        f"{error:.0e}",
        f"{our_time:.3f}",
        f"{their_time:.3f}",
        f"{ratio:.2f}",
        f"{our_start:.2f}",
        f"{their_start:.2f}",
    )


def main() -> None:
    """Measure and print."""
    print_table(
        f"Networks of known forms; medians of {ROUNDS} rounds, onnxruntime's time over ours",
        (
            *("network", "threads", "relative error", "ep-cpu, ms", "onnxruntime, ms", "ratio"),
            *("session, s", "onnxruntime's, s"),
        ),
        [compare(name, threads) for name in BUILDERS for threads in THREADS],
    )
