"""Streams, events, and faults that kernels meet."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from cuda_harness import download, floats, model_of, run_one, session, upload

from ep_core.errors import ContractError, RunError
from ep_core.types import DataType


def test_a_stream_waits_for_another_ones_event(provider):
    first, second = provider.create_stream(), provider.create_stream()
    array = floats(100_000)
    buffer = provider.allocator.allocate(array.shape, DataType.FLOAT)
    found = np.empty_like(array)
    provider.data_transfer.copy(array, buffer, first)
    second.wait(first.record())
    provider.data_transfer.copy(buffer, found, second)
    second.synchronize()
    assert np.array_equal(found, array)
    first.close()
    second.close()


def test_an_event_is_done_after_the_work(provider):
    stream = provider.create_stream()
    event = stream.record()
    event.synchronize()
    assert event.done()
    stream.close()
    assert event.done()


def test_a_closed_stream_is_refused(provider):
    stream = provider.create_stream()
    stream.close()
    stream.close()
    stream.synchronize()
    with pytest.raises(ContractError, match="closed"):
        stream.record()


def test_actions_are_done_in_order_once_the_work_is_over(provider):
    stream = provider.create_stream()
    done = []
    for number in range(3):
        assert stream.when_passed(lambda number=number: done.append(number))
    stream.synchronize()
    assert done == [0, 1, 2]
    stream.close()
    assert not stream.when_passed(lambda: done.append(3))


def test_marks_have_the_time_of_the_host(provider):
    stream = provider.create_stream()
    before = stream.mark()
    upload(provider, floats(1000))
    after = stream.mark()
    stream.synchronize()
    assert stream.host_time(after) >= stream.host_time(before)
    stream.close()


def test_events_may_be_collected_on_any_thread(provider):
    stream = provider.create_stream()
    held = [stream.record() for _ in range(10)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    gc.collect()
    stream.record().synchronize()
    stream.close()


def test_an_index_out_of_range_is_told_and_forgotten(provider):
    data = floats(4, 3)
    device = provider.device.id
    for _ in range(2):
        with pytest.raises(RunError, match="out of range"):
            run_one(device, "Gather", [data, np.array([0, 9], np.int64)])
    found = run_one(device, "Gather", [data, np.array([0, 3], np.int64)])
    assert np.array_equal(found, data[[0, 3]])


def test_a_session_goes_on_after_a_fault(provider):
    data = floats(4, 3)
    model, feeds = model_of("Gather", [data, np.array([1, 2], np.int64)])
    with session(model, provider.device.id) as running:
        with pytest.raises(RunError, match="out of range"):
            running.run(None, {**feeds, "x1": np.array([1, 8], np.int64)})
        assert np.array_equal(running.run(None, feeds)[0], data[[1, 2]])


def test_the_second_dimension_of_a_grid_may_be_long(provider):
    """Of 70000 rows: more blocks than a grid has there."""
    device, stream = provider.opened, provider.create_stream()
    body = (
        "__kernel void number(__global int *y)\n{\n    y[get_global_id(1)] = get_global_id(1);\n}\n"
    )
    kernel = device.kernel("generating.cl", "number", {"T": "f32", "NUMBER": "float"}, body=body)
    buffer = upload(provider, np.zeros(70_000, np.int32))
    kernel.launch(stream, (1, 70_000), (1, 1), [buffer.handle])
    stream.synchronize()
    stream.close()
    assert np.array_equal(download(provider, buffer), np.arange(70_000))
