"""Streams and events: real asynchrony, order, waiting, and what an error does to later work."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from ep_core.errors import ContractError, ProviderError, RunError
from ep_sdk.simulator.memory import device_array

SLOW_US = 100_000
ADD = "(float[4] x, float[4] y) => (float[4] z) { z = Add(x, y) }"
ONES = np.ones(4, np.float32)


def failing():
    raise ValueError("boom")


def test_a_slow_kernel_returns_at_once(simulator, graph_of, whole, to_device, to_host):
    device = simulator(kernel_latency_us=SLOW_US)
    part = device.compile(whole(graph_of(ADD)))
    stream = device.create_stream()
    x = to_device(device, stream, ONES)
    stream.synchronize()
    outputs = [None]
    start = time.perf_counter()
    part.run([x, x], outputs, stream)
    submitted = time.perf_counter() - start
    event = stream.record()
    assert not event.done()
    event.synchronize()
    finished = time.perf_counter() - start
    assert submitted < SLOW_US / 1e6
    assert finished >= SLOW_US / 1e6
    np.testing.assert_array_equal(to_host(device, stream, outputs[0]), [2] * 4)
    for buffer in (x, outputs[0]):
        device.allocator.release(buffer, stream)


def test_two_streams_work_at_the_same_time(simulator):
    device = simulator()
    barrier = threading.Barrier(2, timeout=5)
    streams = [device.create_stream() for _ in range(2)]
    for stream in streams:
        stream.submit(barrier.wait)
    for stream in streams:
        stream.synchronize()


def test_work_of_one_stream_happens_in_order(simulator):
    stream = simulator().create_stream()
    seen = []
    for number in range(500):
        stream.submit(lambda number=number: seen.append(number))
    stream.synchronize()
    assert seen == list(range(500))


def test_an_event_covers_what_was_before_it_and_no_more(simulator):
    stream = simulator().create_stream()
    gate = threading.Event()
    event = stream.record()
    event.synchronize()
    assert event.done()
    stream.submit(gate.wait)
    assert event.done()
    later = stream.record()
    assert not later.done()
    gate.set()
    later.synchronize()
    assert later.done()


def test_waiting_for_another_stream_doesn_t_block_the_host(simulator):
    zero, one = simulator("0"), simulator("1")
    first, second = zero.create_stream(), one.create_stream()
    gate = threading.Event()
    seen = []
    first.submit(gate.wait)
    first.submit(lambda: seen.append("first"))
    second.wait(first.record())
    second.submit(lambda: seen.append("second"))
    assert seen == []
    gate.set()
    second.synchronize()
    assert seen == ["first", "second"]


def test_waiting_for_an_event_of_another_provider(simulator):
    class ForeignEvent:
        def __init__(self):
            self.flag = threading.Event()

        def done(self):
            return self.flag.is_set()

        def synchronize(self):
            self.flag.wait(5)

    stream = simulator().create_stream()
    event = ForeignEvent()
    seen = []
    stream.wait(event)
    stream.submit(lambda: seen.append(event.done()))
    event.flag.set()
    stream.synchronize()
    assert seen == [True]


def test_an_error_surfaces_once_and_later_work_is_skipped(simulator):
    stream = simulator().create_stream()
    seen = []
    stream.submit(failing)
    stream.submit(lambda: seen.append("skipped"))
    with pytest.raises(RunError, match="ValueError: boom") as caught:
        stream.synchronize()
    assert isinstance(caught.value.__cause__, ValueError)
    stream.synchronize()
    stream.submit(lambda: seen.append("works again"))
    stream.synchronize()
    assert seen == ["works again"]


def test_an_event_brings_the_error_and_the_stream_is_silent_then(simulator):
    stream = simulator().create_stream()
    before = stream.record()
    stream.submit(failing)
    after = stream.record()
    before.synchronize()
    with pytest.raises(RunError, match="boom"):
        after.synchronize()
    assert after.done()
    stream.synchronize()
    stream.record().synchronize()


def test_an_event_keeps_its_error_though_the_stream_has_told_it(simulator):
    """Another thread may be waiting for exactly this work, which was never done."""
    stream = simulator().create_stream()
    stream.submit(failing)
    event = stream.record()
    with pytest.raises(RunError):
        stream.synchronize()
    with pytest.raises(RunError, match="boom"):
        event.synchronize()


def test_work_submitted_before_the_error_was_heard_of_is_skipped(simulator):
    stream = simulator().create_stream()
    gate = threading.Event()
    seen = []
    stream.submit(failing)
    heard = stream.record()
    stream.submit(gate.wait)
    stream.submit(lambda: seen.append("depends on it"))
    with pytest.raises(RunError):
        heard.synchronize()
    stream.submit(lambda: seen.append("later"))
    stream.synchronize()
    assert seen == ["later"]


def test_a_second_error_surfaces_too(simulator):
    stream = simulator().create_stream()
    for _ in range(3):
        stream.submit(failing)
        with pytest.raises(RunError):
            stream.synchronize()
        stream.synchronize()


def test_a_failed_stream_fails_who_waits_for_it(simulator):
    device = simulator()
    first, second = device.create_stream(), device.create_stream()
    seen = []
    first.submit(failing)
    second.wait(first.record())
    second.submit(lambda: seen.append("depends on it"))
    with pytest.raises(RunError, match=r"skipped, because work that it waits for failed.*boom"):
        second.synchronize()
    with pytest.raises(RunError, match="boom"):
        first.synchronize()
    assert seen == []


def test_an_error_that_is_kept_holds_on_to_nothing(simulator):
    """Neither to what the work used, nor to what the caller had when it heard of the error."""
    stream = simulator().create_stream()
    gone = []

    def submit():
        array = np.ones(4, np.float32)
        gone.append(weakref.ref(array))

        def work():
            raise ValueError(f"boom at {array.shape}")

        stream.submit(work)
        return stream.record()

    def hear(wait):
        array = np.ones(4, np.float32)
        gone.append(weakref.ref(array))
        with pytest.raises(RunError, match=r"ValueError: boom at \(4,\)") as caught:
            wait()
        assert isinstance(caught.value.__cause__, ValueError)
        assert "in work" in caught.value.__notes__[0]
        del caught

    event = submit()
    hear(stream.synchronize)
    hear(event.synchronize)
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3


def test_memory_is_freed_after_an_error_too(simulator):
    from ep_core.types import DataType

    device = simulator()
    stream = device.create_stream()
    buffer = device.allocator.allocate((4,), DataType.FLOAT, stream)
    stream.submit(failing)
    device.allocator.release(buffer, stream)
    with pytest.raises(RunError):
        stream.synchronize()
    assert device.allocator.stats().in_use_bytes == 0


@pytest.mark.parametrize("heard", [False, True])
def test_a_failed_stream_waits_before_it_frees_memory(simulator, heard):
    """What another stream still reads must not be freed early because this one failed before."""
    from ep_core.types import DataType

    device = simulator()
    failed, reader = device.create_stream(), device.create_stream()
    buffer = device.allocator.allocate((4,), DataType.FLOAT, reader)
    go_on, seen = threading.Event(), []

    def read():
        assert go_on.wait(10)
        seen.append(device_array(buffer).copy())

    failed.submit(failing)
    if heard:
        with pytest.raises(RunError, match="boom"):
            failed.synchronize()
    reader.submit(read)
    failed.wait(reader.record())
    device.allocator.release(buffer, failed)
    time.sleep(0.02)  # enough for the memory to be freed early, were it so
    go_on.set()
    reader.synchronize()
    assert len(seen) == 1
    if not heard:
        with pytest.raises(RunError, match="boom"):
            failed.synchronize()
    failed.synchronize()


def test_a_wait_that_fails_after_an_error_isn_t_told_again(simulator):
    device = simulator()
    first, second = device.create_stream(), device.create_stream()
    second.submit(failing)
    first.submit(failing)
    second.wait(first.record())
    with pytest.raises(RunError, match="failed: ValueError: boom"):
        second.synchronize()
    second.synchronize()


def test_close_finishes_the_work_and_ends_the_thread(simulator):
    before = threading.active_count()
    stream = simulator().create_stream()
    assert threading.active_count() == before + 1
    seen = []
    stream.submit(lambda: time.sleep(0.02))
    stream.submit(lambda: seen.append("done"))
    stream.close()
    stream.close()
    assert seen == ["done"]
    assert threading.active_count() == before
    stream.synchronize()
    with pytest.raises(ContractError, match="used after it was closed"):
        stream.submit(failing)
    with pytest.raises(ContractError, match="used after it was closed"):
        stream.record()


def test_closing_the_provider_closes_its_streams(simulator):
    before = threading.active_count()
    device = simulator()
    streams = [device.create_stream() for _ in range(3)]
    streams[1].submit(failing)
    device.close()
    device.close()
    assert threading.active_count() == before
    with pytest.raises(ProviderError, match="'simulator' is closed"):
        device.create_stream()


def test_a_buffer_released_on_a_closed_stream_is_freed(simulator):
    from ep_core.types import DataType

    device = simulator()
    stream = device.create_stream()
    buffer = device.allocator.allocate((4,), DataType.FLOAT, stream)
    stream.close()
    device.allocator.release(buffer, stream)
    assert device.allocator.stats().in_use_bytes == 0
