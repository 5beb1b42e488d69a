"""Whole sessions on the simulator alone: discovered as a plugin, two devices, faults, threads."""

from __future__ import annotations

import gc
import threading

import numpy as np
import onnx
import pytest

from ep_core import InferenceSession, SessionOptions
from ep_core.discovery.registry import registry
from ep_core.errors import DeviceLostError, EpError, OptionError, PlacementError, RunError

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
CHAIN = (
    HEAD + "g (float[4] x) => (float[4] d) { a = Exp(x) b = Mul(a, a) c = Neg(b) d = Add(c, x) }"
)
LOOP = (
    HEAD
    + """
g (float[4] x, int64 count) => (float[4] total, float[N,4] all) {
    start = Identity(x)
    total, all = Loop (count, , start) <body = body
        (int64 i, bool go, float[4] before) => (bool more, float[4] after, float[4] kept) {
            more = Identity(go)
            after = Add(before, x)
            kept = Neg(after)
        }>
}
"""
)
X = np.float32([1, 2, 3, 4])


def expected(x):
    return -np.exp(x) * np.exp(x) + x


@pytest.fixture
def session():
    """`session(text, options, options of device 1)`: on simulated devices only."""
    opened = []
    threads = threading.active_count()

    def make(text=CHAIN, *devices):
        settings = SessionOptions()
        settings.disable_cpu_fallback = True
        devices = devices or ({},)
        providers = [("simulator", {"device_id": str(n), **o}) for n, o in enumerate(devices)]
        model = onnx.parser.parse_model(text)
        opened.append(InferenceSession(model.SerializeToString(), settings, providers))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    assert threading.active_count() == threads


def test_is_found_by_its_entry_point():
    status = registry().status("simulator")
    assert status.distribution == "ep-sdk"
    assert [device.id for device in status.devices] == ["0", "1"]
    assert registry().factory("SimulatorExecutionProvider").info.name == "simulator"
    assert "simulator" not in registry().automatic()


def test_a_whole_model(session):
    (d,) = session().run(None, {"x": X})
    np.testing.assert_allclose(d, expected(X), rtol=1e-6)


def test_two_devices_are_told_apart(session):
    one = session(CHAIN, {"skip": "Neg"}, {"kernel_latency_us": 1})
    assert one.get_providers() == ["simulator:0", "simulator:1"]
    options = one.get_provider_options()
    assert options["simulator:0"]["kernel_latency_us"] == "0"
    assert options["simulator:1"]["kernel_latency_us"] == "1"


def test_what_a_device_declares_of_its_speed_decides_the_placement(session):
    fast, slow = "1e12,1e11,1e-6,1e-5,1e-6,1e10", "1e9,1e9,1e-3,1e-2,1e-6,1e10"
    one = session(CHAIN, {"speed": slow}, {"speed": fast})
    report = one.get_placement()
    assert (report.strategy, report.basis) == ("cost", "speeds or costs are known")
    assert {part.provider for part in report.partitions} == {"simulator:1"}
    assert report.predicted_seconds < report.greedy_seconds
    np.testing.assert_allclose(one.run(None, {"x": X})[0], expected(X), rtol=1e-6)


@pytest.mark.parametrize("speed", ["fast", "1,2", "1e9,1e9,0,0,0,0", "1e9,nan,0,0,0,1", 7])
def test_a_speed_that_is_none_is_an_error(session, speed):
    with pytest.raises(OptionError, match="six numbers such as"):
        session(CHAIN, {"speed": speed})


def test_two_devices_hand_values_to_each_other(session):
    one = session(CHAIN, {"skip": "Mul", "kernel_latency_us": 2000}, {})
    providers = {part.provider for part in one.get_placement().partitions}
    assert providers == {"simulator:0", "simulator:1"}
    for _ in range(5):
        np.testing.assert_allclose(one.run(None, {"x": X})[0], expected(X), rtol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_control_flow(session, count):
    total, all_kept = session(LOOP).run(None, {"x": X, "count": np.array(count)})
    np.testing.assert_array_equal(total, X * (count + 1))
    assert all_kept.shape == (count, 4)
    for number, row in enumerate(all_kept):
        np.testing.assert_array_equal(row, -X * (number + 2))


def test_eight_threads_in_one_session(session):
    one = session(CHAIN, {"skip": "Mul", "kernel_latency_us": 50}, {"copy_latency_us": 50})
    wrong = []

    def work(seed):
        x = np.full(4, seed / 8, np.float32)
        for _ in range(20):
            (d,) = one.run(None, {"x": x})
            if not np.allclose(d, expected(x), rtol=1e-6):
                wrong.append((seed, d))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_node_that_nobody_compiles(session):
    with pytest.raises(PlacementError, match="failed as told"):
        session(CHAIN, {"fail_compile": "Neg"})


def test_a_refused_claim_goes_to_the_other_device(session):
    one = session(CHAIN, {"fail_compile": "Mul"}, {})
    placed = one.get_placement().nodes[""]
    assert {p.provider for p in placed if p.op_type == "Mul"} == {"simulator:1"}
    assert {p.provider for p in placed if p.op_type != "Mul"} == {"simulator:0"}
    assert any("compiling Mul failed as told" in why for why in one.get_placement().refused_claims)
    np.testing.assert_allclose(one.run(None, {"x": X})[0], expected(X), rtol=1e-6)


def test_a_provider_whose_capability_raises_costs_its_claims_only(session):
    one = session(CHAIN, {"fail_capability": True}, {})
    np.testing.assert_allclose(one.run(None, {"x": X})[0], expected(X), rtol=1e-6)


def test_a_failed_kernel_fails_one_run(session):
    one = session(CHAIN, {"fail_kernel_at": 2})
    with pytest.raises(RunError, match="kernel 2 on simulator:0 failed as told"):
        one.run(None, {"x": X})
    np.testing.assert_allclose(one.run(None, {"x": X})[0], expected(X), rtol=1e-6)


def test_a_lost_device_fails_every_later_run_and_a_new_session_works(session):
    one = session(CHAIN, {"lose_device_at": 2})
    for _ in range(3):
        with pytest.raises(DeviceLostError):
            one.run(None, {"x": X})
    np.testing.assert_allclose(session().run(None, {"x": X})[0], expected(X), rtol=1e-6)


@pytest.mark.parametrize("text", [CHAIN, LOOP])
@pytest.mark.parametrize(
    "fault", ["fail_allocation_at", "fail_copy_at", "fail_kernel_at", "lose_device_at"]
)
def test_any_fault_is_an_ep_error_and_a_later_session_is_unharmed(session, text, fault):
    """The fixture sees to it that no thread is left behind."""
    feeds = {"x": X} if text == CHAIN else {"x": X, "count": np.array(3)}
    failures = 0
    for number in range(1, 14):
        try:
            session(text, {fault: number}).run(None, feeds)
        except EpError:
            failures += 1
    assert failures >= 2


def test_nothing_grows(session):
    one = session(CHAIN, {"skip": "Mul"}, {})
    for _ in range(20):
        one.run(None, {"x": X})
    gc.collect()
    before = (threading.active_count(), len(gc.get_objects()))
    for _ in range(500):
        one.run(None, {"x": X})
    gc.collect()
    assert threading.active_count() == before[0]
    assert len(gc.get_objects()) - before[1] < 100
