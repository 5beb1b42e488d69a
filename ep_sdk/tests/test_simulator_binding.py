"""Runs bound to simulated devices: copies, refusals, lifetimes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from bound_devices import (
    FREE,
    LOOP,
    X,
    Y,
    Z,
    empty_on,
    ends,
    in_use,
    on,
    provider_of,
    sessions_on_devices,
)

from ep_core.errors import (
    FeedError,
    OptionError,
)
from ep_sdk.simulator.transfer import SimulatorTransfer


@pytest.fixture
def session():
    """`session(text, device=..., **options)`; see `sessions_on_devices`."""
    with sessions_on_devices() as make:
        yield make


def test_nothing_is_copied_where_everything_is_on_the_device(session):
    one = session()
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", on(0))
    target = empty_on(0, 4)
    binding.bind_ortvalue_output("z", target)
    binding.bind_output("y", "simulator", 0)
    assert binding.get_copies() == ()
    before = provider_of(one).simulated._counts["copy"]
    one.run_with_iobinding(binding)
    assert provider_of(one).simulated._counts["copy"] == before
    z, y = binding.get_outputs()
    assert [str(value.memory) for value in (z, y)] == ["simulator:0/device"] * 2
    np.testing.assert_allclose(target.numpy(), Z, rtol=1e-6)
    np.testing.assert_allclose(z.numpy(), Z, rtol=1e-6)
    np.testing.assert_allclose(y.numpy(), Y, rtol=1e-6)


def test_bytes_of_copies_are_counted(session):
    binding = session().io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    assert [(copy.value, copy.nbytes) for copy in binding.get_copies()] == [("x", 16), ("y", 16)]


@pytest.mark.parametrize("peers", [True, False])
def test_an_input_on_the_other_device(session, monkeypatch, peers):
    """Directly where the devices can, else through the host."""
    can_copy = SimulatorTransfer.can_copy
    if not peers:

        def through_host(self, source, target):
            return "cpu" in (source.device, target.device) and can_copy(self, source, target)

        monkeypatch.setattr(SimulatorTransfer, "can_copy", through_host)
    one = session(device=1)
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", on(0))
    binding.bind_output("y", "simulator", 0)
    zero, far, host = "simulator:0", "simulator:1", "cpu"
    if peers:
        assert ends(binding) == [("x", zero, far), ("y", far, zero)]
    else:
        there = [("x", zero, host), ("x", host, far)]
        assert ends(binding) == [*there, ("y", far, host), ("y", host, zero)]
    one.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert str(y.memory) == "simulator:0/device"
    np.testing.assert_allclose(y.numpy(), Y, rtol=1e-6)


def test_outputs_left_on_a_device_feed_another_session(session):
    first, second = session(kernel_latency_us=3000), session()
    binding = first.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "SimulatorExecutionProvider", 0)
    first.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    following = second.io_binding()
    following.bind_ortvalue_input("x", y)
    following.bind_output("y")
    assert ends(following) == [("y", "simulator:0", "cpu")]
    second.run_with_iobinding(following)
    np.testing.assert_allclose(following.copy_outputs_to_cpu()[0], -np.exp(Y), rtol=1e-6)


def test_an_input_that_changes_between_runs(session):
    one = session()
    value = on(0)
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    for seed in range(5):
        value.update_inplace(np.full(4, seed, np.float32))
        one.run_with_iobinding(binding)
        np.testing.assert_allclose(
            binding.copy_outputs_to_cpu()[0], -np.exp(np.full(4, seed)), 1e-6
        )


def test_each_run_allocates_what_is_left_to_it_and_earlier_results_stay(session):
    one = session()
    value = on(0)
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "simulator")
    kept = []
    for seed in range(4):
        value.update_inplace(np.full(4, seed, np.float32))
        one.run_with_iobinding(binding)
        kept += binding.get_outputs()
    for seed, y in enumerate(kept):
        np.testing.assert_allclose(y.numpy(), -np.exp(np.full(4, seed)), 1e-6)
    assert in_use(one) == 64


def test_run_with_ort_values_brings_outputs_to_the_host(session):
    one = session()
    z, y, again = one.run_with_ort_values(["z", "y", "z"], {"x": on(1)})
    assert [value.device_name() for value in (z, y)] == ["cpu", "cpu"]
    np.testing.assert_allclose(z.numpy(), Z, rtol=1e-6)
    np.testing.assert_allclose(y.numpy(), Y, rtol=1e-6)
    np.testing.assert_array_equal(again.numpy(), z.numpy())
    assert len(one.run_with_ort_values(None, {"x": on(1)})) == 2


def test_control_flow_between_bound_ends(session):
    one = session(LOOP)
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", on(0))
    binding.bind_cpu_input("count", np.array(3))
    target = empty_on(0, 4)
    binding.bind_ortvalue_output("twice", target)
    binding.bind_output("total", "simulator", 1)
    for _ in range(3):
        one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), X * 8)
    np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), X * 4)
    (total, _) = one.run(None, {"x": X, "count": np.array(1)})
    np.testing.assert_array_equal(total, X * 2)


def test_shapes_that_change_from_run_to_run(session):
    one = session(FREE)
    binding = one.io_binding()
    for length in (4, 9, 0, 4):
        x = np.arange(length, dtype=np.float32)
        binding.bind_ortvalue_input("x", on(0, x))
        binding.bind_output("y", "simulator")
        one.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), -x)
    target = empty_on(0, 4)
    binding.bind_ortvalue_output("y", target)
    binding.bind_ortvalue_input("x", on(0))
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), -X)
    binding.bind_ortvalue_input("x", on(0, X[:2]))
    with pytest.raises(FeedError, match=r"expected float\[2\]; got float\[4\]"):
        one.run_with_iobinding(binding)
    binding.bind_ortvalue_input("x", on(0))
    one.run_with_iobinding(binding)


# ---------------------------------------------------------------- what doesn't go


def test_wrong_values_are_refused_when_they_are_bound(session):
    binding = session().io_binding()
    with pytest.raises(FeedError, match=r"expected tensor\(float\); got tensor\(double\)"):
        binding.bind_ortvalue_input("x", on(0, np.zeros(4)))
    with pytest.raises(FeedError, match="expected 4 in shape"):
        binding.bind_ortvalue_input("x", on(0, np.zeros(3, np.float32)))
    with pytest.raises(FeedError, match="expected rank 1"):
        binding.bind_ortvalue_output("y", empty_on(0, 4, 1))
    with pytest.raises(FeedError, match=r"got tensor\(int64\)"):
        binding.bind_ortvalue_output("y", empty_on(0, 4, dtype=np.int64))
    with pytest.raises(FeedError, match="no input 'q'"):
        binding.bind_ortvalue_input("q", on(0))
    with pytest.raises(FeedError, match="no output 'x'"):
        binding.bind_output("x", "simulator")
    with pytest.raises(OptionError, match="one of '0', '1'"):
        binding.bind_output("y", "simulator", 7)


@pytest.mark.parametrize("other", ["x", "z"])
def test_one_value_bound_twice(session, other):
    one = session()
    value = on(0)
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", value if other == "x" else on(0))
    binding.bind_ortvalue_output("y", value)
    if other == "z":
        binding.bind_ortvalue_output("z", value)
    with pytest.raises(FeedError, match="overlaps that of"):
        one.run_with_iobinding(binding)
    binding.bind_ortvalue_output("y", empty_on(0, 4))
    one.run_with_iobinding(binding)


# ---------------------------------------------------------------- lifetimes


def test_a_value_outlives_its_session(session):
    one = session()
    provider = provider_of(one)
    binding = one.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "simulator")
    one.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    binding.clear_binding_outputs()
    one.close()
    assert not provider.closed
    np.testing.assert_allclose(y.numpy(), Y, rtol=1e-6)
    other = session()
    (again,) = other.run_with_ort_values(["y"], {"x": y})
    np.testing.assert_allclose(again.numpy(), -np.exp(Y), rtol=1e-6)
    other.close()  # which kept nothing, as both sessions have the same memory
    del y
    assert provider.closed
    stats = provider.allocator.stats()
    assert (stats.in_use_bytes, stats.reserved_bytes) == (0, 0)


def test_a_session_without_values_closes_its_provider_at_once(session):
    one = session()
    one.run_with_ort_values(None, {"x": on(0)})
    one.close()
    assert provider_of(one).closed


def test_a_session_that_used_a_foreign_device_lets_go_of_it(session):
    source = session(device=1)
    provider = provider_of(source)
    binding = source.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "simulator", 1)
    source.run_with_iobinding(binding)
    one = session(device=0)
    one.run_with_ort_values(["y"], {"x": binding.get_outputs()[0]})
    source.close()
    binding.clear_binding_outputs()
    assert not provider.closed  # the plan of `one` copies with it
    np.testing.assert_allclose(one.run_with_ort_values(["y"], {"x": on(1)})[0].numpy(), Y, 1e-6)
    one.close()
    assert provider.closed


def test_equal_runs_reserve_nothing_more(session):
    """After the first run the device isn't asked for memory again."""
    one = session(kernel_latency_us=100)
    allocator = provider_of(one).allocator
    value = on(0)
    bound, free = one.io_binding(), one.io_binding()
    for binding in (bound, free):
        binding.bind_ortvalue_input("x", value)
    bound.bind_ortvalue_output("z", empty_on(0, 4))
    free.bind_output("y", "simulator")
    free.bind_output("z")
    for run in (
        lambda: one.run_with_iobinding(bound),
        lambda: one.run_with_iobinding(free),
        lambda: one.run(None, {"x": X}),
    ):
        run()
        reserved = allocator.stats().reserved_bytes
        for _ in range(20):
            run()
            assert allocator.stats().reserved_bytes == reserved


