"""Order and time: events, streams, threads, and no growth however often something is done."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench, Probe, agree, claimed_chain, run_once
from ep_compliance.driving.crowd import PATIENCE_SECONDS, on_threads
from ep_compliance.driving.drive import compiled
from ep_compliance.driving.findings import Broken, NotClaimed
from ep_compliance.driving.growth import check_growth
from ep_compliance.driving.lanes import DeviceLane, HostLane, open_lane
from ep_core.contracts import CompiledPartition, Event, ExecutionProvider, Stream, Value

_SLOW: dict[str, Any] = {"kernel_latency_us": 1000}
"""An option of simulated devices, used where it exists."""


@contextlib.contextmanager
def _slow_provider(bench: Bench) -> Iterator[tuple[ExecutionProvider, Probe]]:
    """An asynchronous provider, with work that takes it some time."""
    changes = _SLOW if bench.declares(*_SLOW) else {}
    with bench.open(**changes) as provider:
        if not provider.features.asynchronous:
            raise NotClaimed("works synchronously")
        yield provider, claimed_chain(provider, length=24, side=256)


def _expected(provider: ExecutionProvider, part: CompiledPartition, probe: Probe) -> list[Value]:
    return run_once(provider, part, probe.inputs, len(probe.subgraph.outputs))


# ---------------------------------------------------------------- events and streams

_Wait = Callable[[Event, Stream], None]


def _by_stream(event: Event, reader: Stream) -> None:
    reader.wait(event)


def _by_host(event: Event, reader: Stream) -> None:
    event.synchronize()
    if not event.done():
        raise Broken("an event isn't done() after synchronize()")


def _by_polling(event: Event, reader: Stream) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not event.done():
        if time.monotonic() > deadline:
            raise Broken("an event is never done()")
        time.sleep(0.0005)


def _check_event(bench: Bench, wait: _Wait, what: str) -> None:
    """Slow work on one stream, read on another one after `wait`."""
    with _slow_provider(bench) as (provider, probe), compiled(provider, probe.subgraph) as part:
        expected = _expected(provider, part, probe)
        with contextlib.closing(open_lane(provider)) as writer:
            inputs = writer.feed(probe.inputs)
            outputs: list[Value] = [None] * len(expected)
            writer.submit(part, inputs, outputs)
            assert writer.stream is not None
            event = writer.stream.record()
            with contextlib.closing(open_lane(provider)) as reader:
                assert reader.stream is not None
                wait(event, reader.stream)
                got = [_copied(value) for value in reader.fetch(outputs)]
            writer.wait()
            writer.release([*inputs, *outputs])
            writer.wait()
        if not agree(provider, expected, got):
            raise Broken(f"results read after {what} aren't there yet: the event comes too early")


def _copied(value: Value) -> Value:
    return np.array(value)


@check("order/event-on-stream")
def event_on_stream(bench: Bench) -> None:
    """A stream that waits for another one's event sees its results."""
    _check_event(bench, _by_stream, "another stream has waited for the event")


@check("order/event-on-host")
def event_on_host(bench: Bench) -> None:
    """`Event.synchronize` returns when the work before it is done."""
    _check_event(bench, _by_host, "Event.synchronize()")


@check("order/event-polled")
def event_polled(bench: Bench) -> None:
    """`Event.done` is true only when the work before it is done."""
    _check_event(bench, _by_polling, "Event.done()")


@check("order/foreign-event")
def foreign_event(bench: Bench) -> None:
    """A stream waits for an event that another provider made."""
    with _slow_provider(bench) as (provider, _), contextlib.closing(open_lane(provider)) as lane:
        event = _ForeignEvent()
        timer = threading.Timer(0.05, event.happened.set)
        timer.start()
        assert lane.stream is not None
        lane.stream.wait(event)
        mine = lane.stream.record()
        if mine.done() and not event.happened.is_set():
            raise Broken("work after a foreign event happens before it")
        lane.wait()
        waited = event.happened.is_set()
        timer.join()
        if not waited:
            raise Broken("a stream doesn't wait for a foreign event")


class _ForeignEvent:
    def __init__(self) -> None:
        self.happened = threading.Event()

    def done(self) -> bool:
        return self.happened.is_set()

    def synchronize(self) -> None:
        self.happened.wait()


