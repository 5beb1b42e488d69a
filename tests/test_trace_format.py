"""Traces of real sessions are valid in Chrome's trace event format, as viewers read it.

The rules are those of "Trace Event Format" (Google, 2016) for its form as an array, and what
Perfetto adds: complete events of a thread must nest, since it keeps a stack for each thread and
drops what would stand beside it.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from ep_core import InferenceSession, SessionOptions

MODEL = """
    <ir_version: 9, opset_import: ["" : 20]>
    mixed (float[8, 8] x, int64 n) => (float[8, 8] y, float[8, 2] best, int64[8, 2] place) {
        one = Identity (x)  a = Exp (one)  b = Neg (a)
        two = Constant <value_ints = [2]> ()
        best, place = TopK (b, two)
        c = Add (a, b)
        go = Constant <value = bool {1}> ()
        y = Loop (n, go, c) <
            body = round (int64 i, bool ok, float[8, 8] s) => (bool on, float[8, 8] t) {
                on = Identity (ok)  t = Mul (s, s)
            }
        >
    }
"""
TIMED = {"ts": (int, float), "pid": (int,), "tid": (int,), "name": (str,)}
METADATA = {"process_name": "name", "thread_name": "name"}


def check_event(event: dict) -> None:
    """Hold one event to the fields that its phase needs."""
    phase = event["ph"]
    if phase == "M":
        assert isinstance(event["args"][METADATA[event["name"]]], str)
        return
    for name, kinds in TIMED.items():
        assert type(event[name]) in kinds, event
    assert math.isfinite(event["ts"])
    assert event["ts"] >= 0
    assert event["tid"] >= 0
    assert event["name"]
    if phase == "X":
        assert isinstance(event["cat"], str)
        assert "," not in event["cat"], "a comma parts categories"
        assert type(event["dur"]) in (int, float)
        assert math.isfinite(event["dur"])
        assert event["dur"] >= 0
        assert isinstance(event["args"], dict)
    elif phase == "C":
        assert event["args"]
        assert all(type(value) in (int, float) for value in event["args"].values())
    else:
        pytest.fail(f"phase {phase!r} has no meaning here")


def nested(events: list[dict]) -> dict[int, list[tuple[dict, list[dict]]]]:
    """By thread its events, each with those around it, outermost first, as a viewer stacks them."""
    found = defaultdict(list)
    stacks: dict[int, list[dict]] = defaultdict(list)
    for event in events:
        if event["ph"] != "X":
            continue
        stack = stacks[event["tid"]]
        start, end = nanoseconds(event)
        while stack and nanoseconds(stack[-1])[1] <= start:
            stack.pop()
        assert not stack or end <= nanoseconds(stack[-1])[1], (event, stack[-1])
        found[event["tid"]].append((event, list(stack)))
        stack.append(event)
    return found


def nanoseconds(event: dict) -> tuple[int, int]:
    """Start and end as Perfetto has them: whole nanoseconds."""
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


@pytest.fixture(scope="module", params=["runs", "bound"])
def events(request, tmp_path_factory) -> list[dict]:
    """A trace of a session on two memories, run with arrays or with memory bound."""
    options = SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path_factory.mktemp("trace") / "t")
    options.log_severity_level = 3
    options.placement_strategy = "greedy"
    speed = "1e12,1e11,1e-5,1e-4,1e-4,1e10"
    providers = [("simulator", {"speed": speed}), "cpu"]
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    feeds = {"x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), "n": np.array(2)}
    with InferenceSession(model, options, providers) as session:
        if request.param == "runs":
            for _ in range(3):
                session.run(None, feeds)
        else:
            binding = session.io_binding()
            for name, value in feeds.items():
                binding.bind_cpu_input(name, value)
            for output in session.get_outputs():
                binding.bind_output(output.name)
            for _ in range(3):
                session.run_with_iobinding(binding)
        path = session.end_profiling()
    text = Path(path).read_text("ascii")
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_every_event_has_what_its_phase_needs(events):
    for event in events:
        check_event(event)
    rows = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {e["tid"] for e in events if e["ph"] == "X"} <= rows
    assert len({e["pid"] for e in events}) == 1


def test_times_only_grow(events):
    starts = [event["ts"] for event in events if event["ph"] != "M"]
    assert starts == sorted(starts)


def test_events_of_a_thread_nest_as_they_happened(events):
    """Runs around partitions around nodes; phases around passes and compilations."""
    around = {
        "pass": "session",
        "compile": "session",
        "partition": "run",
        "copy": "run",
        "control flow": "run",
    }
    seen = set()
    for stacked in nested(events).values():
        for event, stack in stacked:
            wanted = around.get(event["cat"])
            if wanted is not None:
                assert stack[0]["cat"] == wanted, (event, stack)
                seen.add(event["cat"])
            if event["cat"] in ("run", "session"):
                assert stack == []
    assert seen == set(around)


def test_every_step_of_every_run_is_there(events):
    """Bound runs too: partition by partition, copy by copy, round by round of a loop."""
    runs = [event for event in events if event.get("cat") == "run"]
    assert len(runs) == 3
    steps = []
    for run in runs:
        start, end = nanoseconds(run)
        mine = [e for e in events if e["ph"] == "X" and start <= nanoseconds(e)[0] <= end]
        steps.append([(e["cat"], e["name"]) for e in mine if e["cat"] in ("partition", "copy")])
    assert steps[0] == steps[1] == steps[2]
    assert any("queued" in name for _, name in steps[0]), "on the device"
    assert any(kind == "copy" for kind, _ in steps[0])


def test_predictions_stand_beside_copies_and_partitions(events):
    found = [e for e in events if e.get("cat") in ("partition", "copy")]
    known = [e for e in found if "predicted_us" in e["args"]]
    assert {e["cat"] for e in known} == {"partition", "copy"}
    assert all(e["args"]["predicted_us"] > 0 for e in known)


def test_memory_is_counted_for_the_device(events):
    counted = [e for e in events if e["ph"] == "C"]
    assert {e["name"] for e in counted} == {"bytes in use, simulator:0/device"}
    assert max(e["args"]["in_use"] for e in counted) > 0
    runs = [nanoseconds(e) for e in events if e.get("cat") == "run"]
    for start, end in runs:
        assert any(start <= e["ts"] * 1000 <= end for e in counted)
