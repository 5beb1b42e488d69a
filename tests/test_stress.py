"""Two memories under stress for a short while, and that the instruments find what is planted.

The long form is `make stress`. What a fault was planted in is put back by `monkeypatch`.
"""

from __future__ import annotations

import contextlib
import signal
import threading

import numpy as np
import pytest
from onnx import parser
from stress.clocks import Ordering, Timeline
from stress.devices import DEVICE_IDS, Episode, stress_providers
from stress.episodes import run_episode
from stress.interrupts import Interrupted, Interrupter
from stress.locks import LockOrder
from stress.scenes import LOCKS, MODULES, SCENES, arena, streams
from stress.schedules import DeadlockError, Schedule
from stress.subjects import close_subjects, quiet_options

from ep_core import InferenceSession
from ep_core.discovery.registry import registry
from ep_core.loading.load import load_model
from ep_core.running.plan import HostWait, StreamWait
from ep_core.types import DataType
from ep_sdk.arena import Arena
from ep_sdk.simulator.stream import SimulatorStream

EPISODES = 6
SCHEDULES = 20


@pytest.fixture(scope="module", autouse=True)
def _providers():
    with stress_providers():
        yield
    close_subjects()


# ---------------------------------------------------------------- the short form


@pytest.mark.parametrize("style", ["watched", "plain", "interrupted"])
def test_episodes_lose_nothing(style):
    if style == "interrupted" and (
        not hasattr(signal, "pthread_kill")
        or threading.current_thread() is not threading.main_thread()
    ):
        pytest.skip("needs signals in the main thread")
    done = 0
    for number in range(EPISODES):
        problems, counts = run_episode(20, number, style)
        assert problems == [], f"episode {number}"
        done += counts["run"] + counts["bound"]
    assert done > EPISODES


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_scenes_hold_in_any_order(scene):
    for seed in range(SCHEDULES):
        schedule = Schedule(seed, MODULES, LOCKS)
        try:
            schedule.run(scene(schedule))
        except BaseException as error:
            error.add_note(f"schedule {seed}")
            raise


# ---------------------------------------------------------------- order of accesses

TURNS = parser.parse_model(
    """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x, float[3] w) => (float[3] y, float[3] z)
    { a = Neg(x) b = Relu(a) c = Add(a, b) d = Mul(c, w) y = Abs(d) z = Sub(b, c) }
    """
)
"""The devices take turns: one has Neg, Add and Abs, the other one the rest."""


def races_of_a_run(direct="source", **latencies):
    """What is found in runs of `TURNS` on two devices."""
    ordering = Ordering()
    first = {"skip": ["Relu", "Mul", "Sub"], **latencies}
    x = np.float32([1, -2, 3])
    with Episode(ordering=ordering, direct=direct) as episode:
        providers = [
            episode.device(DEVICE_IDS[0], **first),
            episode.device(DEVICE_IDS[1], **latencies),
        ]
        with InferenceSession(TURNS, quiet_options(), providers=providers) as session:
            assert len(session.get_placement().partitions) > 2
            for _ in range(2):
                with contextlib.suppress(Exception):  # wrong orders have other consequences too
                    ordering.host_reads(session.run(None, {"x": x, "w": x}), "the caller")
    return ordering.races


@pytest.mark.parametrize("direct", ["", "source", "target"])
@pytest.mark.parametrize("overlap", [True, False])
def test_plans_have_no_races(direct, overlap):
    assert races_of_a_run(direct, overlap=overlap) == []


def test_a_plan_without_waits_of_streams_is_found(monkeypatch):
    monkeypatch.setattr(StreamWait, "execute", lambda self, values, state: None)
    races = races_of_a_run()
    assert any("isn't ordered after" in race for race in races)


def test_a_plan_that_doesn_t_wait_for_its_outputs_is_found(monkeypatch):
    monkeypatch.setattr(HostWait, "execute", lambda self, values, state: None)
    races = races_of_a_run()
    assert any("the caller" in race and "a copy that writes it" in race for race in races)


@pytest.fixture
def lanes():
    """Two watched devices, each with a stream, and what is found."""
    ordering = Ordering()
    with Episode(ordering=ordering) as episode, contextlib.ExitStack() as undo:
        devices = []
        for number in DEVICE_IDS:
            name, options = episode.device(number)
            provider = registry().create(name, options)
            undo.callback(provider.close)
            devices.append((provider, provider.create_stream()))
        yield ordering, *devices