@check("order/early-release")
def early_release(bench: Bench) -> None:
    """Memory released on a stream right after its last use was submitted is still good for it."""
    with _slow_provider(bench) as (provider, probe), compiled(provider, probe.subgraph) as part:
        expected = _expected(provider, part, probe)
        with contextlib.closing(open_lane(provider)) as lane:
            if not isinstance(lane, DeviceLane):
                raise NotClaimed("works in host memory")
            for _ in range(3):
                inputs = lane.feed(probe.inputs)
                outputs: list[Value] = [None] * len(expected)
                lane.submit(part, inputs, outputs)
                lane.release(inputs)
                got = lane.fetch(outputs)
                lane.release(outputs)
                if not agree(provider, expected, got):
                    raise Broken("memory was reused before the work that reads it had run")
            lane.wait()


# ---------------------------------------------------------------- threads


@check("order/threads")
def threads(bench: Bench) -> None:
    """One partition, run from many threads with inputs of their own, mixes nothing up."""
    with bench.open() as provider:
        probe = claimed_chain(provider, length=6, side=48)
        with compiled(provider, probe.subgraph) as part:
            own = [probe.with_other_inputs(seed) for seed in range(6)]
            expected = [_expected(provider, part, probe) for probe in own]
            turn = threading.Lock()
            concurrent = provider.features.concurrent_runs

            def work(number: int) -> None:
                for _ in range(15):
                    with contextlib.nullcontext() if concurrent else turn:
                        got = _expected(provider, part, own[number])
                    if not agree(provider, expected[number], got):
                        raise Broken("runs on several threads mix their values up")

            on_threads(work, len(own))


@check("order/create-and-destroy")
def create_and_destroy(bench: Bench) -> None:
    """Threads that compile, run and close partitions and streams don't disturb each other."""
    with bench.open() as provider:
        probe = claimed_chain(provider, length=3, side=16)
        with compiled(provider, probe.subgraph) as part:
            expected = _expected(provider, part, probe)

        def work(number: int) -> None:
            for _ in range(8):
                with compiled(provider, probe.subgraph) as part:
                    if not agree(provider, expected, _expected(provider, part, probe)):
                        raise Broken("partitions made and closed side by side give other values")

        on_threads(work, 5)


@check("order/open-and-close")
def open_and_close(bench: Bench) -> None:
    """The device can be opened several times at once, from several threads."""

    def work(number: int) -> None:
        for _ in range(3):
            with bench.open() as provider:
                probe = claimed_chain(provider)
                with compiled(provider, probe.subgraph) as part:
                    _expected(provider, part, probe)

    on_threads(work, 3)


# ---------------------------------------------------------------- the same thing many times


@check("order/fresh-inputs")
def fresh_inputs(bench: Bench) -> None:
    """The same input object with other contents gives other results."""
    with bench.open() as provider:
        probe = claimed_chain(provider, length=2)
        other = probe.with_other_inputs(99)
        with (
            compiled(provider, probe.subgraph) as part,
            contextlib.closing(open_lane(provider)) as lane,
        ):
            wanted = _expected(provider, part, other)
            count = len(wanted)
            inputs = lane.feed([np.array(value) for value in probe.inputs])
            outputs: list[Value] = [None] * count
            lane.run(part, inputs, outputs)
            lane.release(outputs)
            for target, value in zip(inputs, other.inputs, strict=True):
                _replace(lane, target, value)
            outputs = [None] * count
            lane.run(part, inputs, outputs)
            got = [_copied(value) for value in lane.fetch(outputs)]
            lane.release([*inputs, *outputs])
            lane.wait()
        if not agree(provider, wanted, got):
            raise Broken("an input whose contents have changed gives the earlier results")


def _replace(lane: HostLane | DeviceLane, target: Any, value: Value) -> None:
    if isinstance(lane, DeviceLane):
        lane.overwrite(target, value)
    else:
        target[...] = value


@check("order/thousand-cycles")
def thousand_cycles(bench: Bench) -> None:
    """Runs, compilations and openings, over and over, leave nothing behind."""
    side = 160
    with bench.open() as provider:
        probe = claimed_chain(provider, length=3, side=side)
        with compiled(provider, probe.subgraph) as part:
            check_growth(provider, lambda: _expected(provider, part, probe), 1000, "runs")

        def compile_and_run() -> None:
            with compiled(provider, probe.subgraph) as part:
                _expected(provider, part, probe)

        check_growth(provider, compile_and_run, 60, "compilations")

    def open_and_run() -> None:
        with bench.open() as provider, compiled(provider, probe.subgraph) as part:
            _expected(provider, part, probe)

    check_growth(None, open_and_run, 20, "openings")
