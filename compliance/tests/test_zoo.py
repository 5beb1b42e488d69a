"""The zoo: every defect is caught by what is meant to catch it, and correct providers pass."""

from __future__ import annotations

import re

import pytest
from zoo_base import CorrectProvider, factory_of
from zoo_cases import CASES
from zoo_device import DEVICE
from zoo_host import HOST, clean_up

from ep_compliance.bench import Bench
from ep_compliance.checks import all_checks
from ep_compliance.judging import examine
from ep_compliance.outcomes import Outcome
from ep_core.contracts import OptionSpec
from ep_core.types import DeviceInfo
from ep_sdk.factory import StandardFactory
from ep_sdk.simulator import INFO
from ep_sdk.simulator import ep_provider_factory as simulator_factory
from ep_sdk.simulator.provider import SimulatorProvider


@pytest.fixture(autouse=True, scope="module")
def keeper():
    yield
    clean_up()


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
        passed = [i for i in CASES if judged(bench, i)[0] is Outcome.PASS]
        assert len(passed) >= len(CASES) - 1


# ---------------------------------------------------------------- broken factories


def _bench_of(factory):
    return Bench(factory, factory.devices()[0])


def test_an_option_that_refuses_its_default():
    options = {"level": OptionSpec("high", "how much", int)}
    bench = _bench_of(factory_of(CorrectProvider, options=options))
    assert judged(bench, "options/defaults")[0] is Outcome.FAIL


def test_an_option_that_raises_something_else():
    options = {"level": OptionSpec(1, "how much", lambda value: value + 1 - 1)}
    bench = _bench_of(factory_of(CorrectProvider, options=options))
    outcome, reason = judged(bench, "options/wrong-values")
    assert outcome is Outcome.FAIL
    assert "raises TypeError" in reason


def test_devices_that_change():
    fingerprints = iter(f"zoo-{n}" for n in range(100))

    def devices():
        return [DeviceInfo("zoo", "0", "cpu", fingerprint=next(fingerprints))]

    bench = _bench_of(factory_of(CorrectProvider, list_devices=devices))
    outcome, reason = judged(bench, "life/devices")
    assert outcome is Outcome.FAIL
    assert "differently" in reason


def test_a_device_without_a_fingerprint():
    device = DeviceInfo("zoo", "0", "cpu")
    bench = _bench_of(factory_of(CorrectProvider, list_devices=lambda: [device]))
    assert judged(bench, "life/devices")[0] is Outcome.FAIL
