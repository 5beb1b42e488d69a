"""What the caller rules: patterns, contradictions, strategies, and settings that are checked."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import parser
from test_partition import Answering, candidate, graph_of

from ep_core import InferenceSession, SessionOptions
from ep_core.contracts import ProviderFeatures
from ep_core.errors import OptionError, PlacementError
from ep_core.graph import Graph
from ep_core.loading.load import load_model
from ep_core.partition import CORE, Candidate, partition
from ep_core.placement.rules import Rules
from ep_core.placement.solve import Limits
from ep_core.types import DeviceInfo, DeviceSpeed

NAMES = {"a": "a", "AExecutionProvider": "a", "b": "b"}
SPEED = DeviceSpeed(1e9, 1e9, 1e-6, 1e-5)

DIAMOND = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool c) => (float[2] y) {
    [left] l = Abs(x)
    [right] r = Neg(x)
    [both] s = Add(l, r)
    [choice] y = If(c) <
        then_branch = t () => (float[2] t) { [inner] t = Mul(s, s) },
        else_branch = e () => (float[2] e) { [inner] e0 = Sub(s, l) [last] e = Exp(e0) }
    >
}
"""


def diamond() -> Graph:
    return load_model(parser.parse_model(DIAMOND)).graph


def owners(result) -> list[str]:
    return [placement.provider for placement in result.placements]


def both(*names: str, **settings) -> list[Candidate]:
    return [candidate("a", names, **settings), candidate("b", names, **settings)]


# ------------------------------------------------------------ patterns


@pytest.mark.parametrize(
    ("pattern", "scope", "positions"),
    [
        ("left", "", [0]),
        ("*t", "", [0, 1]),
        ("*", "", [0, 1, 2, 3]),
        ("op:Neg", "", [1]),
        ("between:x->s", "", [0, 1, 2]),
        ("between:l->s", "", [2]),
        ("between: x -> y ", "", [0, 1, 2, 3]),
        ("between:r->l", "", []),
        ("inner", "choice/else_branch", [0]),
        ("choice/else_branch/*", "choice/else_branch", [0, 1]),
        ("choice/then_branch/inner", "choice/else_branch", []),
        ("between:s->e", "choice/else_branch", [0, 1]),
    ],
)
def test_what_patterns_match(pattern, scope, positions):
    graph = diamond()
    part = graph.nodes[3].bodies["else_branch"] if scope else graph
    assert sorted(Rules(pin={pattern: "a"}).wishes(part, scope).pins) == positions


@pytest.mark.parametrize(
    ("pattern", "positions"),
    [
        ("layer[1]", [0]),
        ("layer[1]*", [0]),
        ("*[1]", [0]),
        ("layer*", [0, 1]),
        ("layer1", [1]),
        ("layer?1?", [0]),
        ("[0-9]", []),
        ("(?s).*", []),
        ("*" * 3000, [0, 1]),
        ("*l*a*y*e*r*" + "*r" * 40, []),
    ],
)
def test_brackets_and_what_else_looks_like_an_expression_mean_themselves(pattern, positions):
    graph = graph_of([(), (0,)])
    odd = [graph.nodes[0].replace(name="layer[1]"), graph.nodes[1].replace(name="layer1")]
    found = Rules(pin={pattern: "a"}).wishes(graph.replace(nodes=tuple(odd)), "").pins
    assert sorted(found) == positions


def test_thousands_of_patterns_are_looked_up_and_not_tried_on_every_node(monkeypatch):
    """Each node by its name, by how its name begins, and by the tensors around it."""
    tried = []
    count = 3000
    graph = graph_of([(), *((index,) for index in range(count - 1))])
    consumers = dict(graph.consumers)

    class Counting(dict):
        def get(self, name, default=None):
            tried.append(name)
            return consumers.get(name, default)

    vars(graph)["consumers"] = Counting(consumers)
    wanted = {f"n{index}": "a" for index in range(count)}
    wanted |= {f"between:v{index}->v{index + 2}": "a" for index in range(count - 2)}
    wanted |= {f"n{index}*": "a" for index in range(count)}
    assert len(Rules(pin=wanted).wishes(graph, "").pins) == count
    assert len(tried) < 5 * count


