"""What the threads of an episode do: each action is drawn, and looks at what it gets.

An action may end with an error only where the session has an excuse for it, was closed by
somebody, or the action was cancelled.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import random
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from stress.devices import DEVICE, DEVICE_IDS, Episode
from stress.interrupts import Interrupter
from stress.subjects import Subject, is_same

from ep_core import InferenceSession, OrtValue, RunOptions
from ep_core.errors import EpError, RunCancelledError, SessionClosedError

__all__ = ["Crew", "Opened"]

_MOST_KEPT = 12
_PATIENCE_SECONDS = 30.0


@dataclass
class Opened:
    """A session.

    Attributes:
        excuses: errors that its runs may end with.
        closing: somebody has closed it, or is about to.
    """

    session: InferenceSession
    excuses: tuple[type[EpError], ...]
    closing: bool = False


@dataclass
class _Kept:
    """A value that outlives the run, and maybe the session, that it came from."""

    value: OrtValue
    right: Any
    excuses: tuple[type[EpError], ...]


@dataclass
class Crew:
    """The sessions of an episode, and the threads that use them.

    Attributes:
        opener: opens one more session.
        problems: what went wrong, in words.
        counts: what was done, and how it ended.
    """

    subject: Subject
    episode: Episode
    opener: Callable[[], Opened]
    problems: list[str]
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: list[Opened] = []
        self._kept: list[_Kept] = []
        self._lent: list[weakref.ref[np.ndarray]] = []  # inputs of runs that are over

    def open(self, count: int) -> None:
        """Open sessions."""
        for _ in range(count):
            opened = self.opener()
            with self._lock:
                self._sessions.append(opened)

    def work(self, rng: random.Random, count: int, interrupter: Interrupter | None = None) -> None:
        """What one thread does."""
        for _ in range(count):
            action = rng.choice(_ACTIONS)
            with self._lock:
                opened = rng.choice(self._sessions)
            one = _Action(self, opened, rng)
            name = action.__name__.strip("_")
            self.counts[name] += 1
            try:
                if interrupter is None or action in _NEVER_INTERRUPTED:
                    action(one)
                elif not interrupter.doing(lambda: action(one)):  # noqa: B023 - called at once
                    self.counts["interrupted"] += 1
            except EpError as error:
                self._judge(error, one, name)
            except Exception as error:  # noqa: BLE001 - told, with the seed
                self.problems.append(f"{name}: {type(error).__name__}: {error}")

    def look_at_kept(self) -> None:
        """Values that were kept are as they were."""
        for kept in list(self._kept):
            try:
                self.check([kept.value.numpy()], [kept.right], "a kept value")
            except EpError as error:
                if not isinstance(error, kept.excuses):
                    self.problems.append(f"a kept value: {type(error).__name__}: {error}")

    def lend(self, feeds: dict[str, Any]) -> None:
        """Note inputs that nobody but a run may refer to."""
        arrays = [value for value in feeds.values() if isinstance(value, np.ndarray)]
        self._lent.extend(weakref.ref(array) for array in arrays)

    def look_at_lent(self) -> None:
        """Runs that are over, failed or not, keep nothing of the caller's."""
        gc.collect()
        alive = sum(reference() is not None for reference in self._lent)
        if alive:
            self.problems.append(f"{alive} inputs of runs that are over are still referred to")

    def close(self) -> None:
        """Close the sessions."""
        for opened in self._sessions:
            opened.session.close()

    def forget(self) -> None:
        """Let go of everything."""
        self._sessions.clear()
        self._kept.clear()

    def replace(self, opened: Opened) -> None:
        """Close a session in whose place another one is opened."""
        fresh = self.opener()
        with self._lock:
            if opened in self._sessions:
                self._sessions.remove(opened)
            self._sessions.append(fresh)
        opened.closing = True
        opened.session.close()

    def keep(self, value: OrtValue, right: Any, excuses: tuple[type[EpError], ...]) -> None:
        """Keep a value; when there are many, some other goes."""
        if not value.is_tensor():
            return
        with self._lock:
            self._kept.append(_Kept(value, right, excuses))
            if len(self._kept) > _MOST_KEPT:
                self._kept.pop(0)

    def kept(self) -> list[_Kept]:
        """Values of any session."""
        with self._lock:
            return list(self._kept)

    def check(self, got: list[Any], right: list[Any], what: str) -> None:
        """Compare values; the host reads them then."""
        if self.episode.ordering is not None:
            self.episode.ordering.host_reads(got, what)
        if not is_same(got, right):
            self.problems.append(f"{what} gives other values than the CPU provider")

    def _judge(self, error: EpError, one: _Action, name: str) -> None:
        kind = type(error)
        self.counts[kind.__name__] += 1
        excused = isinstance(error, one.opened.excuses + one.excuses)
        if one.opened.closing and isinstance(error, SessionClosedError):
            return
        if one.cancelled and isinstance(error, RunCancelledError):
            return
        if not excused:
            self.problems.append(f"{name}: {kind.__name__}: {error}")


