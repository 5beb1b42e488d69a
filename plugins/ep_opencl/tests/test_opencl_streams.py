"""Queues, events, and faults that kernels tell of."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_harness import needs_device, one_node, session

from ep_core.errors import ContractError, RunError
from ep_core.types import DataType

pytestmark = needs_device


def test_an_event_happens_after_the_work_before_it(provider):
    stream = provider.create_stream()
    buffer = provider.allocator.allocate((1 << 16,), DataType.FLOAT, stream)
    there = np.ones(1 << 16, np.float32)
    back = np.zeros_like(there)
    provider.data_transfer.copy(there, buffer, stream)
    provider.data_transfer.copy(buffer, back, stream)
    event = stream.record()
    event.synchronize()
    assert event.done()
    np.testing.assert_array_equal(back, there)
    provider.allocator.release(buffer, stream)


def test_a_stream_waits_for_an_event_of_another(provider):
    first, second = provider.create_stream(), provider.create_stream()
    buffer = provider.allocator.allocate((1 << 20,), DataType.FLOAT, first)
    there = np.full(1 << 20, 3, np.float32)
    back = np.zeros_like(there)
    provider.data_transfer.copy(there, buffer, first)
    second.wait(first.record())
    provider.data_transfer.copy(buffer, back, second)
    second.synchronize()
    np.testing.assert_array_equal(back, there)
    provider.allocator.release(buffer, second)


def test_foreign_events_are_waited_for(provider):
    class Foreign:
        waited = False

        def done(self):
            return self.waited

        def synchronize(self):
            self.waited = True

    event = Foreign()
    provider.create_stream().wait(event)
    assert event.waited


def test_closing_twice_is_harmless_and_use_after_it_is_told(provider):
    stream = provider.create_stream()
    stream.close()
    stream.close()
    stream.synchronize()
    with pytest.raises(ContractError, match="closed"):
        stream.record()


def test_a_bad_index_is_told_once_and_then_all_is_well():
    data = np.arange(5, dtype=np.float32)
    model, feeds = one_node("Gather", [data, np.zeros(100, np.int64)])
    with session(model) as running:
        bad = np.zeros(100, np.int64)
        bad[7] = 5
        with pytest.raises(RunError, match="index is out of range"):
            running.run(None, {**feeds, "x1": bad})
        (y,) = running.run(None, feeds)
    np.testing.assert_array_equal(y, np.zeros(100, np.float32))


def test_a_bad_index_that_the_host_knows_is_told_with_its_value():
    data = np.arange(5, dtype=np.float32)
    model, feeds = one_node("Gather", [data, np.array([9])])
    with session(model) as running, pytest.raises(RunError, match=r"-5\.\.4"):
        running.run(None, feeds)
