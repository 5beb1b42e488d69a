"""Sessions with partners under stress: threads, cancelled and failing runs, opening and closing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

import onnx

from ep_compliance.checks import check
from ep_compliance.checks.placement import LOOP
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.crowd import on_threads
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.partners.mixed import Mixed, check_near, numbers, right_answer
from ep_compliance.driving.partners.party import DEVICE_PARTNER, HOST_PARTNER, THE_TESTED, Party
from ep_core.contracts import Value
from ep_core.errors import EpError, RunCancelledError
from ep_core.options import RunOptions

_ALL = (THE_TESTED, HOST_PARTNER, DEVICE_PARTNER)
_SLOW = {"kernel_latency_us": 200}

_ROUND = """
g (float[N,N] x) => (float[N,N] y, float[N,N] d) {
    a = T(x, x)  b = P(a, x)  c = T(b, a)  d = D(c, b)  e = T(d, c)  f = P(e, x)  y = T(f, a)
}"""


def _party(bench: Bench) -> Party:
    """The provider is slow if it can be told to, so that there is time for things to go wrong."""
    return Party(bench, **(_SLOW if bench.declares(*_SLOW) else {}))


# ---------------------------------------------------------------- side by side


@check("session/threads")
def threads(bench: Bench) -> None:
    """Threads that share a session get the answers to their own inputs."""
    with _party(bench) as party:
        model = party.model(_ROUND)
        feeds = [numbers(model, seed, 3 + seed % 3) for seed in range(6)]
        right = [right_answer(model, feed) for feed in feeds]
        with party.open(model, _ALL, **_SLOW) as mixed:

            def work(number: int) -> None:
                for turn in range(12):
                    which = (number + turn) % len(feeds)
                    mixed.check_against(feeds[which], right[which], "threads on one session")

            work(0)
            mixed.note_memory()
            on_threads(work, 6)
            mixed.check_memory("running on many threads")


_LOOK_ALIKES = tuple(
    f"g (float[4,4] x) => (float[4,4] y) <float[4,4] k = {{{','.join([number] * 16)}}}> {body}"
    for number, body in (
        ("1", "{ a = T(x, k)  y = P(a, k) }"),
        ("3", "{ a = T(x, k)  y = P(a, k) }"),
        ("1", "{ a = T(x, k)  b = T(a, a)  y = P(b, k) }"),
    )
)
"""Models whose graphs, values, nodes and partitions have the same names."""


@check("session/look-alikes")
def look_alikes(bench: Bench) -> None:
    """Sessions whose partitions have equal names and other contents don't meet."""
    with Party(bench) as party:
        models = [party.model(text) for text in _LOOK_ALIKES]
        feeds = numbers(models[0], 1)
        for first, second in ((0, 1), (1, 2), (2, 0)):
            with party.open(models[first]) as one:
                one.check(feeds, "a session")
                with party.open(models[second]) as other:
                    other.check(feeds, "a session beside another one like it")
                    one.check(feeds, "a session after another one like it was opened")
                one.check(feeds, "a session after another one was closed")


@check("session/create-and-close")
def create_and_close(bench: Bench) -> None:
    """Sessions opened and closed on some threads don't disturb one that runs on another."""
    with Party(bench) as party:
        model = party.model(_ROUND)
        feeds = numbers(model, 1)
        right = right_answer(model, feeds)
        with party.open(model, _ALL) as lasting:

            def work(number: int) -> None:
                for _ in range(6):
                    if number == 0:
                        lasting.check_against(feeds, right, "a session while others come and go")
                        continue
                    with party.open(model, _ALL) as mixed:
                        mixed.check_against(feeds, right, "one of several sessions")

            on_threads(work, 5)


# ---------------------------------------------------------------- cancelled


@check("session/cancelled")
def cancelled(bench: Bench) -> None:
    """A run that another thread cancels ends with RunCancelledError, and costs nothing else."""
    with _party(bench) as party:
        model = party.model(_ROUND)
        with party.open(model, _ALL, **_SLOW) as mixed:
            feeds = numbers(model, 1)
            for number in (1, 2):
                _cancel(party, mixed, feeds, feeds, number)
        loop = party.model(LOOP)
        # What a loop carries has no fixed lengths, which not every provider takes.
        with contextlib.suppress(NotClaimed), party.open(loop) as mixed:
            feeds = numbers(loop, 1, trips=2, go=True)
            endless = numbers(loop, 1, trips=10**9, go=True)
            _cancel(party, mixed, feeds, endless, 5)


