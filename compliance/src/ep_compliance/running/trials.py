"""Judges single cases one after the other in a worker process that stays, as shrinking needs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from ep_compliance.cases.case import Case, Level
from ep_compliance.running.jobs import Target
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.runner import Run

__all__ = ["trials"]


@contextlib.contextmanager
def trials(target: Target, seconds: float) -> Iterator[Callable[[Case], Verdict]]:
    """Give a function that judges a case; a crash or a hang is a verdict like any other.

    Args:
        seconds: time limit of each case.
    """
    with contextlib.closing(Run(target, (seconds, seconds))) as run:
        run.start(1)

        def judge(case: Case) -> Verdict:
            # The level decides on the time limit.
            run.add(dataclasses.replace(case, level=Level.FULL))
            verdict = run.next_verdict()
            return verdict or Verdict(case.id, Outcome.NOT_RUN, run.problem)

        yield judge
