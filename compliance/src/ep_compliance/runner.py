"""Runs jobs in worker processes: in parallel, each with a time limit, at the cost of one job each.

A worker that dies or hangs is replaced. Results don't depend on the number of workers: they come
back in the order of the jobs, and a worker opens its provider afresh after every failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from ep_compliance.checks import Check
from ep_compliance.jobs import Job, Target
from ep_compliance.outcomes import Outcome, Verdict
from ep_compliance.worker import write_frame

__all__ = ["CASE_SECONDS", "CHECK_SECONDS", "run_jobs"]

CASE_SECONDS = 60.0
"""Time limit of a case: a small model, run four times, and a slow oracle."""

CHECK_SECONDS = 180.0
"""Time limit of a check; the longest runs a model a thousand times."""

_START_SECONDS = 120.0
_POLL_SECONDS = 0.05
_STARTS = 2
"""So many starts in a row may fail before a run is given up."""

# The parent's sys.path is set before anything but the standard library is imported.
_BOOT = (
    "import json, sys\n"
    "request = json.loads(sys.argv[1])\n"
    "sys.path[:] = request['path']\n"
    "from ep_compliance import worker\n"
    "worker.main(request)\n"
)


def run_jobs(
    jobs: Sequence[Job],
    target: Target,
    *,
    workers: int = 1,
    limits: tuple[float, float] = (CASE_SECONDS, CHECK_SECONDS),
    known: Mapping[str, Verdict] | None = None,
    on_verdict: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """Do every job that has no verdict yet.

    Args:
        limits: seconds for a case and for a check.
        known: verdicts by job id, of an earlier run that is resumed.
        on_verdict: called on the caller's thread, in whatever order jobs end.

    Returns:
        One verdict per job, in the order of the jobs; NOT_RUN where no worker could be started.
    """
    known = known or {}
    verdicts: dict[str, Verdict] = {
        job.id: known[job.id]
        for job in jobs
        if job.id in known and known[job.id].outcome is not Outcome.NOT_RUN
    }
    run = _Run([job for job in jobs if job.id not in verdicts], target, limits)
    with contextlib.closing(run):
        run.start(workers)
        for verdict in iter(run.next_verdict, None):
            verdicts[verdict.case_id] = verdict
            on_verdict(verdict)
    for job in jobs:
        if job.id not in verdicts:
            verdicts[job.id] = Verdict(job.id, Outcome.NOT_RUN, run.problem)
    return [verdicts[job.id] for job in jobs]


class _Run:
    """Jobs to do, threads that each look after one worker, and their results.

    Attributes:
        problem: why jobs weren't run, if any weren't.
    """

    def __init__(self, jobs: Sequence[Job], target: Target, limits: tuple[float, float]) -> None:
        self.problem = ""
        self._target = target
        self._limits = limits
        self._waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            self._waiting.put(job)
        self._count = len(jobs)
        self._results: queue.SimpleQueue[Verdict | None] = queue.SimpleQueue()
        self._keepers: list[_Keeper] = []
        self._threads: list[threading.Thread] = []

    def start(self, workers: int) -> None:
        """Start the threads; no more than there are jobs."""
        for _ in range(min(workers, self._count)):
            keeper = _Keeper(self._target)
            thread = threading.Thread(target=self._keep, args=(keeper,), daemon=True)
            self._keepers.append(keeper)
            self._threads.append(thread)
            thread.start()

    def next_verdict(self) -> Verdict | None:
        """Wait for a verdict, ending jobs that are over their time meanwhile; None at the end."""
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
        for keeper in self._keepers:
            keeper.stop()
        for thread in self._threads:
            thread.join()

    def _keep(self, keeper: _Keeper) -> None:
        """One thread: give jobs to one worker after the other."""
        try:
            while True:
                problem = keeper.ready()
                if problem:
                    self.problem = problem
                    return
                try:
                    job = self._waiting.get_nowait()
                except queue.Empty:
                    return
                case_seconds, check_seconds = self._limits
                limit = check_seconds if isinstance(job, Check) else case_seconds
                verdict = keeper.do(job, limit)
                if verdict is None:
                    return
                self._results.put(verdict)
        finally:
            keeper.close()


class _Keeper:
    """Looks after one worker process at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._late = False
        self._stopped = False

    def ready(self) -> str:
        """Have a worker that is ready; returns why there can't be one, or nothing."""
        problem = ""
        for _ in range(_STARTS):
            if self._process is not None:
                return ""
            problem = self._start()
            if not problem:
                return ""
        return problem

    def do(self, job: Job, limit: float) -> Verdict | None:
        """Let the worker do a job; None if the run was stopped meanwhile."""
        assert self._process is not None
        assert self._process.stdin is not None
        began = time.monotonic()
        self._arm(limit)
        with contextlib.suppress(OSError):
            write_frame(self._process.stdin, job.id if isinstance(job, Check) else job)
        answer = self._answer()
        self._disarm()
        seconds = time.monotonic() - began
        if answer is not None:
            # It may have been ended as late just after it had answered.
            if self._late or not answer["fit"]:
                self._discard()
            return Verdict(
                job.id, Outcome(answer["outcome"]), answer["reason"], round(answer["seconds"], 6)
            )
        if self._stopped:
            return None
        if self._late:
            self._discard()
            return Verdict(job.id, Outcome.TIMEOUT, f"no answer within {limit:g} s", seconds)
        return Verdict(job.id, Outcome.CRASH, self._discard(), seconds)

    def end_if_late(self) -> None:
        """End the process if its deadline has passed; called from the caller's thread."""
        with self._lock:
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._late = True
                self._kill()

    def stop(self) -> None:
        """End the process; the thread that waits for its answer goes on."""
        with self._lock:
            self._stopped = True
            self._kill()

    def close(self) -> None:
        """End the process and wait for it; called from the keeper's own thread."""
        self.stop()
        if self._process is not None:
            self._discard()

    def _start(self) -> str:
        request = {
            "path": [item for item in sys.path if isinstance(item, str)],
            "provider": self._target.provider,
            "device": self._target.device,
            "options": dict(self._target.options),
        }
        flags = ["-I"] if sys.flags.isolated else ["-P"]
        words = tempfile.TemporaryFile()  # noqa: SIM115 - closed when its last words are read
        with self._lock:
            if self._stopped:
                words.close()
                return "the run was stopped"
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", _BOOT, json.dumps(request)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                # The provider has been probed; a worker is a child process already.
                env={**os.environ, "EP_PROBE_TIMEOUT": "0"},
                start_new_session=True,
            )
            self._words = words
        self._arm(_START_SECONDS)
        answer = self._answer()
        self._disarm()
        if answer is not None and answer["ready"]:
            return ""
        end = self._discard()
        if answer is None:
            return f"a worker process doesn't start: {end}"
        return f"the provider can't be opened: {answer['reason']}"

    def _answer(self) -> dict[str, Any] | None:
        """The worker's next answer; None if it ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _arm(self, seconds: float) -> None:
        with self._lock:
            self._late = False
            self._deadline = time.monotonic() + seconds

    def _disarm(self) -> None:
        with self._lock:
            self._deadline = None

    def _kill(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _discard(self) -> str:
        """End the process and forget it; returns how it ended."""
        process = self._process
        assert process is not None
        # One that has closed its output is about to end by itself, and how is worth knowing.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)
        with self._lock:
            self._kill()
            code = process.wait()
            self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return _how_it_ended(code) + self._last_words()

    def _last_words(self) -> str:
        assert self._words is not None
        with self._words as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 2000))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return f" (its last words: {lines[-1][:300]})" if lines else ""


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        return f"the process crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"the process crashed with signal {-code}"
