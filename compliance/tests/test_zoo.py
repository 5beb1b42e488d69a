"""The zoo: every defect is caught by what is meant to catch it, and correct providers pass."""

from __future__ import annotations

import re

import pytest
import zoo_artifacts  # noqa: F401 - it adds its animals to the tables
import zoo_claims  # noqa: F401 - likewise
import zoo_exchange  # noqa: F401 - likewise
import zoo_overlap  # noqa: F401 - likewise
import zoo_soak
import zoo_transfers  # noqa: F401 - likewise
from zoo_base import CorrectProvider, factory_of
from zoo_cases import CASES as OWN_CASES
from zoo_device import DEVICE
from zoo_factories import FACTORIES
from zoo_host import HOST, clean_up
from zoo_operators import MATRIX
from zoo_placement import ControlFlow

from ep_compliance.checks import all_checks, soak
from ep_compliance.driving.bench import Bench
from ep_compliance.running.judging import examine
from ep_compliance.running.outcomes import Outcome
from ep_sdk.factory import StandardFactory
from ep_sdk.simulator import INFO
from ep_sdk.simulator import ep_provider_factory as simulator_factory
from ep_sdk.simulator.provider import SimulatorProvider


@pytest.fixture(autouse=True, scope="module")
def keeper():
    yield
    clean_up()
    zoo_soak.clean_up()


CASES = {**OWN_CASES, **MATRIX}

CATCH_NOTHING_HERE = {
    "artifacts/options": "its defect is an option's, in test_artifact_checks.py",
    "artifacts/session-hits": "its animals have to be installed, in test_artifact_checks.py",
    "artifacts/session-misses": "the core keeps artifacts apart, a provider has no part in it",
    "artifacts/session-folders": "the folder is the core's, a provider has no part in it",
}
"""Checks without a defect in the tables, and why."""

ACCEPTABLE = (Outcome.PASS, Outcome.UNSUPPORTED)


def host_bench(provider_class):
    factory = factory_of(provider_class)
    return Bench(factory, factory.devices()[0])


def device_bench(provider_class):
    factory = StandardFactory(INFO, simulator_factory().devices, provider_class)
    return Bench(factory, factory.devices()[0])


def judged(bench, identifier):
    """The outcome of one case or check."""
    if identifier in CASES:
        with bench.open() as provider:
            return examine(CASES[identifier], provider)
    return all_checks()[identifier].judge(bench)


@pytest.mark.parametrize("name", HOST)
def test_a_broken_host_provider_is_caught(name):
    provider_class, caught_by, saying = HOST[name]
    outcome, reason = judged(host_bench(provider_class), caught_by)
    assert outcome is Outcome.FAIL
    assert re.search(saying, reason), reason


@pytest.mark.parametrize("name", DEVICE)
def test_a_broken_device_is_caught(name):
    provider_class, caught_by, saying = DEVICE[name]
    outcome, reason = judged(device_bench(provider_class), caught_by)
    assert outcome is Outcome.FAIL
    assert re.search(saying, reason), reason


@pytest.mark.parametrize("identifier", [*CASES, *all_checks()])
@pytest.mark.parametrize(
    "bench",
    [host_bench(CorrectProvider), device_bench(SimulatorProvider)],
    ids=["host", "device"],
)
def test_a_correct_provider_passes_everything(bench, identifier):
    outcome, reason = judged(bench, identifier)
    assert outcome in ACCEPTABLE, reason


def test_a_correct_provider_is_really_tried():
    for bench in (host_bench(CorrectProvider), device_bench(SimulatorProvider)):
        passed = [i for i in OWN_CASES if judged(bench, i)[0] is Outcome.PASS]
        assert len(passed) >= len(OWN_CASES) - 1


@pytest.mark.parametrize("name", FACTORIES)
def test_a_broken_factory_is_caught(name):
    factory, caught_by, saying = FACTORIES[name]
    outcome, reason = judged(Bench(factory, factory.devices()[0]), caught_by)
    assert outcome is Outcome.FAIL
    assert re.search(saying, reason), reason


def test_every_check_catches_a_defect():
    """A check that catches nothing proves nothing."""
    tables = (*HOST.values(), *DEVICE.values(), *FACTORIES.values())
    catching = {caught_by for _, caught_by, _ in tables}
    assert catching <= {*CASES, *all_checks()}
    assert sorted(set(all_checks()) - catching - set(CATCH_NOTHING_HERE)) == []
    assert sorted(catching & set(CATCH_NOTHING_HERE)) == []


# ---------------------------------------------------------------- soak, in small


@pytest.fixture(autouse=True)
def short_soak(monkeypatch):
    """Fewer cycles; what fills up once counts for more of what is left then."""
    monkeypatch.setattr(soak, "CYCLES", 60)
    monkeypatch.setattr(soak, "STORMS", 6)
    monkeypatch.setattr(soak, "BYTES_PER_CYCLE", 2000)
    monkeypatch.setattr(soak, "BYTES_PER_STORM", 20000)


def test_control_flow_as_a_whole():
    """None of the other providers takes it."""
    assert judged(host_bench(ControlFlow), "placement/whole-bodies") == (Outcome.PASS, "")
