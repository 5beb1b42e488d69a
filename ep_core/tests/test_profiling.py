"""Traces of profiled sessions: valid, nested, whole, and never half a file."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from ep_core import InferenceSession, RunOptions, SessionOptions
from ep_core.contracts import NodeTime, ProviderFeatures
from ep_core.errors import EpError, OptionError, RunError
from ep_core.passes import PASSES
from ep_core.profiling import trace as trace_module
from ep_core.profiling.trace import Trace

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[3] x) => (float[3] y) { a = Abs (x)  b = Mul (a, a)  c = Abs (b)  y = Mul (c, c) }
"""
NESTED = """
    <ir_version: 9, opset_import: ["" : 20]>
    nested (int64 n, float[3] x) => (float[3] y) {
        go = Constant <value = bool {1}> ()
        y = Loop (n, go, x) <
            body = round (int64 i, bool ok, float[3] s) => (bool on, float[3] t) {
                on = Identity (ok)
                small = Constant <value = bool {0}> ()
                t = If (small) <
                    then_branch = yes () => (float[3] p) { p = Mul (s, s) },
                    else_branch = no () => (float[3] q) { q = Add (s, s) }
                >
            }
        >
    }
"""
X = np.array([1, 2, 3], np.float32)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def profiled(folder: Path, **settings) -> SessionOptions:
    options = SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "trace")
    options.log_severity_level = 3
    for name, value in settings.items():
        setattr(options, name, value)
    return options


def complete_events(path: str) -> list[dict]:
    """Read a trace, hold it to the format, and return its complete events."""
    events = json.loads(Path(path).read_text("ascii"))
    named = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    starts = [e["ts"] for e in events if e["ph"] != "M"]
    assert starts == sorted(starts)
    for event in events:
        assert event["ph"] in "XCM", event
        assert isinstance(event["name"], str)
        assert event["name"]
        assert event["pid"] == os.getpid()
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["cat"]
            assert isinstance(event["args"], dict)
            assert event["tid"] in named
    return [event for event in events if event["ph"] == "X"]


def nanoseconds(event: dict) -> tuple[int, int]:
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


def assert_nested(events: list[dict]) -> None:
    """Two events of a thread are apart or one is inside the other."""
    for row in {event["tid"] for event in events}:
        spans = sorted(
            (nanoseconds(e) for e in events if e["tid"] == row), key=lambda s: (s[0], -s[1])
        )
        around: list[int] = []
        for start, end in spans:
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


def inside(outer: dict, events: list[dict]) -> list[dict]:
    start, end = nanoseconds(outer)
    return [
        event
        for event in events
        if event is not outer
        and event["tid"] == outer["tid"]
        and start <= nanoseconds(event)[0]
        and nanoseconds(event)[1] <= end
    ]


def of_kind(events: list[dict], category: str) -> list[dict]:
    return sorted((e for e in events if e["cat"] == category), key=lambda e: e["ts"])


def test_a_trace_has_every_phase_and_every_partition_of_every_run(provide, tmp_path):
    provide("fast", {"Abs"})
    provide("cpu")
    with InferenceSession(parsed(CHAIN), profiled(tmp_path), ["fast", "cpu"]) as session:
        for _ in range(3):
            (y,) = session.run(None, {"x": X})
        placement = session.get_placement()
        path = session.end_profiling()
    np.testing.assert_array_equal(y, X**4)
    events = complete_events(path)
    assert_nested(events)
    phases = [event["name"] for event in of_kind(events, "session")]
    assert phases == ["open providers", "load model", "graph passes", "place and compile"]
    compiled = [event for event in of_kind(events, "compile") if event["name"][:8] == "compile "]
    assert [(event["args"]["provider"], event["args"]["nodes"]) for event in compiled] == [
        (part.provider, list(part.nodes)) for part in placement.partitions
    ]
    assert "place" in [event["name"] for event in of_kind(events, "placement")]
    runs = of_kind(events, "run")
    assert [run["name"] for run in runs] == ["run 1", "run 2", "run 3"]
    assert len(placement.partitions) == 4
    for run in runs:
        parts = of_kind(inside(run, events), "partition")
        assert [part["name"] for part in parts] == [part.name for part in placement.partitions]
        assert [part["args"]["nodes"] for part in parts] == [
            list(part.nodes) for part in placement.partitions
        ]


