"""Placement by measured costs, where the measurements are ours: which placement wins, and why.

The answers of two providers in host memory are real; only how long they take is made up.
"""

from __future__ import annotations

import logging
import math

import numpy as np
import onnx
import pytest

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import DeviceLostError, NotSupportedError, OptionError
from ep_core.tuning import measuring

START = 0.5
X = np.float32([1, -2, 3])


class Clock:
    """How long everything takes, by provider and operator, and what was asked.

    Attributes:
        takes: seconds by (provider, operator); 1 for others.
        fuses: by provider, the part of the sum that several nodes together take.
        fails: by (provider, operator) what measuring raises.
        alone: pairs of these that fail only where the operator is measured alone.
    """

    def __init__(self) -> None:
        self.takes = {}
        self.fuses = {}
        self.fails = {}
        self.alone = set()
        self.asked = []

    def bench(self, candidate):
        return _Bench(self, candidate)

    def node(self, name, work):
        (operator,) = (work.graph.nodes[index].op_type for index in work.indices)
        self.asked.append((name, operator))
        if (name, operator) in self.alone:
            raise ValueError("inputs that don't fit each other")
        return START + self._seconds(name, [operator])

    def trial(self, placed, candidates, cache):
        parts = [(spec.candidate.name, spec.indices) for spec in placed.specs]
        self.asked.append(("whole", *parts))
        nodes = placed.graph.nodes
        return math.fsum(
            START + self._seconds(name, [nodes[index].op_type for index in indices])
            for name, indices in parts
        )

    def _seconds(self, name, operators):
        for operator in operators:
            if (name, operator) in self.fails:
                raise self.fails[name, operator]
        total = math.fsum(self.takes.get((name, operator), 1.0) for operator in operators)
        return total * (self.fuses.get(name, 1.0) if len(operators) > 1 else 1.0)


class _Bench:
    def __init__(self, clock, candidate):
        self.clock, self.candidate = clock, candidate

    def seconds(self, work):
        return self.clock.node(self.candidate.name, work)

    def start_seconds(self):
        self.clock.asked.append((self.candidate.name, "start"))
        return START

    def copying(self):
        raise NotSupportedError("host memory")

    def close(self):
        pass


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measuring, "Bench", clock.bench)
    monkeypatch.setattr(measuring, "trial_seconds", clock.trial)
    return clock


@pytest.fixture
def place(provide, folder):
    """`place(text, tune=True, ...)`: the report of a session, whose result was checked."""
    provide("cpu")
    provide("fast", operators={"Abs", "Neg", "Exp", "Mul"})

    def make(text=CHAIN, feeds=None, **settings):
        options = SessionOptions()
        options.certificate_policy = "off"
        options.graph_optimization_level = 0
        for name, value in {"tune": True, "cost_cache": folder, **settings}.items():
            setattr(options, name, value)
        model = onnx.parser.parse_model(text)
        plain = SessionOptions()
        plain.certificate_policy = "off"
        given = feeds or {"x": X}
        with InferenceSession(model, options, ["fast", "cpu"]) as session:
            with InferenceSession(model, plain, ["cpu"]) as alone:
                for got, right in zip(
                    session.run(None, given), alone.run(None, given), strict=True
                ):
                    np.testing.assert_array_equal(got, right)
            return session.get_placement()

    return make


CHAIN = """<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y)
    { a = Abs(x) b = Neg(a) c = Exp(b) y = Mul(c, x) }"""
LOOP = """<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, int64 n) => (float[3] y) {
    y = Loop (n, , x) <body = b (int64 i, bool more, float[3] h)
        => (bool again, float[3] out) { again = Identity(more) k = Exp(h) out = Neg(k) }>
}"""


def owners(report, scope=""):
    return {placed.op_type: placed.provider for placed in report.nodes[scope]}