def test_names_of_providers_are_understood_in_every_spelling():
    rules = Rules(pin={"left": "AExecutionProvider"}, prefer={"inner": "b"})
    assert rules.resolved(diamond(), NAMES).pin == {"left": "a"}


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (Rules(pin={"left": "aa"}), r"pin 'left' names provider 'aa', .* Did you mean 'a'"),
        (Rules(prefer={"left": "gpu"}), r"prefer 'left' names provider 'gpu', .*Known: .*b"),
        (Rules(pin={"lefd": "a"}), r"pin 'lefd' matches no node .*'left'.*ORT_DISABLE_ALL"),
        (Rules(pin={"op:Nag": "a"}), r"'op:Nag' matches no node .*mean 'Neg'"),
        (Rules(prefer={"between:r->l": "a"}), r"'between:r->l' .*: no way in .* from 'r' to 'l'"),
        (Rules(pin={"between:rr->s": "a"}), r"there is no tensor 'rr'.* Did you mean 'r'"),
        (Rules(pin={"between:x->q": "a"}), r"'between:x->q' .*: there is no tensor 'q'"),
        (
            Rules(memory_limits={"a": 5, "AExecutionProvider": 6}),
            r"memory_limits names 'a' twice: .*AExecutionProvider.*Leave one",
        ),
    ],
)
def test_what_only_a_model_can_tell_is_checked_with_it(rules, words):
    with pytest.raises(PlacementError, match=words):
        rules.resolved(diamond(), NAMES)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("placement_strategy", "costs"),
        ("placement_strategy", 3),
        ("pin", ["conv"]),
        ("pin", {"conv": ""}),
        ("pin", {"": "cpu"}),
        ("pin", {3: "cpu"}),
        ("pin", {"op:": "cpu"}),
        ("prefer", {"between:a": "cpu"}),
        ("prefer", {"between:->b": "cpu"}),
        ("max_copies", -1),
        ("max_copies", True),
        ("max_partitions", 1.5),
        ("min_gain", 1.01),
        ("min_gain", float("nan")),
        ("min_gain", "0.5"),
        ("min_gain", 10**400),
        ("min_gain", -(10**400)),
    ],
)
def test_settings_are_checked_when_they_are_set(setting, value):
    options = SessionOptions()
    before = getattr(options, setting)
    with pytest.raises(OptionError, match=setting):
        setattr(options, setting, value)
    assert getattr(options, setting) == before


def test_a_setting_that_is_changed_in_place_is_checked_too():
    options = SessionOptions()
    options.pin = {"conv": "cpu"}
    options.pin["op:"] = "cpu"
    with pytest.raises(OptionError, match="pattern 'op:' of pin"):
        _ = options.placement_rules


def test_settings_of_two_sessions_are_apart():
    one = SessionOptions()
    one.pin["conv"] = "cpu"
    assert SessionOptions().pin == {}


# ------------------------------------------------------------ what they do


@pytest.mark.parametrize("strategy", ["greedy", "cost"])
def test_pins_hold(strategy):
    graph = graph_of([(), (0,), (1,)])
    result = partition(graph, both("n0", "n1", "n2"), None, Rules(strategy, {"n1": "b"}))
    assert owners(result) == ["a", "b", "a"] if strategy == "greedy" else ["b", "b", "b"]
    pinned = result.placements[1]
    assert (pinned.provider, pinned.reason, pinned.runner_up) == ("b", "pinned by 'n1'", None)


def test_a_pin_to_a_provider_that_refuses_names_both():
    graph = graph_of([(), (0,)])
    candidates = [candidate("a", {"n0"}), candidate("b", {"n0", "n1"})]
    with pytest.raises(PlacementError, match=r"Op 'n1' is pinned to 'a' by 'n\?', .*: can't"):
        partition(graph, candidates, None, Rules(pin={"n?": "a"}))