def test_graph_passes_are_events_inside_their_phase(provide, tmp_path):
    provide("cpu")
    model = parsed("""
        <ir_version: 9, opset_import: ["" : 20]>
        twice (float[3] x) => (float[3] y) { a = Identity (x)  b = Identity (a)  y = Mul (b, b) }
    """)
    with InferenceSession(model, profiled(tmp_path), ["cpu"]) as session:
        events = complete_events(session.end_profiling())
    assert_nested(events)
    (phase,) = (event for event in of_kind(events, "session") if event["name"] == "graph passes")
    passes = of_kind(events, "pass")
    assert of_kind(inside(phase, events), "pass") == passes
    assert {event["name"] for event in passes} == {step.name for step in PASSES}
    (removal,) = (e["args"] for e in passes if e["args"]["changed"])
    assert removal == {"changed": True, "nodes_before": 3, "nodes_after": 1}
    off = profiled(tmp_path, graph_optimization_level=0)
    with InferenceSession(model, off, ["cpu"]) as session:
        assert not of_kind(complete_events(session.end_profiling()), "pass")


def test_the_whole_model_in_one_partition(provide, tmp_path):
    provide("cpu")
    with InferenceSession(parsed(CHAIN), profiled(tmp_path), ["cpu"]) as session:
        session.run(None, {"x": X})
        session.run(["y"], {"x": X}, RunOptions())
        events = complete_events(session.end_profiling())
    parts = of_kind(events, "partition")
    assert [part["args"]["node_count"] for part in parts] == [4, 4]


def test_runs_with_bound_memory(provide, tmp_path):
    provide("fast", {"Abs"})
    provide("cpu")
    with InferenceSession(parsed(CHAIN), profiled(tmp_path), ["fast", "cpu"]) as session:
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
        session.run(None, {"x": X})
        for _ in range(2):
            session.run_with_iobinding(binding)
        (y,) = binding.copy_outputs_to_cpu()
        placement = session.get_placement()
        events = complete_events(session.end_profiling())
    np.testing.assert_array_equal(y, X**4)
    assert_nested(events)
    runs = of_kind(events, "run")
    assert [run["name"] for run in runs] == ["run 1", "run 2", "run 3"]
    for run in runs:
        parts = of_kind(inside(run, events), "partition")
        assert [part["name"] for part in parts] == [part.name for part in placement.partitions]


def test_steps_of_bodies_are_nested(provide, tmp_path):
    provide("cpu")
    with InferenceSession(parsed(NESTED), profiled(tmp_path), ["cpu"]) as session:
        (y,) = session.run(None, {"n": np.array(3), "x": X})
        events = complete_events(session.end_profiling())
    np.testing.assert_array_equal(y, X * 8)
    assert_nested(events)
    (loop,) = (e for e in of_kind(events, "control flow") if e["name"].startswith("Loop"))
    within = inside(loop, events)
    # Each of three rounds runs the else branch; constants may have folded the If away.
    rounds = [e for e in of_kind(within, "partition") if e["args"]["scope"]]
    assert len(rounds) >= 3
    assert sum("Add" in name for e in rounds for name in e["args"]["nodes"]) == 3


def test_an_if_that_stays_is_around_its_branch(provide, tmp_path):
    provide("cpu")
    options = profiled(tmp_path, graph_optimization_level=0)
    with InferenceSession(parsed(NESTED), options, ["cpu"]) as session:
        session.run(None, {"n": np.array(2), "x": X})
        events = complete_events(session.end_profiling())
    assert_nested(events)
    branches = [e for e in of_kind(events, "control flow") if e["name"].startswith("If")]
    assert len(branches) == 2
    for branch in branches:
        (part,) = of_kind(inside(branch, events), "partition")
        assert part["args"]["scope"].endswith("else_branch")


def test_threads_have_rows_of_their_own(provide, tmp_path):
    provide("cpu")
    with InferenceSession(parsed(CHAIN), profiled(tmp_path), ["cpu"]) as session:
        # All are started before one ends, since the system may give an identifier out again.
        gate = threading.Barrier(3)

        def work():
            gate.wait()
            session.run(None, {"x": X})
            gate.wait()

        threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        path = session.end_profiling()
    events = complete_events(path)
    assert_nested(events)
    assert len({run["tid"] for run in of_kind(events, "run")}) == 3
    names = {e["args"]["name"] for e in json.loads(Path(path).read_text()) if e["ph"] == "M"}
    assert {"worker 0", "worker 1", "worker 2"} <= names


