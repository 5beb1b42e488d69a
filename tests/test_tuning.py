"""Measured costs with real providers: the CPU beside a simulator that declares a wrong speed.

Whatever is measured, the answer is the CPU provider's alone. Nothing here asserts a time: the
simulator is made slower or faster than the CPU by orders of magnitude.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from test_two_providers import assert_equal, feeds, looping_model

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import OptionError, PlacementError
from ep_core.tuning import measuring
from ep_core.tuning.bench import Bench
from ep_cpu.provider import CpuProvider
from ep_tools.cli import main
from pretrained import fetch
from pretrained.samples import sample_feeds

NEVER_SLOW = "1e13,1e13,0,1e-7,1e-7,1e12"
NEVER_FAST = "1e7,1e7,1e-2,1e-2,1e-2,1e7"
BOASTING = ("simulator", {"copy_latency_us": 5000, "speed": NEVER_SLOW})
MODEST = ("simulator", {"speed": NEVER_FAST})
CHAIN = """<ir_version: 10, opset_import: ["" : 21]> g (float[4, 4] x) => (float[4, 4] y)
    { a = Tanh(x) b = Relu(a) c = Add(b, x) y = Mul(c, c) }"""
X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def options_with(folder, **settings):
    options = SessionOptions()
    options.certificate_policy = "off"
    options.log_severity_level = 3
    for name, value in {"tune": True, "cost_cache": folder, **settings}.items():
        setattr(options, name, value)
    return options


def session_of(model, folder, providers=(BOASTING, "cpu"), **settings):
    if isinstance(model, str) and model.startswith("<"):
        model = onnx.parser.parse_model(model)
    return InferenceSession(model, options_with(folder, **settings), list(providers))


def owners(session):
    report = session.get_placement()
    return {node.provider for nodes in report.nodes.values() for node in nodes}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "costs"


@pytest.fixture
def measured(monkeypatch):
    """Everything that is measured: (provider, operators...), and the providers of a placement."""
    found = []
    seconds, trial = Bench.seconds, measuring.trial_seconds

    def watched(self, work):
        operators = [work.graph.nodes[index].op_type for index in work.indices]
        found.append((self.candidate.name, *operators))
        return seconds(self, work)

    def tried(placed, candidates, cache):
        found.append(("placement", *(candidate.name for candidate in candidates)))
        return trial(placed, candidates, cache)

    monkeypatch.setattr(Bench, "seconds", watched)
    monkeypatch.setattr(measuring, "trial_seconds", tried)
    return found


class _Slow:
    """A partition of the CPU provider whose nodes take 5 ms each."""

    def __init__(self, part, count):
        self.part, self.count = part, count
        self.accepts_outputs = part.accepts_outputs

    def run(self, inputs, outputs, stream):
        time.sleep(0.005 * self.count)
        self.part.run(inputs, outputs, stream)

    def close(self):
        self.part.close()


@pytest.fixture
def slow_cpu(monkeypatch):
    compile_ = CpuProvider.compile
    monkeypatch.setattr(
        CpuProvider, "compile", lambda self, sub: _Slow(compile_(self, sub), len(sub.nodes))
    )
    monkeypatch.setattr(CpuProvider, "get_partition_memory", lambda self, part: None)


def test_a_device_that_declares_too_much_loses_its_nodes(folder):
    with session_of(CHAIN, folder, tune=False, cost_cache=None) as believed:
        assert owners(believed) == {"simulator"}
    with session_of(CHAIN, folder, ["cpu"]) as alone, session_of(CHAIN, folder) as session:
        report = session.get_placement()
        assert owners(session) == {"cpu"}
        assert report.basis == "measured costs of 4 of 4 nodes"
        assert report.predicted_seconds < 0.01 < report.greedy_seconds
        np.testing.assert_array_equal(session.run(None, {"x": X}), alone.run(None, {"x": X}))


def test_a_device_that_declares_too_little_gets_what_it_is_faster_at(folder, slow_cpu):
    with session_of(CHAIN, folder, [MODEST, "cpu"], tune=False, cost_cache=None) as believed:
        assert owners(believed) == {"cpu"}
    with session_of(CHAIN, folder, [MODEST, "cpu"]) as session:
        assert owners(session) == {"simulator"}
        expected = np.square(np.maximum(np.tanh(X), 0) + X)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-5)


def test_a_second_session_measures_nothing_and_places_the_same(folder, measured):
    given = sample_feeds("file-type")
    with session_of(fetch("file-type"), folder) as first:
        report = first.get_placement().to_dict()
        expected = first.run(None, given)
    assert len(measured) > 20
    measured.clear()
    with session_of(fetch("file-type"), folder) as second:
        assert second.get_placement().to_dict() == report
        assert_equal(second.run(None, given), expected)
    with session_of(fetch("file-type"), folder, tune=False) as reading:
        assert reading.get_placement().to_dict() == report
    assert measured == []


def test_an_option_that_changes_the_speed_is_another_device(folder, measured):
    with session_of(CHAIN, folder) as first:
        assert owners(first) == {"cpu"}
    measured.clear()
    other = ("simulator", {"copy_latency_us": 4000, "speed": NEVER_SLOW})
    with session_of(CHAIN, folder, [other, "cpu"]):
        assert all("simulator" in entry for entry in measured)
        assert ("placement", "simulator") in measured


def test_bodies_on_two_memories(folder):
    model = looping_model()
    with session_of(model, folder, ["cpu"]) as alone, session_of(model, folder) as session:
        assert session.get_placement().basis.startswith("measured costs of")
        for seed in range(6):
            assert_equal(session.run(None, feeds(seed)), alone.run(None, feeds(seed)))


@pytest.mark.parametrize("name", ["speech", "file-type"])
def test_real_models_give_what_the_cpu_gives(folder, name):
    given = sample_feeds(name)
    with (
        session_of(fetch(name), folder, ["cpu"]) as alone,
        session_of(fetch(name), folder, [("simulator", {}), "cpu"]) as session,
    ):
        report = session.get_placement()
        assert report.greedy_seconds is None or report.predicted_seconds <= report.greedy_seconds
        for got, right in zip(session.run(None, given), alone.run(None, given), strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-4)


def test_pins_and_limits_hold(folder):
    with session_of(CHAIN, folder, pin={"op:Relu": "simulator"}) as pinned:
        where = {node.op_type: node.provider for node in pinned.get_placement().nodes[""]}
        assert where["Relu"] == "simulator"
    with session_of(CHAIN, folder, max_copies=0) as limited:
        assert limited.get_placement().copies == ()
    with pytest.raises(PlacementError, match="max_copies"):
        session_of(CHAIN, folder, max_copies=0, pin={"op:Relu": "simulator"})


@pytest.mark.parametrize("launch", [1, 3, 30])
def test_a_device_that_is_lost_while_it_is_measured(folder, launch):
    """The nodes go to who is left; that the device failed isn't remembered of them."""
    lost = ("simulator", {"lose_device_at": launch, "speed": NEVER_SLOW})
    with session_of(CHAIN, folder, [lost, "cpu"]) as session:
        assert owners(session) == {"cpu"}
        (got,) = session.run(None, {"x": X})
    np.testing.assert_allclose(got, np.square(np.maximum(np.tanh(X), 0) + X), rtol=1e-5)
    for path in folder.iterdir():
        assert None not in json.loads(path.read_text("utf-8"))["seconds"].values()