class _Action:
    """One action of one thread.

    Attributes:
        excuses: for errors of values that were taken from other sessions.
        cancelled: the run may end as cancelled.
    """

    def __init__(self, crew: Crew, opened: Opened, rng: random.Random) -> None:
        self.crew = crew
        self.opened = opened
        self.session = opened.session
        self.rng = rng
        self.excuses: tuple[type[EpError], ...] = ()
        self.cancelled = False
        number = rng.randrange(len(crew.subject.feeds))
        self.feeds = crew.subject.feeds[number]
        self.right = crew.subject.answers[number]
        self.names = crew.subject.names

    def chosen(self) -> tuple[list[str] | None, list[Any]]:
        """Some outputs, and what is right for them."""
        if self.rng.random() < 0.5:
            return None, self.right
        count = self.rng.randint(1, len(self.names))
        places = [self.rng.randrange(len(self.names)) for _ in range(count)]
        return [self.names[at] for at in places], [self.right[at] for at in places]

    def check(self, got: list[Any], right: list[Any], what: str) -> None:
        self.crew.check(got, right, what)

    def scribble(self, values: Any) -> None:
        """Overwrite what belongs to the caller."""
        if self.crew.episode.ordering is not None:
            self.crew.episode.ordering.host_writes(values, "the caller who overwrites it")
        for value in values:
            if isinstance(value, list):
                self.scribble(value)
            elif isinstance(value, np.ndarray) and value.dtype != object and value.flags.writeable:
                value[...] = 1


def _run(one: _Action) -> None:
    for _ in range(one.rng.randint(1, 4)):
        names, right = one.chosen()
        feeds = copy.deepcopy(one.feeds)
        one.crew.lend(feeds)
        got = one.session.run(names, feeds)
        one.check(got, right, "run")
        one.scribble(got)
        one.scribble(feeds.values())


def _cancelled_run(one: _Action) -> None:
    options = RunOptions()
    one.cancelled = True
    timer = threading.Timer(one.rng.random() * 0.003, setattr, (options, "terminate", True))
    timer.start()
    try:
        one.check(one.session.run(None, one.feeds, options), one.right, "a run to be cancelled")
    finally:
        timer.cancel()
        timer.join()


def _bound(one: _Action) -> None:
    """Inputs and outputs anywhere, the same binding several times."""
    binding = one.session.io_binding()
    feeds = dict(one.feeds)
    right = dict(zip(one.names, one.right, strict=True))
    _swap_inputs(one, feeds, right)
    held = []
    for name, value in feeds.items():
        if isinstance(value, OrtValue):
            binding.bind_ortvalue_input(name, value)
        elif _is_numeric(value) and one.rng.random() < 0.5:
            held.append(OrtValue.ortvalue_from_numpy(value, *_place(one)))
            binding.bind_ortvalue_input(name, held[-1])
        else:
            binding.bind_cpu_input(name, copy.deepcopy(value))
    wanted = one.rng.sample(one.names, one.rng.randint(1, len(one.names)))
    for name in wanted:
        way = one.rng.random()
        if not _is_numeric(right[name]) or way < 0.3:
            binding.bind_output(name)
        elif way < 0.7:
            binding.bind_output(name, *_place(one))
        else:
            shape, dtype = right[name].shape, right[name].dtype
            value = OrtValue.ortvalue_from_shape_and_type(shape, dtype, *_place(one))
            binding.bind_ortvalue_output(name, value)
    expected = [right[name] for name in wanted]
    for _ in range(one.rng.randint(1, 3)):
        one.session.run_with_iobinding(binding)
        one.check(binding.copy_outputs_to_cpu(), expected, "a bound run")
    for value, answer in zip(binding.get_outputs(), expected, strict=True):
        if one.rng.random() < 0.5:
            one.crew.keep(value, copy.deepcopy(answer), one.opened.excuses + one.excuses)


def _swap_inputs(one: _Action, feeds: dict[str, Any], right: dict[str, Any]) -> None:
    """Take a value that another session gave for an input that it fits."""
    numbers = dict(feeds)
    for name, value in list(feeds.items()):
        if not _is_numeric(value) or one.rng.random() < 0.5:
            continue
        for kept in one.crew.kept():
            if kept.right.dtype == value.dtype and kept.right.shape == value.shape:
                feeds[name] = kept.value
                one.excuses += kept.excuses
                numbers[name] = kept.right
                answer = one.crew.subject.answer({**one.feeds, **numbers})
                right.update(zip(one.names, answer, strict=True))
                one.crew.counts["values passed on"] += 1
                break