def test_nodes_are_timed_where_the_provider_declares_it(provide, tmp_path, monkeypatch):
    factory = provide("cpu")
    factory.features = ProviderFeatures(non_tensor_values=True, profiles_nodes=True)

    def profile_partition(partition, record):
        run = partition.run

        def timed(inputs, outputs, stream):
            start = time.perf_counter_ns()
            run(inputs, outputs, stream)
            end = time.perf_counter_ns()
            record(NodeTime("first", "Abs", start, (start + end) // 2))
            record(NodeTime("second", "Mul", (start + end) // 2, end, "lane 0"))

        partition.run = timed

    create = factory.create

    def created(device, options):
        provider = create(device, options)
        provider.profile_partition = profile_partition
        return provider

    monkeypatch.setattr(factory, "create", created)
    with InferenceSession(parsed(CHAIN), profiled(tmp_path), ["cpu"]) as session:
        session.run(None, {"x": X})
        path = session.end_profiling()
    events = complete_events(path)
    assert_nested(events)
    first, second = of_kind(events, "node")
    (part,) = of_kind(events, "partition")
    assert first in inside(part, events)
    assert first["args"] == {"operator": "Abs", "provider": "cpu", "partition": "cpu_0"}
    rows = {
        e["tid"]: e["args"]["name"] for e in json.loads(Path(path).read_text()) if e["ph"] == "M"
    }
    assert rows[second["tid"]] == "cpu lane 0"


def test_without_profiling_nothing_is_wrapped(provide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    provide("cpu")
    with InferenceSession(parsed(CHAIN), SessionOptions(), ["cpu"]) as session:
        session.run(None, {"x": X})
        with pytest.raises(OptionError, match="isn't profiled"):
            session.end_profiling()
        with pytest.raises(OptionError, match="enable_profiling"):
            session.get_profiling_start_time_ns()
    assert list(tmp_path.iterdir()) == []


def test_close_writes_the_trace_and_names_are_unique(provide, tmp_path):
    provide("cpu")
    for _ in range(2):
        with InferenceSession(parsed(CHAIN), profiled(tmp_path), ["cpu"]) as session:
            session.run(None, {"x": X})
            assert [path.suffix for path in tmp_path.iterdir()].count(".part") == 1
    paths = list(tmp_path.iterdir())
    assert len(paths) == 2
    for path in paths:
        assert path.name.startswith("trace_")
        assert len(of_kind(complete_events(str(path)), "run")) == 1


def test_end_profiling_twice_gives_the_same_path_and_runs_go_on(provide, tmp_path):
    provide("cpu")
    before = time.monotonic_ns()
    with InferenceSession(parsed(CHAIN), profiled(tmp_path), ["cpu"]) as session:
        assert before <= session.get_profiling_start_time_ns() <= time.monotonic_ns()
        path = session.end_profiling()
        session.run(None, {"x": X})
        assert session.end_profiling() == path
    assert of_kind(complete_events(path), "run") == []


def test_a_failed_run_is_in_the_trace(provide, tmp_path):
    factory = provide("cpu", fail_run=ValueError("told to fail"))
    assert factory.fail_run
    with InferenceSession(parsed(CHAIN), profiled(tmp_path), ["cpu"]) as session:
        with pytest.raises(RunError, match="told to fail"):
            session.run(None, {"x": X})
        events = complete_events(session.end_profiling())
    assert len(of_kind(events, "run")) == len(of_kind(events, "partition")) == 1


@pytest.mark.parametrize("prefix", ["missing/folder/trace", "nul\0byte", "n" * 300])
def test_a_place_that_cannot_be_written_is_an_error_at_creation(provide, tmp_path, prefix):
    provide("cpu")
    with pytest.raises(OptionError, match="profile_file_prefix"):
        InferenceSession(
            parsed(CHAIN), profiled(tmp_path, profile_file_prefix=f"{tmp_path}/{prefix}"), ["cpu"]
        )


def test_a_session_that_fails_leaves_no_file(provide, tmp_path):
    provide("cpu", {"Abs"})
    with pytest.raises(EpError):
        InferenceSession(parsed(CHAIN), profiled(tmp_path), ["cpu"])
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_cannot_be_written_is_told_and_leaves_no_half(provide, tmp_path, caplog):
    provide("cpu")
    folder = tmp_path / "here"
    folder.mkdir()
    session = InferenceSession(parsed(CHAIN), profiled(folder), ["cpu"])
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    with caplog.at_level(logging.WARNING, "ep_core"):
        session.close()
    assert "the profile can't be written" in caplog.text
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "value"), [("enable_profiling", 1), ("profile_file_prefix", None)]
)
def test_settings_of_the_wrong_type(name, value):
    with pytest.raises(OptionError, match=name):
        setattr(SessionOptions(), name, value)


def test_too_many_events_are_counted_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_module, "MOST_EVENTS", 2)
    trace = Trace(str(tmp_path / "t"))
    for number in range(5):
        now = time.perf_counter_ns()
        trace.add(f"event {number}", "run", now, now + 1)
    path = trace.write()
    assert [event["name"] for event in complete_events(path)] == ["event 0", "event 1"]
    assert "3 events lost" in Path(path).read_text()


def test_names_that_are_no_ascii(tmp_path):
    trace = Trace(str(tmp_path / "t"))
    now = time.perf_counter_ns()
    trace.add('Größe "x"\n\ud800', "run", now, now)
    assert complete_events(trace.write())[0]["name"] == 'Größe "x"\n\ud800'
