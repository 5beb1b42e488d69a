"""The OpenVINO provider beside OpenVINO itself: runs, starts, and many requests at once.

    python benchmarks/run.py openvino

Both sides compile with the same settings and get the same arrays; both hand out results that stay
good after the next run. They take turns, round by round, and a number is the median over rounds.
OpenVINO's own best call writes into a tensor that its request has already and reads the result
from another. Needs `ep-openvino`.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import openvino

from ep_core import CertificatePolicy, InferenceSession, SessionOptions
from networks import Array, bert_base, perceptron, resnet50
from pretrained import fetch
from pretrained.samples import sample_feeds
from table import print_table

__all__ = ["main"]

ROUNDS = 31
ROUND_SECONDS = 0.05
STARTS = 5
THROUGHPUT_SECONDS = 3.0
SAME = {
    "INFERENCE_PRECISION_HINT": "f32",
    "EXECUTION_MODE_HINT": "ACCURACY",
}


def yolov8n() -> tuple[bytes, dict[str, Array]]:
    """The pretrained detector, for the lengths of one picture."""
    feeds = dict(sample_feeds("picture-detector"))
    model = onnx.load(fetch("picture-detector"))
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, length in zip(dims, feeds[value.name].shape, strict=True):
            dim.dim_value = length
    return model.SerializeToString(), feeds


NETWORKS: Mapping[str, Callable[[], tuple[bytes, dict[str, Array]]]] = {
    "ResNet-50": resnet50,
    "BERT-base, 128 words": bert_base,
    "YOLOv8n": yolov8n,
    "perceptron 16-16-4": perceptron,
}


def native(model: bytes, hint: str) -> Any:
    """Compile with OpenVINO alone."""
    core = openvino.Core()
    return core.compile_model(core.read_model(model), "CPU", {**SAME, "PERFORMANCE_HINT": hint})


def native_call(compiled: Any, feeds: Mapping[str, Array]) -> Callable[[], Array]:
    """OpenVINO's own best call for arrays that come from elsewhere."""
    request = compiled.create_infer_request()
    (feed,) = feeds.values()
    given = request.get_input_tensor(0).data
    result = request.get_output_tensor(0).data

    def call() -> Array:
        given[...] = feed
        request.infer(share_outputs=True)
        return np.array(result)

    return call


def session(model: bytes, hint: str = "latency", cache: str = "") -> InferenceSession:
    """Open a session whose nodes all go to OpenVINO."""
    options = SessionOptions()
    options.certificate_policy = CertificatePolicy.OFF
    options.disable_cpu_fallback = True
    if cache:
        options.cache_dir = cache
    return InferenceSession(model, options, providers=[("openvino", {"performance_hint": hint})])


def seconds_of(call: Callable[[], Any], count: int) -> float:
    """Time `count` calls and return the seconds of one."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def compare_runs(name: str) -> tuple[str, ...]:
    """One row: a run by either side."""
    model, feeds = NETWORKS[name]()
    theirs = native_call(native(model, "LATENCY"), feeds)
    with session(model) as opened:

        def ours() -> Array:
            first: Array = opened.run(None, feeds)[0]
            return first

        error = float(np.max(np.abs(ours() - theirs())))
        counts = [max(1, round(ROUND_SECONDS / seconds_of(c, 3))) for c in (ours, theirs)]
        pairs = [
            (seconds_of(ours, counts[0]), seconds_of(theirs, counts[1])) for _ in range(ROUNDS)
        ]
    our_time, their_time = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    difference = statistics.median(a - b for a, b in pairs)
    numbers = (f"{our_time * 1e3:.3f}", f"{their_time * 1e3:.3f}", f"{ratio:.3f}")
    return (name, f"{error:.1e}", *numbers, f"{difference * 1e6:+.1f}")


def compare_starts(name: str) -> tuple[str, ...]:
    """One row: a session that compiles, and one that finds what another compiled."""
    model, _ = NETWORKS[name]()
    first: list[float] = []
    second: list[float] = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder:
            for times in (first, second):
                begin = time.perf_counter()
                session(model, cache=folder).close()
                times.append(time.perf_counter() - begin)
    cold, warm = statistics.median(first), statistics.median(second)
    ratio = statistics.median(a / b for a, b in zip(first, second, strict=True))
    return name, f"{cold:.3f}", f"{warm:.3f}", f"{ratio:.1f}"


def compare_throughput(name: str) -> tuple[str, ...]:
    """One row: runs per second with as many at once as OpenVINO advises."""
    model, feeds = NETWORKS[name]()
    compiled = native(model, "THROUGHPUT")
    at_once = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
    queue = openvino.AsyncInferQueue(compiled, at_once)
    with session(model, "throughput") as opened:
        rates = []
        for _ in range(3):
            ours = _rate_of_threads(lambda: opened.run(None, feeds), at_once)
            rates.append((ours, _rate_of_queue(queue, feeds)))
    our_rate, their_rate = (statistics.median(side) for side in zip(*rates, strict=True))
    ratio = statistics.median(a / b for a, b in rates)
    return f"{name}, {at_once} at once", f"{our_rate:.1f}", f"{their_rate:.1f}", f"{ratio:.3f}"


def _rate_of_threads(call: Callable[[], Any], count: int) -> float:
    done = [0] * count
    deadline = time.perf_counter() + THROUGHPUT_SECONDS

    def work(number: int) -> None:
        while time.perf_counter() < deadline:
            call()
            done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - begin)


def _rate_of_queue(queue: Any, feeds: Mapping[str, Array]) -> float:
    begin = time.perf_counter()
    count = 0
    while time.perf_counter() < begin + THROUGHPUT_SECONDS:
        queue.start_async(dict(feeds), share_inputs=True)
        count += 1
    queue.wait_all()
    return count / (time.perf_counter() - begin)


def main() -> None:
    """Measure and print."""
    print_table(
        "A run, the provider beside OpenVINO's own best call",
        ("network", "largest error", "ours ms", "theirs ms", "ratio", "difference us"),
        [compare_runs(name) for name in NETWORKS],
    )
    print_table(
        "Opening a session, without and with a cache",
        ("network", "compiling s", "from the cache s", "ratio"),
        [compare_starts(name) for name in ("ResNet-50", "BERT-base, 128 words")],
    )
    print_table(
        "Runs per second, threads of ours beside OpenVINO's queue",
        ("network", "ours", "theirs", "ratio"),
        [compare_throughput("ResNet-50")],
    )