def _with_values(one: _Action) -> None:
    names, right = one.chosen()
    values = {
        name: OrtValue.ortvalue_from_numpy(value, *_place(one))
        for name, value in one.feeds.items()
        if _is_numeric(value)
    }
    if len(values) < len(one.feeds):
        return
    results = one.session.run_with_ort_values(names, values)
    one.check([value._content for value in results], right, "a run with values")
    for value, expected in zip(results, right, strict=True):
        one.crew.keep(value, expected, one.opened.excuses)


def _asynchronous(one: _Action) -> None:
    """Callbacks come once each, with what is right."""
    count = one.rng.randint(1, 5)
    options = RunOptions()
    one.cancelled = one.rng.random() < 0.3
    answers: list[tuple[list[Any], str]] = []
    there = threading.Semaphore(0)

    def callback(results: list[Any], data: Any, message: str) -> None:
        answers.append((results, message))
        there.release()

    for _ in range(count):
        one.session.run_async(None, one.feeds, callback, None, options)
    options.terminate = one.cancelled
    for _ in range(count):
        if not there.acquire(timeout=_PATIENCE_SECONDS):
            one.crew.problems.append("a callback of run_async isn't called")
            return
    for results, message in answers:
        if not message:
            one.check(results, one.right, "an asynchronous run")
        elif not (one.opened.excuses or one.opened.closing or one.cancelled):
            one.crew.problems.append(f"run_async: {message}")
    if len(answers) != count:
        one.crew.problems.append(f"{len(answers)} callbacks for {count} runs")


def _awaited(one: _Action) -> None:
    """Tasks of which some are cancelled."""
    count = one.rng.randint(1, 4)
    doomed = {number for number in range(count) if one.rng.random() < 0.4}
    delay = one.rng.random() * 0.003

    async def main() -> list[Any]:
        tasks = [
            asyncio.create_task(one.session.run_awaitable(None, one.feeds)) for _ in range(count)
        ]
        await asyncio.sleep(delay)
        for number in doomed:
            tasks[number].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    for number, result in enumerate(asyncio.run(main())):
        if isinstance(result, EpError):
            one.crew._judge(result, one, "awaited")
        elif isinstance(result, asyncio.CancelledError) and number in doomed:
            one.crew.counts["cancelled"] += 1
        elif isinstance(result, BaseException):
            raise result
        else:
            one.check(result, one.right, "an awaited run")


def _updated(one: _Action) -> None:
    """A value on a device is overwritten, from the host and from another device."""
    value = next(v for v in (*one.feeds.values(), np.float32([1, 2])) if _is_numeric(v)).copy()
    first = OrtValue.ortvalue_from_numpy(value, *_place(one))
    second = OrtValue.ortvalue_from_shape_and_type(value.shape, value.dtype, *_place(one))
    second.update_inplace(first)
    one.check([second.numpy()], [value], "a value that was copied")
    first.update_inplace(np.zeros_like(value))
    one.check([first.numpy()], [np.zeros_like(value)], "a value that was overwritten")


def _lent(one: _Action) -> None:
    """A value is shared with a second one by DLPack, which outlives it."""
    value = next(v for v in (*one.feeds.values(), np.float32([1, 2])) if _is_numeric(v)).copy()
    first = OrtValue.ortvalue_from_numpy(value, *_place(one))
    second = OrtValue.from_dlpack(first)
    del first
    one.check([second.numpy()], [value], "a value that was lent")
    one.crew.keep(second, value, one.opened.excuses)


def _collect(one: _Action) -> None:
    """Values end in a cycle, and the collector comes when it comes, or now."""
    for kept in one.crew.kept()[:3]:
        cycle: list[Any] = [kept.value, OrtValue.ortvalue_from_numpy(np.ones(3), DEVICE)]
        cycle.append(cycle)
    if one.rng.random() < 0.5:
        gc.collect(one.rng.randrange(3))


def _exchange(one: _Action) -> None:
    one.crew.replace(one.opened)


def _described(one: _Action) -> None:
    memory = one.session.get_memory()
    if any(stats.in_use_bytes < 0 for stats in memory.devices.values()):
        one.crew.problems.append("less than nothing is in use")
    one.session.get_placement()


_ACTIONS: tuple[Callable[[_Action], None], ...] = (
    *(_run, _run, _run, _bound, _bound, _bound, _with_values, _asynchronous, _awaited),
    *(_cancelled_run, _updated, _lent, _collect, _exchange, _described),
)
_NEVER_INTERRUPTED = (_asynchronous, _awaited, _cancelled_run, _exchange, _collect, _updated)
"""They start threads or open sessions, which nobody could then end; a run has to be safe."""


def _place(one: _Action) -> tuple[str, str]:
    """Where a value may lie: the host, or a device, the session's own or opened for values."""
    return one.rng.choice([("cpu", "0"), *((DEVICE, number) for number in DEVICE_IDS)])


def _is_numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype != object