def test_the_memory_report_is_the_allocator_s(session):
    one = session()
    assert one.get_memory().devices["simulator:0/device"].peak_bytes == 0
    one.run(None, {"x": X})
    report = one.get_memory()
    assert report.scratch_bytes == 0
    assert report.devices == {"simulator:0/device": provider_of(one).allocator.stats()}
    # x, then a and y; a goes before z comes
    assert report.devices["simulator:0/device"].peak_bytes == 4 * 16 - 16


def test_many_wishes_keep_a_handful_of_plans(session):
    one = session()
    threads = threading.active_count()
    x = {place: on(place) for place in (0, 1)}
    for _ in range(2):
        for source in ("cpu", 0, 1):
            for y in ("cpu", 0, 1):
                for z in ("cpu", 0, 1):
                    binding = one.io_binding()
                    if source == "cpu":
                        binding.bind_cpu_input("x", X)
                    else:
                        binding.bind_ortvalue_input("x", x[source])
                    for name, place in (("y", y), ("z", z)):
                        where = ("cpu", 0) if place == "cpu" else ("simulator", place)
                        binding.bind_output(name, *where)
                    one.run_with_iobinding(binding)
                    found = binding.copy_outputs_to_cpu()
                    np.testing.assert_allclose(found, [Y, Z], rtol=1e-6)
    # of each plan a stream for the work, and one each for copies in and out
    assert threading.active_count() <= threads + 8 * 3
    del binding
    assert in_use(one) == 0
