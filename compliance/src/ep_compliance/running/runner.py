"""Runs jobs in worker processes: in parallel, each with a time limit, at the cost of one job each.

A worker that dies or hangs is replaced. Results don't depend on the number of workers: they come
back in the order of the jobs, and a worker opens its provider afresh after every failure.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from ep_compliance.cases.case import Level
from ep_compliance.checks import Check
from ep_compliance.oracle.overrides import Override
from ep_compliance.running.jobs import Job, Target
from ep_compliance.running.keeper import Keeper
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.contracts import Numerics

__all__ = ["CASE_SECONDS", "CHECK_SECONDS", "Run", "run_jobs"]

CASE_SECONDS = 60.0
"""Time limit of a case: a small model, run four times, and a slow oracle."""

CHECK_SECONDS = 180.0
"""Time limit of a check; the longest runs a model a thousand times."""

SOAK_SECONDS = 1800.0
"""Time limit of a job of the level `soak`, which takes minutes."""

_POLL_SECONDS = 0.05


def run_jobs(
    jobs: Sequence[Job],
    target: Target,
    *,
    workers: int = 1,
    limits: tuple[float, float] = (CASE_SECONDS, CHECK_SECONDS),
    known: Mapping[str, Verdict] | None = None,
    overrides: Mapping[str, Override] | None = None,
    on_verdict: Callable[[Verdict], None] = lambda verdict: None,
    on_open: Callable[[Numerics], None] = lambda numerics: None,
) -> list[Verdict]:
    """Do every job that has no verdict yet.

    Args:
        limits: seconds for a case and for a check.
        known: verdicts by job id, of an earlier run that is resumed.
        overrides: in force, by case id.
        on_verdict: called on the caller's thread, in whatever order jobs end.
        on_open: called on the caller's thread before the first verdict of this run, with what the
            open provider declares about its arithmetic.

    Returns:
        One verdict per job, in the order of the jobs; NOT_RUN where no worker could be started.
    """
    known = known or {}
    verdicts: dict[str, Verdict] = {
        job.id: known[job.id]
        for job in jobs
        if job.id in known and known[job.id].outcome is not Outcome.NOT_RUN
    }
    waiting = [job for job in jobs if job.id not in verdicts]
    with contextlib.closing(Run(target, limits, overrides)) as run:
        run.add(*waiting)
        run.finish()
        run.start(min(workers, len(waiting)))
        opened = False
        for verdict in iter(run.next_verdict, None):
            if run.numerics is not None and not opened:
                opened = True
                on_open(run.numerics)
            verdicts[verdict.case_id] = verdict
            on_verdict(verdict)
    for job in jobs:
        if job.id not in verdicts:
            verdicts[job.id] = Verdict(job.id, Outcome.NOT_RUN, run.problem)
    return [verdicts[job.id] for job in jobs]


class Run:
    """Jobs to do, threads that each look after one worker, and their results.

    For callers who fetch verdicts one by one, or don't know all jobs beforehand; the others use
    `run_jobs`. All methods are for one thread.

    Attributes:
        problem: why jobs weren't run, if any weren't.
        numerics: what the provider declares about its arithmetic, once a worker has opened it.
    """

    def __init__(
        self,
        target: Target,
        limits: tuple[float, float] = (CASE_SECONDS, CHECK_SECONDS),
        overrides: Mapping[str, Override] | None = None,
    ) -> None:
        self.problem = ""
        self.numerics: Numerics | None = None
        self._overrides = overrides or {}
        self._target = target
        self._limits = limits
        # None stands at the end, and stays there for all threads to find.
        self._waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Verdict | None] = queue.SimpleQueue()
        self._keepers: list[Keeper] = []
        self._threads: list[threading.Thread] = []

    def add(self, *jobs: Job) -> None:
        """Hand in jobs; they are begun in this order."""
        for job in jobs:
            self._waiting.put(job)

    def finish(self) -> None:
        """Say that there will be no more jobs, so that workers end when all are done."""
        self._waiting.put(None)

    def start(self, workers: int) -> None:
        """Start the threads."""
        for _ in range(workers):
            keeper = Keeper(self._target)
            thread = threading.Thread(target=self._keep, args=(keeper,), daemon=True)
            self._keepers.append(keeper)
            self._threads.append(thread)
            thread.start()

    def next_verdict(self) -> Verdict | None:
        """Wait for a verdict, ending jobs that are over their time meanwhile.

        Returns:
            None if all jobs are done, or when no worker is left to do them; see `problem`.
        """
        while True:
            with contextlib.suppress(queue.Empty):
                return self._results.get(timeout=_POLL_SECONDS)
            for keeper in self._keepers:
                keeper.end_if_late()
            if not any(thread.is_alive() for thread in self._threads) and self._results.empty():
                return None

    def close(self) -> None:
        """End all workers."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self.finish()
        for keeper in self._keepers:
            keeper.stop()
        for thread in self._threads:
            thread.join()

    def _keep(self, keeper: Keeper) -> None:
        """One thread: give jobs to one worker after the other."""
        try:
            while True:
                problem = keeper.ready()
                if problem:
                    self.problem = problem
                    return
                self.numerics = keeper.numerics
                job = self._waiting.get()
                if job is None:
                    self.finish()
                    return
                case_seconds, check_seconds = self._limits
                limit = check_seconds if isinstance(job, Check) else case_seconds
                if isinstance(job, Check) and job.level is Level.SOAK:
                    limit = max(limit, SOAK_SECONDS)
                verdict = keeper.do(job, limit, self._overrides.get(job.id))
                if verdict is None:
                    return
                self._results.put(verdict)
        finally:
            keeper.close()