def test_a_release_that_doesn_t_wait_for_a_foreign_reader_is_found(lanes):
    ordering, (first, own), (second, foreign) = lanes
    array = np.ones(3, np.float32)
    source = first.allocator.allocate((3,), DataType.FLOAT, own)
    target = second.allocator.allocate((3,), DataType.FLOAT, foreign)
    first.data_transfer.copy(array, source, own)
    foreign.wait(own.record())
    second.data_transfer.copy(source, target, foreign)
    assert ordering.races == []
    first.allocator.release(source, own)
    assert len(ordering.races) == 1
    assert "its release" in ordering.races[0]
    assert "isn't ordered after a copy that reads it" in ordering.races[0]


def test_a_release_that_waits_is_right(lanes):
    ordering, (first, own), (second, foreign) = lanes
    array = np.ones(3, np.float32)
    source = first.allocator.allocate((3,), DataType.FLOAT, own)
    target = second.allocator.allocate((3,), DataType.FLOAT, foreign)
    first.data_transfer.copy(array, source, own)
    foreign.wait(own.record())
    second.data_transfer.copy(source, target, foreign)
    own.wait(foreign.record())
    first.allocator.release(source, own)
    foreign.synchronize()
    second.allocator.release(target)
    assert ordering.races == []


def test_what_is_used_after_its_release_is_found():
    ordering, line = Ordering(), Timeline("a stream")
    ordering.allocated("here", line, "memory")
    ordering.shared("here", "the same memory")
    ordering.released("here", line)
    ordering.read("here", line, "a kernel")
    assert ordering.races == []
    ordering.released("here", line)
    ordering.read("here", line, "a kernel")
    (race,) = ordering.races
    assert "a kernel uses memory that has been released" in race


def test_an_array_that_is_let_go_too_early_is_found(lanes):
    ordering, (first, own), _ = lanes
    buffer = first.allocator.allocate((3,), DataType.FLOAT, own)
    array = np.ones(3, np.float32)
    first.data_transfer.copy(array, buffer, own)
    del array
    own.synchronize()
    assert ordering.races == ["array float32[3] was let go while a stream could still use it"]


def test_an_array_that_is_overwritten_too_early_is_found(lanes):
    """Also where it is only a part of the same memory."""
    ordering, (first, own), _ = lanes
    buffer = first.allocator.allocate((3,), DataType.FLOAT, own)
    memory = np.ones(8, np.float32)
    first.data_transfer.copy(memory[2:5], buffer, own)
    ordering.host_writes([memory[:2]], "the host")
    assert ordering.races == []
    ordering.host_writes([memory[4:]], "the host")
    assert len(ordering.races) == 1
    own.synchronize()
    ordering.host_writes([memory[4:]], "the host")
    assert len(ordering.races) == 1


def test_memory_that_is_given_out_too_early_is_found(monkeypatch, lanes):
    """An arena that takes every release for done."""
    ordering, (first, own), _ = lanes
    give = Arena.give
    monkeypatch.setattr(Arena, "give", lambda self, chunk, stream=None: give(self, chunk, None))
    other = first.create_stream()
    gate = threading.Lock()
    with gate:
        own.submit(gate.acquire)
        buffer = first.allocator.allocate((3,), DataType.FLOAT)
        first.allocator.release(buffer, own)
        again = first.allocator.allocate((3,), DataType.FLOAT, other)
    own.submit(gate.release)
    first.allocator.release(again, other)
    assert any("before" in race and "had got there" in race for race in ordering.races)


def test_clocks_forget_what_is_closed():
    ordering = Ordering()
    lines = [Timeline(f"stream {number}") for number in range(50)]
    for number, line in enumerate(lines):
        ordering.allocated(number, line, "memory")
        ordering.stream_closed(line)
        ordering.released(number, ordering.host)
    assert ordering.races == []
    assert set(ordering.host.clock) == {ordering.host}


# ---------------------------------------------------------------- order of locks


def watched_locks():
    return LockOrder(prefixes=(__name__,))


def test_two_locks_in_opposite_order_are_found():
    order = watched_locks()
    with order.watching():
        first = threading.Lock()
        second = threading.Lock()
    with first, second:
        pass
    assert order.cycles() == []
    with second, first:
        pass
    (cycle,) = order.cycles()
    assert cycle.count(" before ") == 2


