"""`ep profile`, `ep check` and `ep dump` on the CPU provider and the simulated devices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from ep_tools.cli import main

NESTED = """
    <ir_version: 9, opset_import: ["" : 20]>
    nested (int64 n, float[64,64] x) => (float[64,64] y) {
        e = Erf (x)  s = MatMul (e, e)
        go = Constant <value = bool {1}> ()
        y = Loop (n, go, s) <
            body = round (int64 i, bool ok, float[64,64] before) => (bool on, float[64,64] after) {
                on = Identity (ok)  m = Mul (before, x)  after = Add (m, x)
            }
        >
    }
"""
SEQUENCE = """
    <ir_version: 9, opset_import: ["" : 20]>
    pieces (float[4] x, int64[2] split) => (float[M] y) {
        s = SplitToSequence (x, split)  y = ConcatFromSequence <axis = 0> (s)
    }
"""


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch):
    monkeypatch.setenv("EP_CERTIFICATE_POLICY", "off")


@pytest.fixture
def model(tmp_path):
    def save(text):
        path = tmp_path / "model.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return str(path)

    return save


def call(capsys, code: int, *arguments: str):
    assert main([*arguments, "--json"]) == code
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def inside(outer, events):
    end = outer["ts"] + outer["dur"]
    return [
        e
        for e in events
        if e is not outer
        and e["tid"] == outer["tid"]
        and outer["ts"] <= e["ts"]
        and e["ts"] + e["dur"] <= end
    ]


def test_a_profile_of_two_providers_and_a_loop(model, tmp_path, capsys):
    out = tmp_path / "trace.json"
    arguments = ["--providers", "simulator,cpu", "--input", "n=3", "--runs", "4", "--warmup", "1"]
    document = call(capsys, 0, "profile", model(NESTED), *arguments, "--out", str(out))
    assert document["providers_without_node_times"] == []
    times = {(node["kind"], node["provider"]): node["times"] for node in document["nodes"]}
    assert times["Erf", "cpu"] == 1
    assert times["MatMul", "simulator"] == 1
    assert times["Mul", "simulator"] == times["Add", "simulator"] == 3
    for node in document["nodes"]:
        assert 0 < node["seconds"] < document["run_seconds"]
    queued = {part["provider"]: part["queued"] for part in document["partitions"]}
    assert queued == {"simulator": True, "cpu": False}
    assert {copy["nbytes"] / copy["times"] for copy in document["copies"]} == {1, 64 * 64 * 4}
    assert document["waits"]
    events = [e for e in json.loads(out.read_text()) if e["ph"] == "X"]
    loops = [e for e in events if e["cat"] == "control flow"]
    assert len(loops) == 5
    for loop in loops:
        bodies = [e for e in inside(loop, events) if e["cat"] == "partition"]
        assert {e["args"]["scope"] for e in bodies} == {bodies[0]["args"]["scope"]} != {""}
    erf = next(e for e in events if e["cat"] == "node" and e["args"]["operator"] == "Erf")
    assert any(erf in inside(e, events) for e in events if e["cat"] == "partition")


def test_rows_of_a_trace_neither_overlap_nor_cross(model, tmp_path, capsys):
    out = tmp_path / "trace.json"
    arguments = ["--providers", "simulator,cpu", "--input", "n=2", "--out", str(out)]
    call(capsys, 0, "profile", model(NESTED), *arguments)
    events = [e for e in json.loads(out.read_text()) if e["ph"] == "X"]
    for row in {e["tid"] for e in events}:
        spans = sorted(
            (round(e["ts"] * 1000), -round((e["ts"] + e["dur"]) * 1000))
            for e in events
            if e["tid"] == row
        )
        around: list[int] = []
        for start, negated in spans:
            while around and around[-1] <= start:
                around.pop()
            assert not around or -negated <= around[-1]
            around.append(-negated)


def test_a_check_counts_partitions_and_copies(model, capsys):
    path = model(NESTED)
    document = call(capsys, 1, "check", path, "--providers", "simulator")
    assert document["verdict"].startswith("1 of ")
    assert "falls to cpu: Erf_0 (Erf)." in document["verdict"]
    (finding,) = document["not_run"]
    assert finding["reason"] == "operator Erf has no kernel"
    assert call(capsys, 0, "check", path, "--providers", "simulator,cpu")["copies"] > 0
    assert call(capsys, 0, "check", path, "--providers", "CPUExecutionProvider")["copies"] == 0


def test_a_check_that_measures(model, capsys, monkeypatch):
    monkeypatch.setattr("ep_tools.check_timing._SECONDS", 0.3)
    option = ["--provider-option", "simulator.kernel_latency_us=3000", "--input", "n=1"]
    arguments = ["--providers", "simulator,cpu", "--strategy", "greedy", "--measure", *option]
    document = call(capsys, 0, "check", model(NESTED), *arguments)
    assert document["measured"]["text"].startswith("The CPU alone is faster")


def test_a_dumped_sequence(model, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--node", "y", "--input", "x=1,2,3,4", "--input", "split=1,3", "--out", str(out)]
    document = call(capsys, 0, "dump", model(SEQUENCE), *arguments)
    assert document["reproduced"] is True
    content = (out / "test_data_set_0" / "input_0.pb").read_bytes()
    pieces = numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    assert [piece.tolist() for piece in pieces] == [[1], [2, 3, 4]]
    assert sorted(path.name for path in (out / "inputs").iterdir()) == ["s[0].npy", "s[1].npy"]


def test_a_dump_from_a_device(model, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--node", "s", "--input", "n=1", "--providers", "simulator,cpu"]
    document = call(capsys, 0, "dump", model(NESTED), *arguments, "--out", str(out))
    assert document["reproduced"] is True
    e = np.load(Path(out) / "inputs" / "e.npy")
    np.testing.assert_allclose(np.load(Path(out) / "outputs" / "s.npy"), e @ e, rtol=1e-5)
