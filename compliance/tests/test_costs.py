"""Estimates of cost: recorded beside what was measured, put together, and never judged."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from zoo_base import CorrectProvider, factory_of
from zoo_cases import CASES

from ep_compliance.cases.case import Subject
from ep_compliance.driving.bench import Bench
from ep_compliance.reports.costs import estimates_of
from ep_compliance.running.footprint import peak_bytes
from ep_compliance.running.jobs import Target
from ep_compliance.running.judging import judge_case
from ep_compliance.running.outcomes import Outcome, Verdict, verdict_of
from ep_compliance.running.runner import run_jobs
from ep_core.types import DataType
from ep_sdk.simulator import ep_provider_factory

ADD, MUL, RELU = (CASES[f"zoo/{name}"] for name in ("add", "mul", "relu"))


def estimating(cost):
    """The class of a correct provider that estimates so."""

    class Estimating(CorrectProvider):
        def estimate(self, kernel_node, row):
            return cost

    return Estimating


def judged(provider_class, case=ADD):
    factory = factory_of(provider_class)
    with Bench(factory, factory.devices()[0]).open() as provider:
        return judge_case(case, provider)


def test_what_was_predicted_and_measured_is_recorded():
    found = judged(estimating(0.25))
    assert found.outcome is Outcome.PASS
    assert found.predicted_seconds == 0.25
    assert 0 < found.run_seconds < 0.25


def test_without_an_estimate_none_is_recorded():
    found = judged(CorrectProvider)
    assert found.predicted_seconds is None
    assert found.run_seconds > 0


def test_a_wrong_estimate_is_nobodys_failure():
    assert judged(estimating(1e9)).outcome is Outcome.PASS
    assert judged(estimating(0)).outcome is Outcome.PASS


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0, "fast", True])
def test_an_estimate_is_in_seconds(cost):
    found = judged(estimating(cost))
    assert found.outcome is Outcome.FAIL
    assert "no seconds" in found.reason


def test_the_first_run_and_the_kits_own_work_dont_count():
    calls = []

    class Warming(CorrectProvider):
        def compile(self, subgraph):
            partition = super().compile(subgraph)
            run = partition.run

            def slow_at_first(*arguments):
                calls.append(1)
                if len(calls) == 1:
                    import time

                    time.sleep(0.2)
                run(*arguments)

            partition.run = slow_at_first
            return partition

    assert judged(Warming).run_seconds < 0.1
    assert len(calls) == 6


@pytest.mark.parametrize(("latency", "predicted"), [(0, None), (20_000, 0.02)])
def test_the_simulator_estimates_the_latency_it_was_given(latency, predicted):
    factory = ep_provider_factory()
    bench = Bench(factory, factory.devices()[0], {"kernel_latency_us": latency})
    with bench.open() as provider:
        found = judge_case(ADD, provider)
        view = judge_case(CASES["zoo/identity"], provider)
    assert found.outcome is Outcome.PASS
    assert found.predicted_seconds == predicted
    assert view.predicted_seconds == (0.0 if latency else None)
    # The wait for the stream is part of the measurement.
    assert found.run_seconds >= (predicted or 0)


def test_a_run_in_workers_brings_them_home(site):
    add, mul = run_jobs([ADD, MUL], Target("careless"))
    assert add.predicted_seconds == 0.001
    assert add.run_seconds > 0
    assert mul.predicted_seconds is None
    for verdict in (add, mul):
        assert verdict_of(verdict.record) == verdict


# ---------------------------------------------------------------- put together


def pair(case, predicted, measured, outcome=Outcome.PASS):
    verdict = Verdict(
        case.id, outcome, run_seconds=measured, predicted_seconds=predicted, seconds=1.0
    )
    return case, verdict


def test_they_are_medians_by_operator_and_type():
    doubles = dataclasses.replace(ADD, subject=Subject("", "Add", 14, {"T": DataType.DOUBLE}))
    scaler = dataclasses.replace(ADD, subject=Subject("ai.onnx.ml", "Scaler", 1))
    found = estimates_of(
        [
            pair(ADD, 2.0, 1.0),
            pair(ADD, 1.0, 4.0),
            pair(ADD, 3.0, 1.0),
            pair(doubles, 1.0, 1.0),
            pair(scaler, 1.0, 2.0),
        ]
    )
    assert [(e.operator, e.dtype, e.cases) for e in found] == [
        ("Add", "double", 1),
        ("Add", "float", 3),
        ("ai.onnx.ml.Scaler", "any", 1),
    ]
    add = found[1]
    assert (add.predicted_seconds, add.measured_seconds) == (2.0, 1.0)
    assert (add.ratio, add.lowest, add.highest) == (2.0, 0.25, 3.0)
    assert add.record["ratio"] == {"median": 2.0, "lowest": 0.25, "highest": 3.0}


def test_what_has_no_estimate_no_measure_or_no_operator_is_left_out():
    chain = dataclasses.replace(ADD, subject=None)
    pairs = [
        pair(ADD, None, 1.0),
        pair(ADD, 1.0, None),
        pair(ADD, 1.0, 0.0),
        pair(chain, 1.0, 1.0),
        pair(RELU, 1.0, 1.0, Outcome.FAIL),
    ]
    assert estimates_of(pairs) == []


# ---------------------------------------------------------------- memory


def test_the_peak_of_this_process_is_more_than_what_it_holds():
    if peak_bytes() is None:
        pytest.skip("needs a system that counts it")
    kept = np.ones(2**23)
    assert kept.nbytes < peak_bytes() < 2**40


def test_a_worker_has_a_peak_of_its_own(site):
    """Linux lets a child start from its parent's peak, as far as getrusage goes."""
    if peak_bytes() is None:
        pytest.skip("needs a system that counts it")
    ballast = np.ones(2**25)
    (verdict,) = run_jobs([ADD], Target("correct"))
    assert 2**24 < verdict.peak_bytes < ballast.nbytes