def test_locks_of_one_line_in_opposite_order_are_found():
    order = watched_locks()
    with order.watching():
        first, second = (threading.Lock() for _ in range(2))
    with first, second:
        pass
    with second, first:
        pass
    (cycle,) = order.cycles()
    assert "in either order" in cycle


def test_no_order_is_made_of_signals_or_of_locks_taken_again():
    """A lock that another thread opens is no lock; nor does one that is taken twice wait."""
    order = watched_locks()
    with order.watching():
        again = threading.RLock()
        signal_ = threading.Lock()
        guard = threading.Lock()
        ready = threading.Condition(threading.Lock())
    with again, again, guard:
        pass
    signal_.acquire()
    with guard:
        pass
    opener = threading.Thread(target=signal_.release)
    opener.start()
    opener.join()
    with guard, signal_:
        pass
    with ready:
        ready.wait(0.001)
    assert order.cycles() == []


def test_looking_into_bodies_takes_no_locks_in_opposite_orders():
    """From a graph to its nodes, and from a node to its bodies; Python 3.11 has locks there."""
    model = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[3] x, bool c) => (float[3] y) {
            y = If (c) <
                then_branch = a () => (float[3] t) { t = Neg(x) },
                else_branch = b () => (float[3] e) { e = Abs(x) }
            >
        }
        """
    )
    graph = load_model(model).graph
    (node,) = graph.nodes

    def fresh():
        """The node without anything that was found out already."""
        return node.replace(attributes={name: body.replace() for name, body in node.bodies.items()})

    order = LockOrder()
    with order.watching():
        assert fresh().captures == ("x",)
        assert graph.replace(nodes=(fresh(),)).captures == ()
    assert order.cycles() == []


# ---------------------------------------------------------------- interleavings


class NoLock:
    def __enter__(self):
        return True

    def __exit__(self, *exception):
        pass


def first_failure(scene, count=60):
    for seed in range(count):
        schedule = Schedule(seed, MODULES, LOCKS)
        try:
            schedule.run(scene(schedule))
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            return seed, error
    return None


def test_an_arena_without_its_lock_is_found(monkeypatch):
    init = Arena.__init__

    def without(self, *args, **options):
        init(self, *args, **options)
        self._lock = NoLock()

    monkeypatch.setattr(Arena, "__init__", without)
    found = first_failure(arena)
    assert found is not None
    seed, error = found  # which happens again by its seed
    schedule = Schedule(seed, MODULES, LOCKS)
    with pytest.raises(type(error)):
        schedule.run(arena(schedule))


def test_a_worker_that_is_never_told_to_end_is_found(monkeypatch):
    def close(self):
        self._closed = True
        self._thread.join()

    monkeypatch.setattr(SimulatorStream, "close", close)
    found = first_failure(streams, count=1)
    assert found is not None
    assert isinstance(found[1], DeadlockError)


def test_a_lost_wakeup_is_found():
    """Looking first and waiting then, with a gap between."""

    def scene(schedule):
        ready, flag = schedule.stand_ins["threading"].Condition(), []

        def wait():
            if not flag:
                schedule.step()
                with ready:
                    ready.wait()

        def tell():
            with ready:
                flag.append(True)
                ready.notify_all()

        def work():
            threads = [schedule.thread(target=wait), schedule.thread(target=tell)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return work

    found = first_failure(scene)
    assert found is not None
    assert isinstance(found[1], DeadlockError)


def test_a_seed_gives_the_same_order_again():
    def order_of(seed):
        schedule = Schedule(seed, MODULES, LOCKS)
        seen = []
        drawn = schedule._pick

        def noted():
            strand = drawn()
            seen.append(strand.name if strand is not None else "")
            return strand

        schedule._pick = noted
        schedule.run(streams(schedule))
        return seen

    assert order_of(3) == order_of(3)
    assert len({tuple(order_of(seed)) for seed in range(6)}) > 1


# ---------------------------------------------------------------- interrupts


def test_interrupts_arrive_only_where_they_may():
    if not hasattr(signal, "pthread_kill"):
        pytest.skip("needs signals")
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("needs the main thread")
    with Interrupter(1) as interrupter:
        inside = []

        def spin():
            try:
                while True:
                    inside.append(None)
            except Interrupted:
                inside.clear()
                raise

        for _ in range(3):
            assert not interrupter.doing(spin)
            assert inside == []
        assert interrupter.count == 3
        assert interrupter.doing(lambda: None)
