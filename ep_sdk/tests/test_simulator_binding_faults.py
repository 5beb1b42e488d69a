"""Bound runs that fail, are cancelled, or go on in many threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from bound_devices import (
    CHAIN,
    LOOP,
    X,
    Y,
    Z,
    empty_on,
    in_use,
    on,
    provider_of,
    sessions_on_devices,
)

from ep_core.errors import (
    ContractError,
    EpError,
    RunCancelledError,
    RunError,
)
from ep_core.options import RunOptions
from ep_core.types import DataType
from ep_sdk.stream_program import StreamProgram


@pytest.fixture
def session():
    """`session(text, device=..., **options)`; see `sessions_on_devices`."""
    with sessions_on_devices() as make:
        yield make


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
