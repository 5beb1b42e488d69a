from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from ep_core.cores import usable_cores
from ep_tools.cli import main
from ep_tools.threads import THREAD_VARIABLES, limit_threads
from ep_tools.timing import MIN_ROUNDS, Pace, Statistics, Times, ratio_spread, take_turns

MODEL = """
    <ir_version: 9, opset_import: ["" : 20]>
    twice (float[n] x) => (float[n] y) { y = Add (x, x) }
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, str(usable_cores()))


def bench(capsys, code: int, *arguments: str):
    assert main(["bench", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------- the command


@pytest.mark.usefixtures("providers")
def test_figures_are_in_order(model, capsys):
    document = bench(capsys, 0, model(MODEL), "--runs", "40", "--dim", "n=5")
    (side,) = document["sides"]
    assert (side["name"], side["runs"]) == ("ep-core", 40)
    seconds = side["seconds"]
    assert 0 < seconds["min"] <= seconds["p50"] <= seconds["p90"] <= seconds["p99"] < 10
    assert seconds["load"] > 0
    assert seconds["first_run"] > 0
    assert side["runs_per_second"] <= 1 / seconds["min"]
    assert document["intra_op_num_threads"] == usable_cores()


@pytest.mark.usefixtures("providers")
def test_a_duration_is_kept(model, capsys):
    start = time.perf_counter()
    bench(capsys, 0, model(MODEL), "--duration", "0.3", "--warmup", "0")
    assert time.perf_counter() - start >= 0.3


@pytest.mark.usefixtures("providers")
def test_threads_share_the_session(model, capsys):
    document = bench(capsys, 0, model(MODEL), "--runs", "10", "--threads", "3")
    assert document["sides"][0]["runs"] == 30


@pytest.mark.usefixtures("providers")
def test_lines_have_every_figure(model, capsys):
    assert main(["bench", model(MODEL), "--runs", "5"]) == 0
    shown = capsys.readouterr().out
    assert "placement  reference 1 of 1 node; no copies" in shown
    titles = [line[:15].strip() for line in shown.splitlines()]
    for title in ["import", "load", "first run", "runs", "min", "mean", "p50", "p90", "p99"]:
        assert title in titles
    assert "ratio" not in shown


class StandIn:
    """What `ep bench` needs of onnxruntime, on top of onnx's evaluator."""

    def __init__(self, error: float) -> None:
        self.SessionOptions = SimpleNamespace
        self.GraphOptimizationLevel = SimpleNamespace(ORT_ENABLE_ALL=99)
        self.error = error
        self.options = None

    def InferenceSession(self, model, options, providers):  # noqa: N802
        self.options = options
        evaluator = ReferenceEvaluator(model)

        def run(names, feeds):
            return [value + np.float32(self.error) for value in evaluator.run(names, feeds)]

        return SimpleNamespace(run=run)


@pytest.mark.usefixtures("providers")
@pytest.mark.parametrize(("error", "code"), [(0, 0), (1, 1)])
def test_both_sides_are_measured_and_compared(error, code, model, monkeypatch, capsys):
    runtime = StandIn(error)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    arguments = [model(MODEL), "--vs", "onnxruntime", "--runs", "20", "--intra-op-num-threads", "1"]
    document = bench(capsys, code, *arguments)
    assert [side["runs"] for side in document["sides"]] == [20, 20]
    ratio = document["ratio"]
    assert ratio["rounds"] >= MIN_ROUNDS
    assert ratio["low"] <= ratio["high"]
    ours, theirs = (side["seconds"]["p50"] for side in document["sides"])
    assert ratio["of_medians"] == pytest.approx(ours / theirs)
    assert document["agree"] is (code == 0)
    assert runtime.options.intra_op_num_threads == document["intra_op_num_threads"] == 1
    assert main(["bench", *arguments]) == code
    assert ("outputs    agree" in capsys.readouterr().out) is (code == 0)


@pytest.mark.usefixtures("providers")
def test_without_onnxruntime_the_remedy_is_told(model, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["bench", model(MODEL), "--vs", "onnxruntime", "--runs", "1"]) == 1
    assert "pip install onnxruntime" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--duration", "0"],
        ["--duration", "nan"],
        ["--duration", "soon"],
        ["--runs", "0"],
        ["--runs", "5", "--duration", "1"],
        ["--threads", "0"],
        ["--warmup", "-1"],
        ["--vs", "torch"],
        ["--intra-op-num-threads", "0"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    assert main(["bench", "m.onnx", *arguments]) == 2
    assert "usage: ep bench" in capsys.readouterr().err


# ---------------------------------------------------------------- threads inside operators


def test_libraries_are_limited_before_numpy_is_loaded():
    environment = {k: v for k, v in os.environ.items() if k not in THREAD_VARIABLES}
    code = (
        "import os\nfrom ep_tools.threads import limit_threads\n"
        "assert limit_threads(1) == ()\n"
        "assert os.environ['OPENBLAS_NUM_THREADS'] == '1'\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_other_settings_are_kept_and_told(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    problems = limit_threads(usable_cores())
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    assert problems[0].startswith("OPENBLAS_NUM_THREADS is set to 7")


# ---------------------------------------------------------------- turns


class Recording:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def run(self, names, feeds):
        self.log.append(self.name)
        return []


def turns(sessions, pace: Pace, estimate: float = 0.05):
    return take_turns(sessions, {}, pace, [estimate] * len(sessions), lambda done, total: None)


def test_sides_take_turns_and_swap_who_begins():
    log: list[str] = []
    rounds = turns([Recording("a", log), Recording("b", log)], Pace(6, 1.0, 1))
    assert "".join(log) == "aabb" + "bbaa" + "aabb"
    assert [len(side) for side in rounds] == [3, 3]
    assert [len(entry.seconds) for entry in rounds[0]] == [2, 2, 2]


def test_slow_sides_get_three_rounds_whatever_the_duration():
    log: list[str] = []
    turns([Recording("a", log), Recording("b", log)], Pace(None, 1e-9, 1), estimate=5.0)
    assert "".join(log) == "abbaab"


def test_few_runs_are_all_made():
    log: list[str] = []
    turns([Recording("a", log), Recording("b", log)], Pace(1, 1.0, 1))
    assert sorted(log) == ["a", "b"]


def test_threads_run_at_the_same_time():
    together = threading.Barrier(3, timeout=10)

    class Meeting:
        def run(self, names, feeds):
            together.wait()
            return []

    (rounds,) = turns([Meeting()], Pace(2, 1.0, 3))
    assert sum(len(entry.seconds) for entry in rounds) == 6


def test_statistics_of_known_times():
    rounds = [Times(tuple(n / 100 for n in range(1, 51)), 20.0), Times((0.51,) * 50, 30.0)]
    figures = Statistics.of(rounds)
    assert (figures.runs, figures.minimum) == (100, 0.01)
    assert figures.runs_per_second == 2
    assert figures.p50 == pytest.approx(0.505)
    assert figures.p99 == pytest.approx(0.51)
    assert figures.mean == pytest.approx((sum(range(1, 51)) / 100 + 0.51 * 50) / 100)


def test_the_spread_of_a_steady_ratio_is_nothing():
    first = [Times((2.0, 2.0), 4.0), Times((4.0, 4.0), 8.0)]
    second = [Times((1.0, 1.0), 2.0), Times((2.0, 2.0), 4.0)]
    assert ratio_spread([first, second]) == (2, 2)