def test_the_faster_provider_gets_what_it_is_faster_at(clock, place):
    clock.takes = {("fast", "Abs"): 0.1, ("fast", "Neg"): 0.1, ("fast", "Exp"): 9.0}
    report = place()
    assert owners(report) == {"Abs": "fast", "Neg": "fast", "Exp": "cpu", "Mul": "cpu"}
    assert (report.strategy, report.basis) == ("cost", "measured costs of 4 of 4 nodes")
    assert report.predicted_seconds == pytest.approx(2 * START + 0.2 + 2.0)
    assert report.greedy_seconds == pytest.approx(START + 0.2 + 9.0 + 1.0)
    assert [part.seconds for part in report.partitions] == pytest.approx([0.7, 2.5])
    exp = report.nodes[""][2]
    assert (exp.cost, exp.runner_up) == (1.0, "fast")
    assert exp.difference == pytest.approx(8.0)


def test_without_tune_and_without_a_folder_nothing_is_read(clock, place):
    clock.takes = {("fast", "Exp"): 9.0}
    place()
    plain = place(tune=False, cost_cache=None)
    assert (plain.strategy, set(owners(plain).values())) == ("greedy", {"fast"})


def test_a_second_session_measures_nothing_and_places_the_same(clock, place):
    clock.takes = {("fast", "Abs"): 0.1, ("fast", "Exp"): 9.0}
    first = place()
    clock.asked.clear()
    clock.takes = {("fast", "Abs"): 50.0}
    assert place().to_dict() == first.to_dict()
    assert clock.asked == []


def test_a_folder_without_tune_is_read_and_nothing_is_measured(clock, place, folder):
    assert place(tune=False).strategy == "greedy"
    assert (clock.asked, folder.exists()) == ([], False)
    first = place()
    clock.asked.clear()
    assert place(tune=False).to_dict() == first.to_dict()
    assert clock.asked == []


def test_the_default_folder_is_the_users_cache(clock, place, tmp_path, monkeypatch):
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path / "user"))
    place(cost_cache=None)
    assert len(list((tmp_path / "user" / "costs").iterdir())) == 2, "one for each device"
    clock.asked.clear()
    place(cost_cache=None)
    assert clock.asked == []


def test_equal_nodes_are_measured_once(clock, place):
    text = CHAIN.replace("c = Exp(b)", "b1 = Neg(b) b2 = Neg(b1) c = Exp(b2)")
    place(text)
    assert clock.asked.count(("fast", "Neg")) == 1
    assert len(clock.asked) == len(set(clock.asked))


def test_a_partition_that_fuses_beats_the_sum_of_its_nodes(clock, place):
    """By its nodes the device is slower at everything; as a whole it is faster."""
    clock.takes = {("fast", operator): 3.0 for operator in ("Abs", "Neg", "Exp", "Mul")}
    assert set(owners(place()).values()) == {"cpu"}
    clock.fuses = {"fast": 0.1}
    report = place(cost_cache=None, tune=True)
    assert set(owners(report).values()) == {"fast"}
    assert report.predicted_seconds == pytest.approx(START + 1.2)
    # The predicted times are stretched to what was measured: 12.5 s to 1.7 s.
    assert [part.seconds for part in report.partitions] == pytest.approx([1.7])
    assert [node.seconds for node in report.nodes[""]] == pytest.approx([3 * 1.7 / 12.5] * 4)
    assert "measured to be the fastest" in report.nodes[""][0].reason
    assert report.nodes[""][0].cost == pytest.approx(3.0)


def test_what_fusing_saves_counts_for_placements_in_between(clock, place):
    """The device fuses, but is very slow at one operator, which neither single placement avoids."""
    clock.takes = {("fast", "Abs"): 2.0, ("fast", "Neg"): 2.0, ("fast", "Mul"): 90.0}
    clock.takes |= {("fast", "Exp"): 2.0}
    clock.fuses = {"fast": 0.1}
    report = place()
    assert owners(report) == {"Abs": "fast", "Neg": "fast", "Exp": "fast", "Mul": "cpu"}
    assert report.predicted_seconds == pytest.approx(2 * START + 0.6 + 1.0)


