"""Who keeps a provider open, and when a value's memory goes back."""

from __future__ import annotations

import contextlib
import gc
import linecache
import logging
import sys
import threading
from types import SimpleNamespace

import pytest

from ep_core.values import holds
from ep_core.values.holds import DeviceTensor, bury, hold, let_go, retire


class Provider:
    """As much of a provider as is looked at; its allocator notes what comes back."""

    def __init__(self):
        self.released = []
        self.closed = 0
        self.lock = threading.Lock()
        self.allocator = self
        self.info = SimpleNamespace(name="fake")
        self.broken = False

    def release(self, buffer):
        with self.lock:
            if self.broken:
                raise ValueError("broken")
            assert not self.closed
            self.released.append(buffer)

    def close(self):
        self.closed += 1


@pytest.fixture
def provider():
    made = Provider()
    yield made
    bury()


def buffer(number: int) -> SimpleNamespace:
    return SimpleNamespace(number=number, memory="fake:0/device")


def test_a_provider_that_nobody_holds_closes_at_once(provider):
    retire(provider)
    assert provider.closed == 1


def test_it_closes_with_its_last_holder(provider):
    hold(provider, "first")
    hold(provider, "second")
    retire(provider)
    let_go(provider, "first")
    let_go(provider, "first")
    assert provider.closed == 0
    let_go(provider, "second")
    assert provider.closed == 1


def test_a_provider_that_isn_t_retired_stays_open(provider):
    hold(provider, "first")
    let_go(provider, "first")
    assert provider.closed == 0


@pytest.mark.parametrize("moment", range(24))
def test_an_interrupted_owner_holds_nobody(provider, moment):
    """However far its making got: interrupted before the line of that number."""
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        if frame.f_code.co_filename != holds.__file__:
            return None
        line = linecache.getline(holds.__file__, frame.f_lineno)
        if event == "line" and "with " not in line:  # no signal comes before its lock is let go
            lines += 1
            if lines > moment:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    gc.disable()  # what is raised in its callbacks is kept, with all that its frames refer to
    with contextlib.suppress(KeyboardInterrupt):
        sys.settrace(trace)
        try:
            owner = DeviceTensor(buffer(1), provider)
        finally:
            sys.settrace(before)
        del owner
    gc.enable()
    bury()
    retire(provider)
    assert provider.closed == 1


def test_a_tensor_goes_back_with_its_last_reference(provider):
    first, second = DeviceTensor(buffer(1), provider), DeviceTensor(buffer(2), provider)
    retire(provider)
    again = first
    del first
    assert not provider.released
    del again
    assert [item.number for item in provider.released] == [1]
    assert provider.closed == 0
    del second
    assert [item.number for item in provider.released] == [1, 2]
    assert provider.closed == 1


def test_the_collector_releases_nothing_inside_the_allocator(provider):
    """Where it did, this test would hang."""
    tensor = [DeviceTensor(buffer(1), provider)]
    tensor.append(tensor)
    del tensor
    with provider.lock:
        gc.collect()
        assert not provider.released
    bury()
    assert [item.number for item in provider.released] == [1]


def test_a_collection_elsewhere_hinders_nobody(provider):
    inside, go_on = threading.Event(), threading.Event()

    class Slow:
        def __del__(self):
            inside.set()
            assert go_on.wait(10)

    def collect():
        cycle = [Slow()]
        cycle.append(cycle)
        del cycle
        gc.collect()

    thread = threading.Thread(target=collect)
    gc.disable()
    try:
        thread.start()
        assert inside.wait(10)
        DeviceTensor(buffer(1), provider)
        assert [item.number for item in provider.released] == [1]
    finally:
        go_on.set()
        thread.join()
        gc.enable()


def test_an_allocator_that_fails_is_logged_and_the_provider_closes(provider, caplog):
    tensor = DeviceTensor(buffer(1), provider)
    retire(provider)
    provider.broken = True
    with caplog.at_level(logging.WARNING, "ep_core"):
        del tensor
    assert "releasing a value in fake:0/device: broken" in caplog.text
    assert provider.closed == 1


def test_many_threads(provider):
    def work():
        for number in range(300):
            DeviceTensor(buffer(number), provider)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    retire(provider)
    assert len(provider.released) == 1800
    assert provider.closed == 1
