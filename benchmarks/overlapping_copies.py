"""What copies beside work gain, on a pipeline of the simulator and the CPU provider.

Each stage copies a value to the host, computes there, copies the result and an input of its own to
the device, runs two kernels, and gives one result to the caller. Every kernel and every copy takes
the same simulated time, and everything else next to none, so that the table shows what is done at
the same time and not how fast this machine is.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ep_core import InferenceSession, SessionOptions
from table import print_table

__all__ = ["main"]

STAGES = 4
STEP_US = 10_000
ROUNDS = 11
SHAPE = (64, 64)

SIDES: dict[str, dict[str, Any]] = {
    "one stream": {"overlap": False},
    "streams for copies": {},
    "one stream, pageable copies block": {"overlap": False, "pageable_latency_us": STEP_US},
    "streams for copies, pageable copies block": {"pageable_latency_us": STEP_US},
}


def pipeline() -> bytes:
    """First h = -x; then in each stage e = erf(h) on the CPU, h = e + z, and c = exp(h)."""
    nodes = [helper.make_node("Neg", ["x"], ["h0"])]
    for before, after in pairwise(range(STAGES + 1)):
        nodes += [
            helper.make_node("Erf", [f"h{before}"], [f"e{after}"]),
            helper.make_node("Add", [f"e{after}", f"z{after}"], [f"h{after}"]),
            helper.make_node("Exp", [f"h{after}"], [f"c{after}"]),
        ]
    stages = range(1, STAGES + 1)

    def floats(*names: str) -> list[Any]:
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in names]

    graph = helper.make_graph(
        nodes,
        "pipeline",
        floats("x", *(f"z{stage}" for stage in stages)),
        floats(*(f"c{stage}" for stage in stages)),
    )
    opset = helper.make_opsetid("", 17)
    return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())


def measure(options: dict[str, Any]) -> tuple[float, float, int]:
    """Return the milliseconds of a run, those in which copies and kernels go on, and copies."""
    with opened(options, SessionOptions()) as session:
        run(session)
        seconds = statistics.median(run(session) for _ in range(ROUNDS))
        copies = len(session.get_placement().copies)
    settings = SessionOptions()
    settings.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        settings.profile_file_prefix = str(Path(folder) / "trace")
        with opened(options, settings) as session:
            run(session)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return seconds * 1e3, together(events) / 1e3, copies


def opened(options: dict[str, Any], settings: SessionOptions) -> InferenceSession:
    """A session of the pipeline."""
    settings.log_severity_level = 3
    settings.placement_strategy = "greedy"  # by cost, the CPU would get it all
    steps = {"kernel_latency_us": STEP_US, "copy_latency_us": STEP_US}
    simulator = ("simulator", {"skip": "Erf", **steps, **options})
    return InferenceSession(pipeline(), settings, [simulator, "cpu"])


def run(session: InferenceSession) -> float:
    """Run it once and return the seconds."""
    feeds = {item.name: np.ones(SHAPE, np.float32) for item in session.get_inputs()}
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin


def together(events: list[dict[str, Any]]) -> float:
    """Microseconds in which a kernel and a copy of the trace go on at the same time."""
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    edges = []
    for event in events:
        kind = event.get("cat")
        if kind in ("node", "device copy") and "stream" in rows[event["tid"]]:
            edges += [(event["ts"], kind, 1), (event["ts"] + event["dur"], kind, -1)]
    edges.sort()
    going = {"node": 0, "device copy": 0}
    total = 0.0
    for (when, kind, step), (later, _, _) in pairwise(edges):
        going[kind] += step
        if all(going.values()):
            total += later - when
    return total


def main() -> None:
    """Measure and print."""
    rows = []
    for name, options in SIDES.items():
        milliseconds, both, copies = measure(options)
        rows.append((name, str(copies), f"{milliseconds:.0f}", f"{both:.0f}"))
    print_table(
        f"{STAGES} stages, every kernel and copy {STEP_US / 1e3:g} ms; median of {ROUNDS} runs",
        ("simulator", "copies", "a run, ms", "kernels and copies at once, ms"),
        rows,
    )
