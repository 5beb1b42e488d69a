"""Pins, preferences, limits and strategies on real providers: wherever nodes run, the answer stays.

The right answer is the CPU provider's alone.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from random_graphs import random_model
from test_random_models import LENGTHS, all_same, options_of
from test_two_providers import assert_equal, feeds, looping_model

from ep_core import InferenceSession, PlacementReport
from ep_core.errors import PlacementError
from pretrained import fetch
from pretrained.samples import sample_feeds

STRATEGIES = ("auto", "greedy", "cost")


def path_of(scope: str, node: str) -> str:
    return f"{scope}/{node}" if scope else node


def literal(path: str) -> str:
    """A pattern that matches one path and no other name."""
    return re.sub(r"([*?[])", r"[\1]", path)


def random_pins(rng, report: PlacementReport, share: float) -> dict[str, str]:
    """Pins of single nodes to providers that can run them, by names or with their paths."""
    pins = {}
    for scope, nodes in report.nodes.items():
        for placed in nodes:
            able = [
                name for name in (placed.provider, placed.runner_up) if name not in (None, "core")
            ]
            if able and rng.random() < share:
                pins[literal(path_of(scope, placed.node))] = able[int(rng.integers(len(able)))]
    # A name may occur in several bodies, and then without a path means the nodes of all.
    names = [placed.node for nodes in report.nodes.values() for placed in nodes]
    return {pin: to for pin, to in pins.items() if "/" in pin or names.count(pin) == 1}


def kept(report: PlacementReport, pins: dict[str, str]) -> bool:
    where = {
        literal(path_of(scope, placed.node)): placed.provider
        for scope, nodes in report.nodes.items()
        for placed in nodes
    }
    return all(where[pattern] == provider for pattern, provider in pins.items())


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_any_pins_give_what_the_cpu_alone_gives(start):
    for seed in range(start, start + 20):
        rng = np.random.default_rng(seed)
        random = random_model(seed)
        level = int(rng.choice([0, 99]))
        with (
            InferenceSession(random.model, options_of(level), ["cpu"]) as alone,
            InferenceSession(random.model, options_of(level), ["simulator", "cpu"]) as free,
        ):
            options = options_of(level)
            options.placement_strategy = STRATEGIES[seed % 3]
            options.pin = random_pins(rng, free.get_placement(), rng.random())
            if free.get_placement().nodes[""] and rng.random() < 0.5:
                options.prefer = {"*": "cpu"}
            options.min_gain = float(rng.random())
            with InferenceSession(random.model, options, ["simulator", "cpu"]) as pinned:
                assert kept(pinned.get_placement(), options.pin), seed
                for number, length in enumerate(LENGTHS):
                    given = random.feeds(seed * 10 + number, length)
                    assert all_same(pinned.run(None, given), alone.run(None, given)), seed


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pins_in_bodies_on_two_memories(strategy):
    model = looping_model()
    options = options_of(99)
    options.placement_strategy = strategy
    options.pin = {"op:Relu": "cpu", "between:h_in->he": "cpu", "op:Add": "simulator"}
    with (
        InferenceSession(model, options_of(99), ["cpu"]) as alone,
        InferenceSession(model, options, ["simulator", "cpu"]) as pinned,
    ):
        where = {
            placed.op_type: placed.provider
            for nodes in pinned.get_placement().nodes.values()
            for placed in nodes
        }
        assert (where["Relu"], where["Erf"], where["Add"]) == ("cpu", "cpu", "simulator")
        for seed in range(8):
            assert_equal(pinned.run(None, feeds(seed)), alone.run(None, feeds(seed)))


@pytest.mark.parametrize("name", ["speech", "file-type"])
def test_limits_on_real_models(name):
    given = sample_feeds(name)
    options = options_of(99)
    with (
        InferenceSession(fetch(name), options, ["cpu"]) as alone,
        InferenceSession(fetch(name), options, ["simulator", "cpu"]) as free,
    ):
        expected = alone.run(None, given)
        before = free.get_placement()
    most = max(2, len(before.copies) // 4)
    options.max_copies = most
    with InferenceSession(fetch(name), options, ["simulator", "cpu"]) as limited:
        after = limited.get_placement()
        got = limited.run(None, given)
    for scope in after.nodes:
        assert sum(copy.scope == scope for copy in after.copies) <= most < len(before.copies)
    assert after.strategy == "cost"
    assert after.basis.startswith("limits that greedy exceeds")
    for value, right in zip(got, expected, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-3, atol=1e-4)


def test_nothing_is_second_guessed_without_a_basis():
    with InferenceSession(fetch("file-type"), options_of(99), ["simulator", "cpu"]) as session:
        report = session.get_placement()
    assert (report.strategy, report.predicted_seconds) == ("greedy", None)
    assert report.basis == "neither speed nor costs are known of simulator"


def test_a_pin_to_the_simulator_of_what_it_lacks_names_the_refusal():
    options = options_of(99)
    options.pin = {"op:Erf": "SimulatorExecutionProvider"}
    with pytest.raises(PlacementError, match=r"pinned to 'simulator' by 'op:Erf', .*Erf has no k"):
        InferenceSession(looping_model(), options, ["simulator", "cpu"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_fails_to_compile_is_placed_again_or_is_an_error_where_it_is_pinned(strategy):
    model = looping_model()
    providers = [("simulator", {"fail_compile": "Tanh"}), "cpu"]
    options = options_of(99)
    options.placement_strategy = strategy
    options.pin = {"op:MatMul": "simulator"}
    with (
        InferenceSession(model, options_of(99), ["cpu"]) as alone,
        InferenceSession(model, options, providers) as session,
    ):
        report = session.get_placement()
        where = {placed.op_type: placed.provider for placed in report.nodes[""]}
        assert (where["MatMul"], where["Tanh"]) == ("simulator", "cpu")
        assert_equal(session.run(None, feeds(3)), alone.run(None, feeds(3)))
    options.pin = {"op:Tanh": "simulator"}
    with pytest.raises(PlacementError, match=r"pinned to 'simulator' by 'op:Tanh', .*compile fail"):
        InferenceSession(model, options, providers)