@pytest.mark.parametrize("fault", ["fail_allocation_at", "fail_copy_at", "fail_kernel_at"])
@pytest.mark.parametrize("number", [1, 5, 40, 150])
def test_a_fault_while_measuring_costs_a_measurement_and_no_memory(folder, fault, number):
    faulty = ("simulator", {fault: number, "copy_latency_us": 2000, "speed": NEVER_SLOW})
    with session_of(CHAIN, folder, [faulty, "cpu"]) as session:
        assert owners(session) == {"cpu"}
        assert session._candidates[0].provider.allocator.stats().in_use_bytes == 0
        assert session.get_placement().basis.startswith("measured costs of")


def test_nothing_stays_open_after_measuring(folder):
    with session_of(CHAIN, folder) as session:
        simulator = session._candidates[0].provider
        assert simulator.allocator.stats().in_use_bytes == 0
        assert simulator._open == {}


_PROGRAM = """
import sys
import onnx
from ep_core import InferenceSession, SessionOptions

options = SessionOptions()
options.certificate_policy = "off"
options.log_severity_level = 3
options.tune, options.cost_cache = True, sys.argv[1]
model = onnx.parser.parse_model(sys.argv[2])
with InferenceSession(model, options, ["simulator", "cpu"]) as session:
    print(session.get_placement().basis)
"""


def test_several_processes_at_once(folder, measured):
    texts = [CHAIN.replace("Mul(c, c)", f"{operator}(c)") for operator in ("Abs", "Neg", "Sqrt")]
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _PROGRAM, str(folder), text],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for text in texts
    ]
    for process in running:
        out, error = process.communicate(timeout=120)
        assert (process.returncode, error) == (0, "")
        assert out.startswith("measured costs of")
    files = list(folder.iterdir())
    assert len(files) == 2, "one for each device, and nothing unfinished"
    assert all(json.loads(path.read_text())["seconds"] for path in files)


def test_the_command_line(tmp_path, folder, capsys):
    path = tmp_path / "model.onnx"
    onnx.save_model(onnx.parser.parse_model(CHAIN), path)
    option = ["--provider-option", "simulator.copy_latency_us=5000"]
    common = ["--providers", "simulator,cpu", *option, "--certificate-policy", "off"]
    tuned = [*common, "--tune", "--cost-cache", str(folder)]
    assert main(["explain", str(path), *tuned]) == 0
    assert "by cost: measured costs of 4 of 4 nodes" in capsys.readouterr().out
    assert main(["explain", str(path), *common, "--cost-cache", str(folder)]) == 0
    assert "by cost: measured costs of 4 of 4 nodes" in capsys.readouterr().out
    assert main(["check", str(path), *tuned]) == 0
    assert main(["run", str(path), "--input", "x=random", *tuned]) == 0
    capsys.readouterr()


def test_what_isnt_here_cant_be_measured(tmp_path, capsys):
    path = tmp_path / "model.onnx"
    onnx.save_model(onnx.parser.parse_model(CHAIN), path)
    assert main(["explain", str(path), "--tune", "--what-if", "npu.json"]) != 0
    assert "--what-if" in capsys.readouterr().err


def test_a_cost_cache_that_is_no_path_is_an_error():
    with pytest.raises(OptionError, match="cost_cache"):
        options_with(3)


def test_a_profile_holds_the_session_and_not_its_measurements(folder, tmp_path):
    settings = {"enable_profiling": True, "profile_file_prefix": str(tmp_path / "trace")}
    # The native core would fuse all four into one operation.
    providers = (BOASTING, ("cpu", {"instructions": "none"}))
    with session_of(CHAIN, folder, providers, **settings) as session:
        session.run(None, {"x": X})
        trace = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    nodes = [event["name"] for event in events if event.get("cat") == "node"]
    assert sorted(nodes) == ["Add_2", "Mul_3", "Relu_1", "Tanh_0"]
