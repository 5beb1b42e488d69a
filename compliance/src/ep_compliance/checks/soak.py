"""Soak: the same for a long time, with a fine measure of what is left behind.

Minutes, not seconds; run by `--level soak` only. A leak too slow for `order/thousand-cycles` shows
here. A simulated device takes four to eight minutes for all of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from ep_compliance.cases.case import Level
from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.crowd import on_threads
from ep_compliance.driving.growth import check_growth
from ep_compliance.driving.partners.mixed import Mixed, numbers, right_answer
from ep_compliance.driving.partners.party import DEVICE_PARTNER, HOST_PARTNER, THE_TESTED, Party
from ep_core.contracts import Value
from ep_core.errors import EpError, RunCancelledError
from ep_core.options import RunOptions

CYCLES = 5000
"""How often a session is opened and closed, and how often a run is made to fail."""

STORMS = 500
"""How often threads come together on one session."""

_THREADS = 4
_RUNS = 25
"""Runs of one thread in one storm."""

BYTES_PER_CYCLE = 24
BYTES_PER_STORM = 240
"""Left on average, as Python counts. What fills up once, some 40 kB in all, stays below it."""

_ALL = (THE_TESTED, HOST_PARTNER, DEVICE_PARTNER)
_ROUND = """
g (float[N,N] x) => (float[N,N] y) {
    a = T(x, x)  b = P(a, x)  c = T(b, a)  d = D(c, b)  y = T(d, c)
}"""


@check("soak/sessions", level=Level.SOAK)
def sessions(bench: Bench) -> None:
    """Thousands of sessions that are opened, run and closed leave nothing behind."""
    with Party(bench) as party:
        model = party.model(_ROUND)
        feeds = numbers(model, 1)
        right = right_answer(model, feeds)

        def cycle() -> None:
            with party.open(model, _ALL) as mixed:
                mixed.check_against(feeds, right, "a session of thousands")

        check_growth(None, cycle, CYCLES, "sessions", BYTES_PER_CYCLE)


@check("soak/runs", level=Level.SOAK)
def runs(bench: Bench) -> None:
    """Threads that run one session for minutes get right answers, and leave nothing behind."""
    with Party(bench) as party:
        model = party.model(_ROUND)
        feeds = [numbers(model, seed, 3 + seed) for seed in range(_THREADS)]
        right = [right_answer(model, feed) for feed in feeds]
        with party.open(model, _ALL) as mixed:

            def work(number: int) -> None:
                for turn in range(_RUNS):
                    which = (number + turn) % _THREADS
                    mixed.check_against(feeds[which], right[which], "a long run on many threads")

            def storm() -> None:
                on_threads(work, _THREADS)

            storm()
            mixed.note_memory()
            check_growth(None, storm, STORMS, f"storms of {_THREADS} threads", BYTES_PER_STORM)
            mixed.check_memory("a long run on many threads")


@check("soak/faults", level=Level.SOAK)
def faults(bench: Bench) -> None:
    """Thousands of runs that are cancelled or fail halfway leave nothing behind."""
    with Party(bench) as party:
        model = party.model(_ROUND)
        feeds = numbers(model, 1)
        right = right_answer(model, feeds)
        with party.open(model, _ALL) as mixed:
            kinds = itertools.cycle((_cancelled, _failing))

            def cycle() -> None:
                next(kinds)(party, mixed, feeds)
                mixed.check_against(feeds, right, "a run after one that failed")

            cycle()
            mixed.note_memory()
            check_growth(None, cycle, CYCLES, "runs that fail", BYTES_PER_CYCLE)
            mixed.check_memory("thousands of runs that fail")


def _cancelled(party: Party, mixed: Mixed, feeds: Mapping[str, Value]) -> None:
    options = RunOptions()
    with party.interrupted(lambda: setattr(options, "terminate", True)):
        mixed.check_ends(feeds, RunCancelledError, "a cancelled run", options)


def _failing(party: Party, mixed: Mixed, feeds: Mapping[str, Value]) -> None:
    with party.interrupted(_fail):
        mixed.check_ends(feeds, EpError, "a run in which a partner raises")


def _fail() -> None:
    raise ValueError("a partner fails as told")
