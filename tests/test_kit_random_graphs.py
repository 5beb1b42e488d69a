"""The kit's random graphs and chains on our own providers, and beside ONNX Runtime."""

from __future__ import annotations

import pytest

from ep_compliance.cases.chains import chain_cases
from ep_compliance.cases.random_graphs import random_case
from ep_compliance.oracle.answers import answer
from ep_compliance.running.judging import judge_case
from ep_compliance.running.outcomes import Outcome
from ep_core.discovery.options import parse_options
from ep_core.discovery.registry import registry

CASES = [*chain_cases(), *(random_case(number) for number in range(110))]


def outcomes_on(name):
    factory = registry().factory(name)
    provider = factory.create(factory.devices()[0], parse_options(factory.info, {}))
    try:
        return {case.id: judge_case(case, provider) for case in CASES}
    finally:
        provider.close()


@pytest.mark.parametrize(("name", "least"), [("cpu", len(CASES) - 1), ("simulator", 100)])
def test_our_providers_do_what_they_claim(name, least):
    found = outcomes_on(name)
    bad = {Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT}
    assert {key: j.reason for key, j in found.items() if j.outcome in bad} == {}
    assert sum(judgement.outcome is Outcome.PASS for judgement in found.values()) >= least


def test_onnx_runtime_agrees_about_random_graphs():
    pytest.importorskip("onnxruntime")
    graphs = [case for case in CASES if case.id.startswith("random/")]
    doubts = {case.id: answer(case).quarantine_reason for case in graphs}
    assert {key: reason for key, reason in doubts.items() if reason is not None} == {}