def test_a_pin_to_what_failed_to_compile_says_so():
    graph = graph_of([(), (0,)])
    refusals = {("a", "n1"): "compile failed: no"}
    with pytest.raises(PlacementError, match=r"pinned to 'a' by 'n1', .*compile failed: no"):
        partition(graph, both("n0", "n1"), refusals, Rules(pin={"n1": "a"}))


def test_pins_that_contradict_each_other_are_both_named():
    rules = Rules(pin={"n*": "a", "op:Op": "b"})
    with pytest.raises(PlacementError, match=r"'n0' is pinned to 'a' by 'n\*' and to 'b' by 'op:O"):
        partition(graph_of([()]), both("n0"), None, rules)


def test_preferences_hold_where_they_can_and_the_first_counts():
    graph = graph_of([(), (0,), (1,)])
    candidates = [candidate("a", {"n0", "n1", "n2"}), candidate("b", {"n0", "n1"})]
    rules = Rules("greedy", prefer={"n1": "a", "n*": "b"})
    result = partition(graph, candidates, None, rules)
    assert owners(result) == ["b", "a", "a"]
    assert result.placements[0].reason == "preferred"


def test_limits_of_greedy_are_an_error_and_of_auto_a_search():
    graph = graph_of([(), (0,), (1,)])
    plain = candidate("a", {"n0", "n2"}), candidate("b", {"n0", "n1", "n2"})
    limits = Limits(max_partitions=1)
    with pytest.raises(PlacementError, match="max_partitions=1"):
        partition(graph, plain, None, Rules("greedy", limits=limits))
    result = partition(graph, plain, None, Rules(limits=limits))
    assert owners(result) == ["b", "b", "b"]
    with pytest.raises(PlacementError, match=r"max_partitions=1 .*'n0' is pinned to 'a'"):
        partition(graph, plain, None, Rules(pin={"n0": "a"}, limits=limits))


class Silent(Answering):
    """Says that it can run a node, and not what that takes."""

    def get_capability(self, graph):
        answer = super().get_capability(graph)
        nodes = tuple(type(s)(s.supported, s.reason) for s in answer.nodes)
        return type(answer)(nodes)


def silent(name: str, *, speed=None, named=True, kind="cpu") -> Candidate:
    provider = Silent({"n0", "n1"}, device=DeviceInfo(name, "0", kind, speed=speed))
    return Candidate(name, provider, lambda graph, node: (True, ""), named=named)


@pytest.mark.parametrize(
    ("candidates", "strategy", "basis"),
    [
        ([silent("a"), silent("b", speed=SPEED)], "greedy", "neither speed nor costs .* of a$"),
        ([silent("a", speed=SPEED), silent("b", speed=SPEED)], "cost", "are known$"),
        ([silent("a", speed=SPEED), silent("b", named=False)], "cost", "assumed for b$"),
        ([candidate("a", {"n0", "n1"}), silent("b")], "greedy", "of b$"),
        ([candidate("a", {"n0", "n1"}), silent("b", named=False)], "cost", "assumed for b$"),
        ([candidate("a", set()), silent("b", named=False)], "greedy", "known of a$"),
        ([candidate("a", {"n0", "n1"}), candidate("b", {"n0", "n1"})], "cost", "are known$"),
    ],
)
def test_auto_needs_a_basis_of_everybody_that_was_named(candidates, strategy, basis):
    decision = partition(graph_of([(), (0,)]), candidates, None, Rules()).decision
    assert decision.strategy == strategy
    assert re.search(basis, decision.basis)
    assert (decision.seconds is None) == (strategy == "greedy")
    assert all((p.difference is None) == (strategy == "greedy") for p in decision.placements)


def test_cost_assumes_speeds_by_the_kind_of_device():
    slow, fast = silent("a"), silent("b", kind="gpu")
    decision = partition(graph_of([(), (0,)]), [slow, fast], None, Rules("cost")).decision
    assert decision.basis == "asked for, and assumed for a, b"
    assert decision.seconds is not None