def test_a_cost_that_cant_be_measured_is_scaled_to_those_that_can(clock, place):
    clock.takes = {("fast", operator): 1e-3 for operator in ("Abs", "Neg", "Mul")}
    clock.takes["fast", "Exp"] = 0.2
    clock.alone = {("fast", "Exp")}
    report = place()
    assert report.basis == "measured costs of 3 of 4 nodes"
    assert set(owners(report).values()) == {"fast"}
    assert report.predicted_seconds == pytest.approx(START + 0.203)
    clock.asked.clear()
    assert place().to_dict() == report.to_dict()
    assert clock.asked == [], "that it can't be measured is remembered"


def test_a_placement_that_doesnt_run_doesnt_win(clock, place):
    clock.takes = {("fast", operator): 1e-3 for operator in ("Abs", "Neg", "Mul")}
    clock.fails = {("fast", "Exp"): ValueError("no kernel after all")}
    report = place()
    assert owners(report)["Exp"] == "cpu"
    assert report.greedy_seconds is None, "greedy doesn't run"
    clock.asked.clear()
    assert place().to_dict() == report.to_dict()
    assert clock.asked == []


def test_where_nothing_can_be_measured_the_placement_is_as_without(clock, place):
    clock.fails = {
        (name, operator): ValueError("no")
        for name in ("fast", "cpu")
        for operator in ("Abs", "Neg", "Exp", "Mul")
    }
    report = place()
    assert (report.strategy, report.basis) == (
        "greedy",
        "neither speed nor costs are known of fast, cpu",
    )


def test_a_device_that_is_lost_isnt_measured_any_further(clock, place, caplog):
    clock.fails = {("fast", operator): DeviceLostError("gone") for operator in ("Abs", "Neg")}
    clock.takes = {("fast", "Exp"): 0.1}
    with caplog.at_level(logging.WARNING, "ep_core"):
        place()
    asked = [entry for entry in clock.asked if entry[0] == "fast" and entry[1] != "start"]
    assert sum(operators[0] in ("Abs", "Neg") for _, *operators in asked) == 1
    assert caplog.text.count("lost a device in measuring") == 1
    clock.fails.clear()
    clock.asked.clear()
    place()
    assert ("fast", "Abs") in clock.asked, "a later session tries again"


def test_measuring_ends_when_its_time_is_up(clock, place, monkeypatch, caplog):
    monkeypatch.setattr(measuring, "_MOST_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, "ep_core"):
        assert place().strategy == "greedy"
    assert clock.asked == []
    monkeypatch.setattr(measuring, "_MOST_SECONDS", 30.0)
    assert place().strategy == "cost"
    assert clock.asked


def test_the_largest_nodes_that_several_can_run_come_first(clock, place):
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x, float[500, 500] z) => (float[3] y, float[500, 500] w, float[500, 500] v)
        { y = Abs(x) w = Neg(z) v = Tanh(z) }"""
    place(text, {"x": X, "z": np.ones((500, 500), np.float32)})
    nodes = [entry for entry in clock.asked if entry[1] != "start" and len(entry) == 2]
    assert nodes[:5] == [
        ("fast", "Neg"),
        ("cpu", "Neg"),
        ("fast", "Abs"),
        ("cpu", "Abs"),
        ("cpu", "Tanh"),
    ]


def test_where_there_is_nothing_to_choose_nothing_is_measured(clock, place):
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y)
        { a = Tanh(x) y = Sin(a) }"""
    assert set(owners(place(text)).values()) == {"cpu"}
    assert clock.asked == []


def test_greedy_that_was_asked_for_stays_and_measures_nothing(clock, place):
    clock.takes = {("fast", "Abs"): 9.0}
    report = place(placement_strategy="greedy")
    assert (report.strategy, set(owners(report).values())) == ("greedy", {"fast"})
    assert clock.asked == []


def test_cost_that_was_asked_for_says_so(clock, place):
    basis = place(placement_strategy="cost").basis
    assert basis == "asked for; measured costs of 4 of 4 nodes"


