from __future__ import annotations

import json

import numpy as np
import pytest

from ep_core.profiling.trace import Trace
from ep_tools.cli import main
from ep_tools.profile_summary import summarise_trace

pytestmark = pytest.mark.usefixtures("providers")

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[3] x) => (float[3] y) { a = Abs (x)  b = Mul (a, x)  y = Abs (b) }
"""


def profile(capsys, *arguments: str):
    assert main(["profile", *arguments, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_partitions_of_two_providers(model, tmp_path, capsys):
    out = tmp_path / "trace.json"
    arguments = ["--providers", "skewed,reference", "--runs", "4", "--out", str(out)]
    document = profile(capsys, model(CHAIN), *arguments)
    assert document["runs"] == 4
    assert document["trace"] == str(out)
    assert {part["provider"] for part in document["partitions"]} == {"skewed", "reference"}
    assert sorted(part["name"] for part in document["partitions"]) == [
        "reference_0",
        "reference_2",
        "skewed_1",
    ]
    for part in document["partitions"]:
        assert part["times"] == 1
        assert 0 < part["share"] < 1
        assert 0 < part["seconds"] < document["run_seconds"]
    assert sum(part["share"] for part in document["partitions"]) < 1
    assert list(document["phases"]) == [
        "open providers",
        "load model",
        "graph passes",
        "place and compile",
    ]
    assert document["providers_without_node_times"] == ["reference", "skewed"]
    runs = [event for event in json.loads(out.read_text()) if event.get("cat") == "run"]
    assert len(runs) == 6  # with the warm-up
    assert [path.name for path in tmp_path.iterdir() if path.name != "model.onnx"] == ["trace.json"]


def test_lines(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", model(CHAIN), "--providers", "skewed,reference", "--top", "2"]) == 0
    shown = capsys.readouterr().out
    assert "placement  skewed 1 of 3 nodes, reference 2" in shown
    assert "and 1 more, which --top and --json show" in shown
    assert "reference doesn't tell the times of its nodes." in shown
    (trace,) = tmp_path.glob("ep_profile_*.json")
    assert str(trace) in shown


OPEN = """
    <ir_version: 9, opset_import: ["" : 20]>
    open (float[batch, n] x) => (float[batch, n] y) { a = Mul (x, x)  y = Abs (a) }
"""


def test_predictions_are_for_the_lengths_that_are_fed(model, tmp_path, capsys):
    path, out = model(OPEN), str(tmp_path / "trace.json")
    wish = ["--providers", "skewed,reference", "--strategy", "cost", "--pin", "op:Mul=skewed"]
    lengths = ["--dim", "n=100000", "--dim", "batch=2"]
    document = profile(capsys, path, *wish, *lengths, "--out", out)
    predicted = {item["name"]: item["predicted"] for item in document["deviations"]}
    assert main(["explain", path, *wish, *lengths, "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    parts = {part["name"]: part["seconds"] for part in explained["partitions"]}
    assert parts.keys() <= predicted.keys()
    for name, seconds in parts.items():
        assert predicted[name] == pytest.approx(seconds)
    assert document["notes"] == []
    # The trace fits an explanation of the same lengths, and no other.
    for given, notes in ((lengths, 0), ([], 1)):
        assert main(["explain", path, *wish, *given, "--json", "--profile", out]) == 0
        assert len(json.loads(capsys.readouterr().out)["notes"]) == notes


def test_no_comparison_where_predictions_assume_other_lengths(model, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.ones((1, 7), np.float32))
    wish = ["--providers", "skewed,reference", "--strategy", "cost", "--out", str(tmp_path / "t")]
    fed = f"x={tmp_path / 'x.npy'}"
    document = profile(capsys, model(OPEN), *wish, "--input", fed)
    assert document["deviations"] == []
    assert {part["predicted"] for part in document["partitions"]} == {None}
    (note,) = document["notes"]
    assert "n is 64, not 7" in note
    assert note.endswith("--dim n=7")
    document = profile(capsys, model(OPEN), *wish, "--input", fed, "--dim", "n=7")
    assert document["notes"] == []
    assert document["deviations"]


@pytest.mark.parametrize("out", ["missing/trace.json", "."])
def test_a_trace_that_cannot_be_written(model, tmp_path, capsys, out):
    assert main(["profile", model(CHAIN), "--out", str(tmp_path / out)]) == 1
    assert "ep: error:" in capsys.readouterr().err


def test_figures_of_a_trace(tmp_path):
    trace = Trace(str(tmp_path / "t"))
    zero = trace._origin

    def add(name, category, start, end, queue="", **args):
        trace.add(name, category, zero + start * 1000, zero + end * 1000, queue, **args)

    add("load model", "session", 0, 500)
    part = {"partition": "dev_0", "provider": "dev", "scope": "loop/body"}
    node = {"operator": "Mul", "partition": "dev_0", "provider": "dev"}
    for number, start in enumerate((1000, 2000, 3000)):
        add(f"run {number}", "run", start, start + 500)
        for round_ in (0, 100):  # twice in a loop
            begin = start + round_
            add(
                "dev_0, queued",
                "partition",
                begin,
                begin + 10,
                **part,
                predicted_us=40,
                measured="",
            )
            add("m", "node", begin + 20, begin + 70, "queue 1", **node)
        way = {"value": "x", "from": "host", "to": "dev"}
        add("copy x", "copy", start + 200, start + 220, **way, bytes=64)
    add("m", "node", 2700, 2800, "queue 1", **node)  # of no run
    summary = summarise_trace(trace.write(), skip=1)
    assert summary.runs == 2
    assert summary.run_seconds == pytest.approx(500e-6)
    assert summary.phases == {"load model": pytest.approx(500e-6)}
    (found,) = summary.nodes
    assert (found.name, found.kind, found.provider) == ("loop/body: m", "Mul", "dev")
    assert found.times == 2
    assert found.seconds == pytest.approx(100e-6)
    assert found.share == pytest.approx(0.2)
    (found,) = summary.partitions
    assert found.queued
    assert found.seconds == pytest.approx(20e-6)
    assert found.predicted == pytest.approx(80e-6)
    (found,) = summary.copies
    assert (found.name, found.kind, found.nbytes) == ("x", "host -> dev", 64)
    assert summary.silent == ()
