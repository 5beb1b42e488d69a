"""One thread at a time, and who goes on is drawn: interleavings that a seed gives again.

A thread stops at every line of the files that are looked at, and wherever it takes a lock, waits or
sleeps; then it is drawn who goes on. Locks, conditions, queues, threads and time are stand-ins that
know of this, in place of `threading`, `queue` and `time` in those files. When nobody can go on,
time passes until somebody's patience ends; when nobody waits for time either, it is a deadlock.

Half of the schedules switch at random, half by priorities that change a few times, which finds
what needs one thread to be held up for long (Burckhardt and others, 2010).
"""

from __future__ import annotations

import concurrent.futures
import gc
import queue
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import FrameType, ModuleType
from typing import Any
from unittest import mock

__all__ = ["DeadlockError", "Schedule"]

_MOST_STEPS = 200_000
_PATIENCE_SECONDS = 60.0


class DeadlockError(AssertionError):
    """Nobody can go on, or it never ends."""


class _Abandoned(BaseException):
    """Ends the threads of a schedule that has failed."""


class _Strand:
    """One thread of a schedule.

    Attributes:
        ready: what it waits for, None if it can go on.
        deadline: until when it waits at the most.
    """

    def __init__(self, name: str, priority: float) -> None:
        self.name = name
        self.priority = priority
        self.turn = threading.Semaphore(0)
        self.ready: Callable[[], bool] | None = None
        self.deadline: float | None = None
        self.done = False


