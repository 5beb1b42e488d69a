"""Values on simulated devices and runs bound to them: copies, lifetimes, faults, threads."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import onnx
import pytest

from ep_core import InferenceSession, OrtValue, SessionOptions
from ep_core.errors import (
    AllocationError,
    ContractError,
    DeviceLostError,
    EpError,
    FeedError,
    NotSupportedError,
    OptionError,
    RunCancelledError,
    RunError,
)
from ep_core.options import RunOptions
from ep_core.types import DataType
from ep_sdk.simulator.transfer import SimulatorTransfer
from ep_sdk.stream_program import StreamProgram

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
CHAIN = HEAD + "g (float[4] x) => (float[4] y, float[4] z) { a = Exp(x) y = Neg(a) z = Add(y, x) }"
FREE = HEAD + "g (float[N] x) => (float[N] y) { y = Neg(x) }"
LOOP = (
    HEAD
    + """
g (float[4] x, int64 count) => (float[4] total, float[4] twice) {
    start = Identity(x)
    total = Loop (count, , start) <body = body
        (int64 i, bool go, float[4] before) => (bool more, float[4] after) {
            more = Identity(go)
            after = Add(before, x)
        }>
    twice = Add(total, total)
}
"""
)
X = np.float32([1, 2, 3, 4])
Y = -np.exp(X)
Z = Y + X


@pytest.fixture
def session():
    """`session(text, device=..., **options)`: on one simulated device; leaves nothing behind."""
    opened = []
    threads = threading.active_count()

    def make(text=CHAIN, device=0, **options):
        settings = SessionOptions()
        settings.disable_cpu_fallback = True
        providers = [("simulator", {"device_id": str(device), **options})]
        model = onnx.parser.parse_model(text).SerializeToString()
        opened.append(InferenceSession(model, settings, providers))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    assert threading.active_count() == threads


def on(device, array=X) -> OrtValue:
    return OrtValue.ortvalue_from_numpy(array, "simulator", device)


def empty_on(device, *shape, dtype=np.float32) -> OrtValue:
    return OrtValue.ortvalue_from_shape_and_type(shape, dtype, "simulator", device)


def provider_of(one: InferenceSession):
    return one._ports.providers[0]


def in_use(one: InferenceSession) -> int:
    return provider_of(one).allocator.stats().in_use_bytes


def ends(binding) -> list[tuple[str, str, str]]:
    return [
        (copy.value, copy.source.split("/")[0], copy.target.split("/")[0])
        for copy in binding.get_copies()
    ]


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("device", [0, "0", 1, "1"])
def test_a_value_goes_to_a_device_and_back(device):
    value = on(device)
    assert (value.device_name(), value.shape(), value.data_type()) == (
        "simulator",
        [4],
        "tensor(float)",
    )
    assert str(value.memory) == f"simulator:{device}/device"
    assert repr(value) == f"<OrtValue tensor(float) [4] in simulator:{device}/device>"
    assert value.tensor_size_in_bytes() == 16
    np.testing.assert_array_equal(value.numpy(), X)
    np.testing.assert_array_equal(np.asarray(value), X)


def test_a_value_on_a_device_is_a_copy():
    array = X.copy()
    value = on(0, array)
    array[:] = 0
    value.numpy()[:] = 0
    np.testing.assert_array_equal(value.numpy(), X)


@pytest.mark.parametrize("array", [np.array(5.0), np.zeros((0, 3)), np.eye(3).T[::2]])
def test_any_shape_and_layout(array):
    np.testing.assert_array_equal(on(1, array).numpy(), array)


@pytest.mark.parametrize("source", ["host", 0, 1])
def test_update_inplace_from_anywhere(source):
    value = on(0, np.zeros(4, np.float32))
    value.update_inplace(X if source == "host" else on(source))
    np.testing.assert_array_equal(value.numpy(), X)


def test_update_inplace_of_a_host_value_from_a_device():
    array = np.zeros(4, np.float32)
    OrtValue.ortvalue_from_numpy(array).update_inplace(on(0))
    np.testing.assert_array_equal(array, X)


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.zeros(4), np.zeros((4, 1), "f4")])
def test_update_inplace_with_something_else(wrong):
    for data in (wrong, on(1, wrong), OrtValue.ortvalue_from_numpy(wrong)):
        with pytest.raises(FeedError, match=r"expected tensor\(float\) of shape \[4\]"):
            on(0).update_inplace(data)


def test_what_a_device_can_t_hold():
    with pytest.raises(NotSupportedError, match="holds no string"):
        on(0, np.array(["a"]))
    with pytest.raises(NotSupportedError, match="holds no int4"):
        empty_on(0, 3, dtype=onnx.TensorProto.INT4)
    with pytest.raises(AllocationError, match="no room"):
        empty_on(0, 2**40)


def test_there_are_two_devices_and_no_third():
    with pytest.raises(OptionError, match="expected one of '0', '1'; got '2'"):
        on(2)


def test_memory_comes_back_when_values_go():
    value = on(0)
    provider = value._content.provider
    before = provider.allocator.stats().in_use_bytes
    second = on(0)
    assert provider.allocator.stats().in_use_bytes == before + 16
    del second
    assert provider.allocator.stats().in_use_bytes == before


def test_values_in_cycles_go_at_the_next_safe_moment():
    """The collector may run inside the allocator; there it must not release."""
    value = on(0)
    provider = value._content.provider
    before = provider.allocator.stats().in_use_bytes
    gc.disable()
    try:
        for _ in range(5):
            cycle = [on(0)]
            cycle.append(cycle)
        del cycle
        with provider.allocator._arena._lock:
            gc.collect()
    finally:
        gc.enable()
    value = None  # the last reference goes here, which is a safe moment
    assert provider.allocator.stats().in_use_bytes == before - 16


def test_a_lost_device_is_opened_anew(monkeypatch):
    value = on(0)
    lost = value._content.provider
    monkeypatch.setattr(lost.simulated, "_lost", True)
    with pytest.raises(DeviceLostError):
        on(0)
    with pytest.raises(DeviceLostError):
        value.numpy()
    again = on(0)
    assert again._content.provider is not lost
    np.testing.assert_array_equal(again.numpy(), X)
    assert not lost.closed
    del value
    assert lost.closed


# ---------------------------------------------------------------- bound runs


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


# ---------------------------------------------------------------- faults


def test_a_binding_is_good_after_a_failed_run(session):
    one = session(fail_kernel_at=4)
    binding = one.io_binding()
    target = empty_on(0, 4)
    binding.bind_ortvalue_input("x", on(0))
    binding.bind_ortvalue_output("y", target)
    binding.bind_output("z", "simulator")
    one.run_with_iobinding(binding)
    with pytest.raises(RunError, match="kernel 4 on simulator:0 failed as told"):
        one.run_with_iobinding(binding)
    with pytest.raises(RunError, match="no outputs yet"):
        binding.get_outputs()
    one.run_with_iobinding(binding)
    np.testing.assert_allclose(target.numpy(), Y, rtol=1e-6)
    np.testing.assert_allclose(binding.get_outputs()[1].numpy(), Z, rtol=1e-6)


def dishonest(monkeypatch, spoil):
    """Have partitions do their work, and then something else."""
    honest = StreamProgram.run

    def run(self, inputs, outputs, stream=None):
        honest(self, inputs, outputs, stream)
        spoil(self, outputs, stream)

    monkeypatch.setattr(StreamProgram, "run", run)


def fail(program, outputs, stream):
    raise RuntimeError("after all")


def one_more(program, outputs, stream):
    outputs.append(None)


def not_the_last(program, outputs, stream):
    program._allocator.release(outputs[-1], stream)
    outputs[-1] = None


def other_memory(program, outputs, stream):
    outputs[0] = program._allocator.allocate((4,), DataType.FLOAT, stream)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (fail, "RuntimeError: after all"),
        (one_more, "changed its list of outputs"),
        (not_the_last, "gave no value for its output 1"),
        (other_memory, "given memory for output 'y' and returned other memory"),
    ],
)
def test_what_a_partition_made_before_it_failed_is_given_back(session, monkeypatch, spoil, message):
    one = session()
    target = empty_on(0, 4)
    binding = one.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z", "simulator")
    if spoil is other_memory:
        binding.bind_ortvalue_output("y", target)
    else:
        binding.bind_output("y", "simulator")
    before = in_use(one)
    with monkeypatch.context() as patch:
        dishonest(patch, spoil)
        with pytest.raises(EpError, match=message):
            one.run_with_iobinding(binding)
        if spoil is not other_memory:
            with pytest.raises(EpError, match=message):
                one.run(None, {"x": X})
    assert in_use(one) == before
    one.run_with_iobinding(binding)


@pytest.mark.parametrize("what", ["junk", np.zeros(4, np.float32)])
def test_an_output_that_is_no_buffer_of_the_device(session, monkeypatch, what):
    def swap(program, outputs, stream):
        program._allocator.release(outputs[1], stream)
        outputs[1] = what

    one = session()
    binding = one.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "simulator")
    binding.bind_output("z", "simulator")
    dishonest(monkeypatch, swap)
    with pytest.raises(ContractError, match=r"for output 'z'; expected a buffer in simulator:0"):
        one.run_with_iobinding(binding)
    assert in_use(one) == 0


@pytest.mark.parametrize("text", [CHAIN, LOOP])
@pytest.mark.parametrize(
    "fault", ["fail_allocation_at", "fail_copy_at", "fail_kernel_at", "lose_device_at"]
)
def test_no_fault_loses_a_byte(session, text, fault):
    """The fixture sees to it that no thread is left behind."""
    value, far = on(0), on(1)
    failures = 0
    for number in range(1, 14):
        one = session(text, **{fault: number})
        binding = one.io_binding()
        binding.bind_cpu_input("x", X)
        if text == LOOP:
            binding.bind_ortvalue_input("x", far)
            binding.bind_cpu_input("count", np.array(2))
        names = [info.name for info in one.get_outputs()]
        binding.bind_output(names[0], "simulator", 0)
        binding.bind_ortvalue_output(names[1], value)
        before = in_use(one)
        try:
            one.run_with_iobinding(binding)
        except EpError:
            failures += 1
        binding.clear_binding_outputs()
        assert in_use(one) == before
        one.close()
        assert provider_of(one).closed
    assert failures >= 1


def test_a_bound_run_is_cancelled(session):
    one = session(LOOP, kernel_latency_us=1000)
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", on(0))
    binding.bind_cpu_input("count", np.array(10_000))
    binding.bind_output("total", "simulator")
    options = RunOptions()
    timer = threading.Timer(0.05, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(RunCancelledError):
        one.run_with_iobinding(binding, options)
    timer.join()
    assert in_use(one) == 0
    binding.bind_cpu_input("count", np.array(1))
    one.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X * 2)


def test_a_binding_serves_one_run_at_a_time(session):
    one = session(kernel_latency_us=50_000)
    binding = one.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    thread = threading.Thread(target=lambda: one.run_with_iobinding(binding))
    thread.start()
    while not binding._users:
        time.sleep(0.001)
    with pytest.raises(RunError, match="in use by another run"):
        one.run_with_iobinding(binding)
    thread.join()
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], Y, rtol=1e-6)


@pytest.mark.parametrize("device", [0, 1])
def test_eight_threads_each_with_its_binding(session, device):
    one = session(device=device, kernel_latency_us=50, copy_latency_us=50)
    wrong = []

    def work(seed):
        value = on(0)
        target = empty_on(0, 4)
        binding = one.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_output("y", target)
        binding.bind_output("z", "simulator", 1)
        for turn in range(15):
            x = np.full(4, (seed + turn) / 8, np.float32)
            value.update_inplace(x)
            one.run_with_iobinding(binding)
            z = binding.get_outputs()[1]
            if not np.allclose(target.numpy(), -np.exp(x), rtol=1e-5):
                wrong.append((seed, turn))
            if not np.allclose(z.numpy(), x - np.exp(x), rtol=1e-5):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert in_use(one) == 0