def test_pins_limits_and_preferences_hold(clock, place):
    clock.takes = {("fast", "Abs"): 0.1, ("fast", "Neg"): 0.1, ("fast", "Exp"): 9.0}
    report = place(pin={"op:Exp": "fast"})
    assert owners(report)["Exp"] == "fast"
    assert report.nodes[""][2].reason == "pinned by 'op:Exp'"
    assert len(place(max_partitions=1).partitions) == 1
    clock.takes = {("fast", operator): 1.5 for operator in ("Abs", "Neg", "Exp", "Mul")}
    settings = {"cost_cache": None, "prefer": {"*": "fast"}}
    assert set(owners(place(**settings)).values()) == {"fast"}


def test_a_gain_that_is_too_small_leaves_the_simple_placement(clock, place):
    clock.takes = {("fast", "Abs"): 0.1, ("fast", "Neg"): 0.1, ("fast", "Mul"): 2.5}
    clock.takes |= {("fast", "Exp"): 0.1}
    divided, simple = place(min_gain=0.1), place(min_gain=0.5)
    assert owners(divided)["Mul"] == "cpu"
    assert set(owners(simple).values()) == {"fast"}
    assert divided.predicted_seconds < simple.predicted_seconds == simple.greedy_seconds


@pytest.mark.parametrize("seed", range(12))
def test_never_slower_than_greedy_by_what_was_measured(clock, place, seed):
    rng = np.random.default_rng(seed)
    for name in ("fast", "cpu"):
        for operator in ("Abs", "Neg", "Exp", "Mul"):
            clock.takes[name, operator] = float(rng.uniform(0, 3))
        clock.fuses[name] = float(rng.uniform(0.05, 1))
    report = place()
    operators = ("Abs", "Neg", "Exp", "Mul")
    whole = {
        name: START + clock.fuses[name] * sum(clock.takes[name, operator] for operator in operators)
        for name in ("fast", "cpu")
    }
    assert report.greedy_seconds == pytest.approx(whole["fast"])
    assert report.predicted_seconds <= min(whole.values()) * (1 + 1e-9)


def test_bodies_are_measured_like_any_graph(clock, place):
    clock.takes = {("fast", "Exp"): 9.0, ("cpu", "Neg"): 5.0}
    report = place(LOOP, {"x": X, "n": np.array(3)})
    (scope,) = [scope for scope in report.nodes if scope]
    assert owners(report, scope) == {"Identity": "cpu", "Exp": "cpu", "Neg": "fast"}
    assert report.basis == "measured costs of 3 of 3 nodes"


def test_a_claim_that_fails_to_compile_is_placed_again_by_measured_costs(clock, provide, folder):
    provide("cpu")
    provide("fast", operators={"Abs", "Neg"}, fail_compile={"Neg"})
    options = SessionOptions()
    options.certificate_policy = "off"
    options.tune, options.cost_cache = True, folder
    clock.takes = {("fast", "Abs"): 0.1, ("fast", "Neg"): 0.1, ("cpu", "Abs"): 5.0}
    with InferenceSession(onnx.parser.parse_model(CHAIN), options, ["fast", "cpu"]) as session:
        report = session.get_placement()
        session.run(None, {"x": X})
    assert owners(report) == {"Abs": "fast", "Neg": "cpu", "Exp": "cpu", "Mul": "cpu"}
    assert report.basis.startswith("measured")


def test_one_log_line_says_what_was_measured(clock, place, caplog):
    clock.fails = {("fast", "Exp"): ValueError("no")}
    with caplog.at_level(logging.INFO, "ep_core"):
        place()
    (line,) = [record.getMessage() for record in caplog.records if "measured" in record.msg]
    assert line.startswith("g: measured ")
    assert "failed to measure 2" in line


@pytest.mark.parametrize(("name", "wrong"), [("tune", 1), ("cost_cache", 5), ("tune", None)])
def test_wrong_settings_are_errors(name, wrong):
    with pytest.raises(OptionError, match=name):
        setattr(SessionOptions(), name, wrong)