class Schedule:
    """Runs a function and the threads that it starts, in the order of one seed.

    Args:
        modules: whose lines are stopped at, and whose `threading`, `queue` and `time` are replaced.
        locks: (module, name) of locks that were made when the module was imported.
        opcodes: stop at every instruction, not only at every line.

    Attributes:
        stand_ins: by the name of the module that they stand in for.
        now: seconds that have passed, for who asks `time.monotonic`.
    """

    def __init__(
        self,
        seed: int,
        modules: Iterable[ModuleType],
        locks: Iterable[tuple[ModuleType, str]] = (),
        *,
        opcodes: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self._modules = list(modules)
        self._locks = list(locks)
        self._files = {module.__file__ for module in self._modules}
        self._opcodes = opcodes
        self._strands: list[_Strand] = []
        self._own = threading.local()
        self._over = threading.Semaphore(0)
        self._failure: BaseException | None = None
        self._steps = 0
        self.now = 0.0
        self._by_priority = self.rng.random() < 0.5
        self._share = self.rng.choice([0.02, 0.1, 0.3, 0.6])
        self._changes = {self.rng.randrange(1, 2000) for _ in range(4)}
        self.stand_ins: dict[str, Any] = {
            "threading": _StandIn(
                threading,
                Lock=lambda: Lock(self),
                RLock=lambda: Lock(self, again=True),
                Condition=lambda lock=None: Condition(self, lock),
                Thread=self.thread,
            ),
            "queue": _StandIn(queue, SimpleQueue=lambda: SimpleQueue(self)),
            "time": _StandIn(time, sleep=self.sleep, monotonic=lambda: self.now),
        }

    def run(self, work: Callable[[], None]) -> None:
        """Run it to the end.

        Raises:
            DeadlockError: nobody can go on.
            and whatever a thread raised.
        """
        collecting = gc.isenabled()
        gc.disable()  # a collection would run code at a moment that isn't drawn
        try:
            with ExitStack() as undo:
                for module in self._modules:
                    for name in self.stand_ins.keys() & vars(module).keys():
                        undo.enter_context(mock.patch.object(module, name, self.stand_ins[name]))
                undo.enter_context(
                    mock.patch.object(
                        concurrent.futures,
                        "ThreadPoolExecutor",
                        lambda *given: Executor(self, *given),
                    )
                )
                for module, name in self._locks:
                    undo.enter_context(mock.patch.object(module, name, Lock(self)))
                self.start(work, "first").turn.release()
                if not self._over.acquire(timeout=_PATIENCE_SECONDS):
                    raise DeadlockError("a thread is stuck outside the schedule")
        finally:
            if collecting:
                gc.enable()
        if self._failure is not None:
            raise self._failure

    def thread(self, **given: Any) -> Thread:
        """In place of `threading.Thread`."""
        return Thread(self, **given)

    def start(self, work: Callable[[], None], name: str) -> _Strand:
        """Make one more thread; it goes on when it is its turn."""
        strand = _Strand(name, self.rng.random())
        self._strands.append(strand)
        thread = threading.Thread(target=self._live, args=(strand, work), name=name, daemon=True)
        thread.start()
        return strand

    def step(self) -> None:
        """A moment at which another thread may go on."""
        if self._failure is not None or not hasattr(self._own, "strand"):
            return
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self._fail(DeadlockError(f"no end after {_MOST_STEPS} steps"))
            raise _Abandoned
        if self._by_priority:
            if self._steps in self._changes:
                self._own.strand.priority -= 1.0
            self._switch()
        elif self.rng.random() < self._share:
            self._switch()

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let others go on until `ready`; False if the time was over before."""
        strand = getattr(self._own, "strand", None)
        if strand is None or self._failure is not None:
            if not ready():
                raise _Abandoned
            return True
        self.step()
        if not ready():
            strand.ready = ready
            strand.deadline = None if timeout is None else self.now + timeout
            self._switch()
            strand.ready = strand.deadline = None
        return ready()

    def sleep(self, seconds: float) -> None:
        """Let others go on, and come back when nobody else has anything to do."""
        end = self.now + seconds
        self.wait(lambda: self.now >= end, seconds)

    # ------------------------------------------------------------ inside

    def _live(self, strand: _Strand, work: Callable[[], None]) -> None:
        strand.turn.acquire()
        self._own.strand = strand
        try:
            if self._failure is None:
                sys.settrace(self._trace)
                work()
        except _Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self._fail(error)
        finally:
            sys.settrace(None)
            strand.done = True
            following = self._pick()
            if following is not None:
                following.turn.release()
            elif all(other.done for other in self._strands):
                self._over.release()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = self._opcodes
        return self._at_line

    def _at_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "opcode"):
            self.step()
        return self._at_line

    def _switch(self) -> None:
        """Let whoever is drawn go on, and come back when it is one's turn again."""
        strand = self._own.strand
        following = self._pick()
        if following is not None and following is not strand:
            following.turn.release()
            strand.turn.acquire()
        if self._failure is not None:
            raise _Abandoned

    def _pick(self) -> _Strand | None:
        """Who goes on; after a failure everybody does, to their ends."""
        if self._failure is not None:
            return next((strand for strand in self._strands if not strand.done), None)
        waiting = [strand for strand in self._strands if not strand.done]
        able = [strand for strand in waiting if strand.ready is None or strand.ready()]
        if not able:
            patient = [strand for strand in waiting if strand.deadline is not None]
            if patient:
                first = min(patient, key=lambda strand: strand.deadline or 0.0)
                self.now = max(self.now, first.deadline or 0.0)
                return first
            if waiting:
                names = ", ".join(strand.name for strand in waiting)
                self._fail(DeadlockError(f"nobody can go on: {names}"))
                return waiting[0]
            return None
        if self._by_priority:
            return max(able, key=lambda strand: strand.priority)
        return self.rng.choice(able)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error


class _StandIn:
    """A module with some of its names replaced."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


# ---------------------------------------------------------------- what stands in


class Lock:
    """In place of `threading.Lock`; with `again` of `threading.RLock`."""

    def __init__(self, schedule: Schedule, *, again: bool = False) -> None:
        self._schedule = schedule
        self._again = again
        self._holder = 0
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        own = threading.get_ident()
        if self._again and self._holder == own:
            self._depth += 1
            return True
        if blocking:
            limit = None if timeout < 0 else timeout
            if not self._schedule.wait(lambda: not self._depth, limit):
                return False
        elif self._depth:
            return False
        self._holder = own
        self._depth = 1
        return True

    def release(self) -> None:
        assert self._depth, "released without being held"
        self._depth -= 1
        if not self._depth:
            self._holder = 0
            self._schedule.step()

    def locked(self) -> bool:
        return bool(self._depth)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class Condition:
    """In place of `threading.Condition`."""

    def __init__(self, schedule: Schedule, lock: Lock | None) -> None:
        self._schedule = schedule
        self._lock = lock if lock is not None else Lock(schedule, again=True)
        self._waiting: deque[list[bool]] = deque()
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._waiting.append(told)
        self._lock.release()
        try:
            return self._schedule.wait(lambda: told[0], timeout)
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else self._schedule.now + timeout
        while not (result := predicate()):
            left = None if end is None else end - self._schedule.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, count: int = 1) -> None:
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft()[0] = True

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


class SimpleQueue:
    """In place of `queue.SimpleQueue`."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._schedule.step()

    def get(self) -> Any:
        self._schedule.wait(lambda: bool(self._items))
        return self._items.popleft()


class Thread:
    """In place of `threading.Thread`."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        name: str = "thread",
        daemon: bool | None = None,
    ) -> None:
        self._schedule = schedule
        self._work = lambda: target(*args)
        self._strand: _Strand | None = None
        self.name = name
        self.daemon = daemon

    def start(self) -> None:
        self._strand = self._schedule.start(self._work, self.name)
        self._schedule.step()

    def join(self, timeout: float | None = None) -> None:
        strand = self._strand
        assert strand is not None, "joined before it was started"
        self._schedule.wait(lambda: strand.done, timeout)

    def is_alive(self) -> bool:
        return self._strand is not None and not self._strand.done


class Executor:
    """In place of `concurrent.futures.ThreadPoolExecutor`; nobody can wait for its futures."""

    def __init__(
        self, schedule: Schedule, workers: int, prefix: str, initializer: Callable[[], None]
    ) -> None:
        self._queue = SimpleQueue(schedule)
        self._threads = [
            Thread(schedule, target=self._work, args=(initializer,), name=f"{prefix} {number}")
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._queue.put(work)
        return future

    def shutdown(self, wait: bool = True) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self, initializer: Callable[[], None]) -> None:
        initializer()
        while (work := self._queue.get()) is not None:
            work()