def test_the_slower_of_two_loses_its_nodes():
    slow = DeviceSpeed(1e9, 1e9, 1.0, 1.0)
    candidates = [silent("a", speed=slow), silent("b", speed=SPEED)]
    result = partition(graph_of([(), (0,)]), candidates, None, Rules())
    assert owners(result) == ["b", "b"]
    assert result.placements[0].runner_up == "a"
    # alone on a, a node takes a second and starts a partition of one more
    assert result.placements[0].difference == pytest.approx(1.0, rel=0.01)


# ------------------------------------------------------------ sessions and bodies


def opened(provide, pin=None, **settings):
    provide("a", **settings.pop("first", {}))
    provide("b")
    options = SessionOptions()
    options.graph_optimization_level = 0
    options.certificate_policy = "off"
    options.pin = pin or {}
    for name, value in settings.items():
        setattr(options, name, value)
    return InferenceSession(parser.parse_model(DIAMOND), options, ["a", "b"])


def placed(session) -> dict[str, str]:
    return {
        f"{scope}/{p.node}" if scope else p.node: p.provider
        for scope, nodes in session.get_placement().nodes.items()
        for p in nodes
    }


def test_pins_hold_inside_bodies(provide):
    with opened(provide, {"choice/else_branch/inner": "b", "op:Mul": "b"}) as session:
        found = placed(session)
        assert found["choice"] == CORE
        assert found["choice/else_branch/inner"] == found["choice/then_branch/inner"] == "b"
        assert found["choice/else_branch/last"] == found["left"] == "a"
        x = np.array([1.5, -2], np.float32)
        assert session.run(None, {"x": x, "c": np.array(False)})[0].tolist() == [
            pytest.approx(np.exp(np.float32(-1.5))),
            pytest.approx(np.exp(np.float32(2))),
        ]
        report = session.get_placement()
        assert (report.strategy, report.predicted_seconds) == ("greedy", None)
        assert report.basis == "neither speed nor costs are known of a, b"
        assert report.to_dict()["strategy"] == "greedy"
        assert "by greedy: neither speed" in str(report)


def test_a_pattern_for_all_means_what_is_inside_control_flow_too(provide):
    with opened(provide, {"*": "b"}) as session:
        found = placed(session)
        assert found.pop("choice") == CORE
        assert set(found.values()) == {"b"}


def test_control_flow_that_is_pinned_by_its_name_is_an_error(provide):
    with pytest.raises(PlacementError, match=r"If 'choice' is pinned to 'b' by 'choice', .*no con"):
        opened(provide, {"choice": "b"})


def test_limits_hold_inside_bodies(provide):
    provide("cpu", operators=set())  # in place of a real one that is installed
    first = {"operators": {"Abs", "Neg", "Add", "Mul", "Sub"}}
    with opened(provide, max_partitions=1, first=first) as session:
        found = placed(session)
    assert found["choice/else_branch/inner"] == found["choice/else_branch/last"] == "b"


def test_a_pin_and_a_pin_inside_that_contradict_are_both_named():
    names = {"left", "right", "both", "choice"}
    whole = [candidate(name, names, features=ProviderFeatures(control_flow=True)) for name in "ab"]

    def owner(pin) -> str:
        return owners(partition(diamond(), whole, None, Rules("greedy", pin)))[3]

    assert owner({"op:If": "b"}) == owner({"op:Exp": "b"}) == "b"
    assert owner({"op:Exp": "b", "op:Mul": "a"}) == CORE
    words = r"pinned to 'a' by 'op:If', .*else_branch/last' inside is pinned to 'b' by 'op:Exp'"
    with pytest.raises(PlacementError, match=words):
        owner({"op:If": "a", "op:Exp": "b"})


def test_sessions_check_their_patterns(provide):
    with pytest.raises(PlacementError, match=r"'lefty' matches no node .*'left'"):
        opened(provide, {"lefty": "a"})


def test_sessions_check_their_providers(provide):
    with pytest.raises(PlacementError, match="names provider 'c', which isn't in the session"):
        opened(provide, {"left": "c"})
