"""Small scenes for `schedules`: a few threads, and what has to hold in whatever order."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from onnx import parser
from stress.schedules import Schedule
from stress.subjects import quiet_options

import ep_core.binding.background
import ep_core.binding.io_binding
import ep_core.binding.plans
import ep_core.binding.runs
import ep_core.running.executor
import ep_core.session
import ep_core.values.holds
import ep_sdk.arena
import ep_sdk.base
import ep_sdk.simulator.device
import ep_sdk.simulator.memory
import ep_sdk.simulator.stream
import ep_sdk.stream_program
from ep_core import InferenceSession, OrtValue
from ep_core.errors import AllocationError, EpError, RunError, SessionClosedError
from ep_core.types import DataType, DeviceInfo
from ep_core.values.holds import DeviceTensor, bury, hold, let_go, retire
from ep_sdk.arena import Arena
from ep_sdk.simulator import INFO
from ep_sdk.simulator.provider import SimulatorProvider

__all__ = ["LOCKS", "MODULES", "SCENES", "Scene"]

Scene = Callable[[Schedule], Callable[[], None]]

MODULES: tuple[ModuleType, ...] = (
    ep_core.binding.background,
    ep_core.values.holds,
    ep_core.binding.io_binding,
    ep_core.binding.plans,
    ep_core.binding.runs,
    ep_core.running.executor,
    ep_core.session,
    ep_sdk.arena,
    ep_sdk.base,
    ep_sdk.simulator.device,
    ep_sdk.simulator.memory,
    ep_sdk.simulator.stream,
    ep_sdk.stream_program,
)
"""What is concurrent, and small enough to stop at every line of."""

LOCKS = ((ep_core.values.holds, "_lock"),)

_FEW = {"capacity": 1024, "alignment": 64}


def _together(schedule: Schedule, *works: Callable[[], None]) -> None:
    threads = [schedule.thread(target=work, name=f"thread {n}") for n, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _device(**changes: Any) -> SimulatorProvider:
    options = {name: spec.default for name, spec in INFO.options.items()}
    device = DeviceInfo(INFO.name, "0", "simulated")
    return SimulatorProvider(INFO, device, {**options, **changes})


# ---------------------------------------------------------------- memory


def arena(schedule: Schedule) -> Callable[[], None]:
    """Three threads share room for two chunks each; nobody gets what another one has."""

    def work() -> None:
        room = [6 * 64]
        out: set[int] = set()

        def reserve(size: int) -> bytearray:
            if size > room[0]:
                raise AllocationError("full")
            room[0] -= size
            return bytearray(size)

        def free(raw: bytearray) -> None:
            room[0] += len(raw)

        shared: Arena[bytearray] = Arena(reserve, free, 64, patience=5.0)

        class Stream:
            """Only its identity counts."""

        def use(stream: Stream | None) -> Callable[[], None]:
            def body() -> None:
                for nbytes in (40, 64, 100):
                    chunk = shared.take(nbytes, stream)
                    assert id(chunk.raw) not in out, "a chunk was given out twice"
                    out.add(id(chunk.raw))
                    out.discard(id(chunk.raw))
                    turn = shared.give(chunk, stream)
                    shared.settle(chunk, turn, stream)

            return body

        _together(schedule, use(Stream()), use(Stream()), use(None))
        shared.trim()
        stats = shared.stats()
        assert (stats.in_use_bytes, stats.allocations, stats.releases) == (0, 9, 9)
        shared.close()
        assert shared.stats().reserved_bytes == 0
        assert room == [6 * 64]

    return work


def crowded_device(schedule: Schedule) -> Callable[[], None]:
    """Streams that need what others still have wait for it, and get it."""

    def work() -> None:
        provider = _device(**_FEW)

        def use() -> None:
            stream = provider.create_stream()
            for number in range(3):
                buffer = provider.allocator.allocate((64,), DataType.FLOAT, stream)
                array = np.full(64, number, np.float32)
                result = np.empty(64, np.float32)
                provider.data_transfer.copy(array, buffer, stream)
                provider.data_transfer.copy(buffer, result, stream)
                provider.allocator.release(buffer, stream)
                stream.record().synchronize()
                assert (result == number).all(), result
            stream.close()

        _together(schedule, use, use, use)
        assert provider.allocator.stats().in_use_bytes == 0
        provider.close()
        assert provider.allocator.stats().reserved_bytes == 0

    return work


# ---------------------------------------------------------------- streams


def streams(schedule: Schedule) -> Callable[[], None]:
    """Work in order, events across streams, an error that is heard once by each who waits."""

    def work() -> None:
        provider = _device()
        first, second = provider.create_stream(), provider.create_stream()
        done: list[str] = []

        def fail() -> None:
            raise ValueError("as told")

        def give() -> None:
            first.submit(lambda: done.append("a"))
            event = first.record()
            second.wait(event)
            second.submit(lambda: done.append("b"))
            second.record().synchronize()
            assert done.index("a") < done.index("b")

        def break_it() -> None:
            third = provider.create_stream()
            third.submit(fail)
            third.submit(lambda: done.append("never"))
            event = third.record()
            heard = 0
            for waited in (event.synchronize, third.synchronize, third.synchronize):
                try:
                    waited()
                except RunError:
                    heard += 1
            assert heard == 1, heard
            third.submit(lambda: done.append("again"))
            third.close()
            assert "again" in done
            assert "never" not in done

        _together(schedule, give, break_it, give)
        provider.close()
        first.close()

    return work


# ---------------------------------------------------------------- values


def values(schedule: Schedule) -> Callable[[], None]:
    """A provider closes once, after the last value; also where the collector finds one."""

    def work() -> None:
        provider = _device()
        closed: list[int] = []
        close = provider.close

        def note() -> None:
            closed.append(provider.allocator.stats().in_use_bytes)
            close()

        provider.close = note  # type: ignore[method-assign]

        def make() -> None:
            run = object()
            hold(provider, run)  # as a run does that is under way
            for _ in range(3):
                buffer = provider.allocator.allocate((4,), DataType.FLOAT)
                tensor = DeviceTensor(buffer, provider)
                cycle: list[Any] = [tensor]
                del tensor
                cycle.append(cycle)
                del cycle
                gc.collect(0)
                bury()
            let_go(provider, run)

        kept = DeviceTensor(provider.allocator.allocate((4,), DataType.FLOAT), provider)
        held = [kept]
        del kept
        scene = object()
        hold(provider, scene)  # so that it isn't over before all have begun

        def end() -> None:
            retire(provider)
            held.clear()

        _together(schedule, make, make, end)
        let_go(provider, scene)
        bury()
        gc.collect(0)
        bury()
        assert closed == [0], closed

    return work


# ---------------------------------------------------------------- sessions

_MODEL = parser.parse_model(
    """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x) => (float[3] y, float[3] z) { a = Neg(x) b = Erf(a) y = Mul(b, a) z = Add(a, x) }
    """
)
_X = np.float32([1, 2, 3])


def _session() -> tuple[InferenceSession, list[Any]]:
    session = InferenceSession(_MODEL, quiet_options(), providers=["simulator", "cpu"])
    return session, session.run(None, {"x": _X})


def sessions(schedule: Schedule) -> Callable[[], None]:
    """Threads run a session that another one closes: what is right, or that it is closed."""

    def work() -> None:
        session, right = _session()
        provider = session._candidates[0].provider

        def run() -> None:
            for _ in range(2):
                try:
                    got = session.run(None, {"x": _X})
                except SessionClosedError:
                    return
                assert all(np.array_equal(a, b) for a, b in zip(got, right, strict=True))

        _together(schedule, run, run, session.close)
        assert provider.closed
        assert provider.allocator.stats().in_use_bytes == 0

    return work


def bindings(schedule: Schedule) -> Callable[[], None]:
    """Bound runs on threads, with values that outlive the session."""

    def work() -> None:
        session, right = _session()
        provider = session._candidates[0].provider
        kept: list[OrtValue] = []

        def run(target: str) -> Callable[[], None]:
            def body() -> None:
                binding = session.io_binding()
                binding.bind_cpu_input("x", _X)
                binding.bind_output("y", target)
                try:
                    session.run_with_iobinding(binding)
                except SessionClosedError:
                    return
                kept.extend(binding.get_outputs())

            return body

        _together(schedule, run("simulator"), run("cpu"), run("simulator"), session.close)
        assert all(np.array_equal(value.numpy(), right[0]) for value in kept)
        kept.clear()
        bury()
        assert provider.closed
        assert provider.allocator.stats().in_use_bytes == 0

    return work


def callbacks(schedule: Schedule) -> Callable[[], None]:
    """Every callback is called once, whatever closes when."""

    def work() -> None:
        session, right = _session()
        told: list[str] = []

        def callback(results: list[Any], data: Any, message: str) -> None:
            assert message or np.array_equal(results[0], right[0])
            told.append(message)

        def ask() -> None:
            for _ in range(2):
                try:
                    session.run_async(None, {"x": _X}, callback, None)
                except SessionClosedError:
                    told.append("closed")

        _together(schedule, ask, ask, session.close)
        assert len(told) == 4, told
        assert set(told) <= {"", "closed"} | {m for m in told if "closed" in m}

    return work


def faults(schedule: Schedule) -> Callable[[], None]:
    """One kernel fails: one run tells of it, the others are right, and nothing stays in use."""

    def work() -> None:
        providers = [("simulator", {"fail_kernel_at": 6}), "cpu"]
        session = InferenceSession(_MODEL, quiet_options(), providers=providers)
        right = session.run(None, {"x": _X})
        provider = session._candidates[0].provider
        failed: list[EpError] = []

        def run() -> None:
            for _ in range(2):
                try:
                    got = session.run(None, {"x": _X})
                except RunError as error:
                    failed.append(error)
                else:
                    assert all(np.array_equal(a, b) for a, b in zip(got, right, strict=True))

        _together(schedule, run, run)
        assert len(failed) == 1, failed
        session.close()
        assert provider.allocator.stats().in_use_bytes == 0

    return work


SCENES: tuple[Scene, ...] = (
    *(arena, crowded_device, streams, values, sessions, bindings, callbacks, faults),
)
