"""One episode: threads that run a few sessions in every way, while things fail, and what is left.

All that is drawn comes from the seed and the number of the episode. Which thread gets where first
does not; that is what it is repeated for. What the threads do is in `actions`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stress.actions import Crew, Opened
from stress.clocks import Ordering
from stress.devices import DEVICE_IDS, Episode
from stress.interrupts import Interrupter
from stress.locks import LockOrder
from stress.subjects import MODELS, quiet_options, subject_of

from ep_core import InferenceSession
from ep_core.errors import AllocationError, DeviceLostError, RunError
from ep_core.values.holds import bury
from ep_sdk.simulator import INFO as SIMULATOR

__all__ = ["STYLES", "run_episode"]

STYLES = ("watched", "watched", "plain", "interrupted")
"""`watched`: accesses and locks are checked, which takes its time. `plain`: nothing is in the way.
`interrupted`: as plain, and the main thread takes part and is interrupted at any moment."""

_OPERATORS = (
    *("Add", "Sub", "Mul", "Max", "Min", "Clip", "Relu", "Neg", "Abs", "Identity", "Cast"),
    *("Transpose", "Unsqueeze", "Squeeze", "Reshape", "Concat", "Slice", "Gather", "MatMul"),
    *("ReduceSum", "Less", "Greater", "Equal", "Where", "Shape", "Not"),
)
_LATENCIES = tuple(name for name in SIMULATOR.options if name.endswith("_latency_us"))
_CHANCES = {
    "fail_allocation_at": AllocationError,
    "fail_copy_at": RunError,
    "fail_kernel_at": RunError,
    "lose_device_at": DeviceLostError,
}
_PATIENCE_SECONDS = 40.0
_SETTLING_SECONDS = 5.0


def run_episode(seed: int, number: int, style: str | None = None) -> tuple[list[str], Counter[str]]:
    """Live through one episode.

    Returns:
        What is wrong, in words, and what was done, counted.
    """
    rng = random.Random(f"{seed} {number}")
    chosen = rng.choice(STYLES)
    style = style or chosen
    usual = sys.getswitchinterval()
    sys.setswitchinterval(rng.choice([1e-6, 1e-6, 1e-5, 1e-4, 5e-3]))
    locks = LockOrder()
    ordering = Ordering() if style == "watched" else None
    try:
        with contextlib.ExitStack() as stack, _nothing_unheard() as problems:
            subject = subject_of(rng.randrange(MODELS))
            before = _traces()
            if ordering is not None:
                stack.enter_context(locks.watching())
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stress"))
            episode = stack.enter_context(_drawn_episode(rng, ordering, f"{seed} {number}"))
            crew = Crew(subject, episode, _Opener(rng, episode, subject, folder), problems)
            _live(rng, crew, style)
            problems += _what_is_left(crew, before, style)
            crew.counts["accesses"] = ordering.checked if ordering else 0
    finally:
        sys.setswitchinterval(usual)
    if ordering is not None:
        problems += [f"race: {race}" for race in ordering.races[:5]]
        problems += [f"locks: {cycle}" for cycle in locks.cycles()]
    crew.counts[f"episodes {style}"] += 1
    return [f"{style}, model {subject.seed}: {problem}" for problem in problems], crew.counts


# ---------------------------------------------------------------- what is drawn


def _drawn_episode(rng: random.Random, ordering: Ordering | None, seed: str) -> Episode:
    jitter = {}
    if rng.random() < 0.6:
        most = rng.choice([20, 200, 1000])
        jitter = {name: most for name in _LATENCIES if rng.random() < 0.6}
    chances = {}
    if rng.random() < 0.5:
        rarity = rng.choice([0.002, 0.01, 0.05])
        chances = {name: rarity for name in _CHANCES if rng.random() < 0.4}
        if "lose_device_at" in chances:
            chances["lose_device_at"] = rarity / 4
    return Episode(
        ordering=ordering,
        chances=chances,
        jitter=jitter,
        direct=rng.choice(["", "source", "target"]),
        seed=seed,
    )


class _Opener:
    """Opens sessions of one subject, each with other providers, options and faults."""

    def __init__(self, rng: random.Random, episode: Episode, subject: Any, folder: str) -> None:
        self._rng = random.Random(rng.random())
        self._episode = episode
        self._subject = subject
        self._folder = folder
        self._cached = rng.random() < 0.3

    def __call__(self) -> Opened:
        rng = self._rng
        excuses = {_CHANCES[name] for name in self._episode.chances}
        providers = []
        for device in rng.sample(DEVICE_IDS, rng.choice([1, 2, 2, 2])):
            options: dict[str, Any] = {"skip": self._some(0.4)}
            options["overlap"] = rng.random() < 0.7
            options["pinned"] = rng.random() < 0.7
            if rng.random() < 0.1:
                options["pinned_capacity"] = rng.choice([64, 1024, 16384])
                excuses.add(AllocationError)
            if rng.random() < 0.15:
                options["capacity"] = rng.choice([2048, 8192, 32768])
                excuses.add(AllocationError)
            if rng.random() < 0.2:
                options["fail_compile"] = self._some(0.1)
            for name in ("fail_capability", "fail_export", "fail_import"):
                options[name] = rng.random() < 0.05
            if not self._episode.chances and rng.random() < 0.15:
                name = rng.choice(list(_CHANCES))
                options[name] = rng.randrange(1, 40)
                excuses.add(_CHANCES[name])
            providers.append(self._episode.device(device, **options))
        host = self._episode.host(skip=self._some(0.3))
        if rng.random() < 0.5:
            providers.insert(rng.randrange(len(providers) + 1), host)
        settings = quiet_options()
        settings.graph_optimization_level = rng.choice([0, 1, 2, 99])
        settings.cache_dir = self._folder if self._cached else None
        session = InferenceSession(self._subject.model, settings, providers=[*providers, "cpu"])
        return Opened(session, tuple(excuses))

    def _some(self, share: float) -> list[str]:
        return [name for name in _OPERATORS if self._rng.random() < share]


# ---------------------------------------------------------------- living through it


def _live(rng: random.Random, crew: Crew, style: str) -> None:
    crew.open(rng.choice([1, 2, 3]))
    own = random.Random(rng.random())
    threads = [
        threading.Thread(
            target=crew.work,
            args=(random.Random(rng.random()), rng.randrange(3, 10)),
            name=f"runner {number}",
            daemon=True,
        )
        for number in range(rng.choice([1, 2, 3, 4]))
    ]
    for thread in threads:
        thread.start()
    if style == "interrupted":
        with Interrupter(rng.random()) as interrupter:
            crew.work(own, own.randrange(3, 10), interrupter)
        crew.counts["interrupts"] += interrupter.count
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        crew.problems.append(f"threads hang for more than {_PATIENCE_SECONDS:g} s")
        return
    if rng.random() < 0.5:
        crew.look_at_kept()
    crew.look_at_lent()
    crew.close()
    crew.look_at_kept()


# ---------------------------------------------------------------- what is left


def _traces() -> tuple[set[int], int]:
    """The threads that there are, and how many file descriptors."""
    alive = {thread.ident or 0 for thread in threading.enumerate()}
    folder = Path("/proc/self/fd")
    return alive, len(list(folder.iterdir())) if folder.exists() else 0


def _what_is_left(crew: Crew, before: tuple[set[int], int], style: str) -> list[str]:
    crew.forget()
    gc.collect()
    bury()
    crew.episode.close_devices_of_values()
    found = []
    for provider in crew.episode.opened:
        stats = provider.allocator.stats()
        if style == "interrupted":
            # What is made when the interrupt comes, and has no owner yet, is lost until the device
            # is closed; whoever would close it is among that.
            crew.counts["bytes lost by interrupts"] += stats.in_use_bytes
            crew.counts["devices left open by interrupts"] += not provider.closed
            provider.close()
        elif not provider.closed:
            found.append(f"{provider.memory} is still open")
        elif stats.in_use_bytes:
            found.append(f"{stats.in_use_bytes} bytes of {provider.memory} are still in use")
        if stats.pinned_bytes and style == "interrupted":
            crew.counts["bytes lost by interrupts"] += stats.pinned_bytes
        elif stats.pinned_bytes:
            found.append(f"{stats.pinned_bytes} bytes are still pinned for {provider.memory}")
    deadline = time.monotonic() + _SETTLING_SECONDS
    while (left := _more(before)) and time.monotonic() < deadline:
        time.sleep(0.002)
    return found + left


def _more(before: tuple[set[int], int]) -> list[str]:
    alive, descriptors = before
    found = [
        f"thread {thread.name!r} is still there"
        for thread in threading.enumerate()
        if (thread.ident or 0) not in alive
    ]
    if (now := _traces()[1]) > descriptors:
        found.append(f"{now - descriptors} file descriptors are still open")
    return found


@contextlib.contextmanager
def _nothing_unheard() -> Iterator[list[str]]:
    """Collects what is otherwise only printed: warnings, log lines, exceptions nobody can catch."""
    problems: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            problems.append(f"log: {record.getMessage()}")

    handler = Handler(logging.WARNING)
    logger = logging.getLogger("ep_core")
    unraisable, in_thread = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda told: problems.append(
        f"unraisable in {told.object!r}: {told.exc_value!r}"
    )
    threading.excepthook = lambda told: problems.append(
        f"thread {told.thread.name if told.thread else '?'} died of {told.exc_value!r}"
    )
    logger.addHandler(handler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            yield problems
        finally:
            sys.unraisablehook, threading.excepthook = unraisable, in_thread
            logger.removeHandler(handler)