def _cancel(
    party: Party,
    mixed: Mixed,
    feeds: Mapping[str, Value],
    long: Mapping[str, Value],
    number: int,
) -> None:
    """Cancel a run on `long` when the host partner runs for the `number`th time."""
    mixed.check(feeds, "a run before any was cancelled")
    mixed.note_memory()
    options = RunOptions()
    turns = iter(range(1, number + 1))

    def on_host_run() -> None:
        if next(turns, 0) == number:
            thread = threading.Thread(target=setattr, args=(options, "terminate", True))
            thread.start()
            thread.join()

    with party.interrupted(on_host_run):
        mixed.check_ends(long, RunCancelledError, "a cancelled run", options)
    mixed.check_memory("a cancelled run")
    mixed.check(feeds, "a run after one was cancelled")


# ---------------------------------------------------------------- faults

_INJECTED = ("fail_allocation_at", "fail_copy_at", "fail_kernel_at", "lose_device_at")
_FATAL = "lose_device_at"


@check("session/partner-fails")
def partner_fails(bench: Bench) -> None:
    """A partner that fails in the middle of a plan costs that run only, or else the session."""
    with _party(bench) as party:
        model = party.model(_ROUND)
        with party.open(model, _ALL) as mixed:
            for number in (1, 2):
                _fail_on_host(party, mixed, numbers(model, 1), number)
        for option in _INJECTED:
            for number in (1, 2, 3):
                with party.open(model, _ALL, **{option: number}) as mixed:
                    _check_fault(mixed, model, f"a partner with {option}={number}", option)


def _fail_on_host(party: Party, mixed: Mixed, feeds: Mapping[str, Value], number: int) -> None:
    """Let the host partner raise when it runs for the `number`th time."""
    mixed.check(feeds, "a run before any failed")
    mixed.note_memory()
    turns = iter(range(1, number + 1))

    def on_host_run() -> None:
        if next(turns, 0) == number:
            raise ValueError("a partner fails as told")

    with party.interrupted(on_host_run):
        mixed.check_ends(feeds, EpError, "a run in which a partner raises")
    mixed.check_memory("a run in which a partner raised")
    mixed.check(feeds, "a run after one in which a partner raised")


def _check_fault(mixed: Mixed, model: onnx.ModelProto, what: str, option: str) -> None:
    """Run three times; one run fails, the others are right, unless the device is lost."""
    failed = 0
    for seed in (1, 2, 3):
        feeds = numbers(model, seed)
        try:
            got = mixed.run(feeds)
        except EpError:
            failed += 1
            continue
        except Exception as error:
            raise Broken(f"{what}: {text_of(error)}, expected an EpError") from error
        check_near(right_answer(model, feeds), got, what)
    if not failed:
        raise Broken(f"{what}: no run fails")
    if failed > 1 and option != _FATAL:
        raise Broken(f"{what}: {failed} of three runs fail, expected one: it doesn't recover")


@check("session/own-faults")
def own_faults(bench: Bench) -> None:
    """A failure of the provider itself between partners is told, and costs that run only."""
    options = [name for name in _INJECTED if bench.declares(name)]
    for option in options:
        for number in (2, 5):
            with Party(bench, **{option: number}) as party:
                _check_own(party, option, f"with {option}={number}")
    with Party(bench) as party:
        shapes = party.verb.arity == 2 and party.verb.symbolic
        if shapes:
            _check_wrong_shapes(party)
    if not options and not shapes:
        raise NotClaimed("has no options to fail by, and no operator whose shapes may clash")


def _check_own(party: Party, option: str, what: str) -> None:
    model = party.model(_ROUND)
    with party.open(model, _ALL) as mixed:
        _check_fault(mixed, model, what, option)


_CLASHING = """
g (float[N,N] x, float[M,M] z) => (float[N,N] y) { a = P(x, x)  b = T(a, z)  y = D(b, x) }
"""


def _check_wrong_shapes(party: Party) -> None:
    model = party.model(_CLASHING)
    with party.open(model, _ALL) as mixed:
        right = numbers(model, 1, 3)
        mixed.check(right, "a run with shapes that fit")
        mixed.note_memory()
        wrong: dict[str, Any] = {**right, "z": numbers(model, 1, 2)["z"]}
        mixed.check_ends(wrong, EpError, "a run with shapes that clash")
        mixed.check_memory("a run with shapes that clash")
        mixed.check(right, "a run after one with shapes that clash")
