"""Looks after one worker process at a time: starts it, gives it jobs, ends and replaces it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any

from ep_compliance.checks import Check
from ep_compliance.oracle.overrides import Override
from ep_compliance.running.jobs import Job, Target
from ep_compliance.running.outcomes import Outcome, Verdict, verdict_of
from ep_compliance.running.worker import write_frame
from ep_core.contracts import Numerics

__all__ = ["Keeper"]

_START_SECONDS = 120.0
_STARTS = 2
"""So many starts in a row may fail before a run is given up."""

# The parent's sys.path is set before anything but the standard library is imported.
_BOOT = (
    "import json, sys\n"
    "request = json.loads(sys.argv[1])\n"
    "sys.path[:] = request['path']\n"
    "from ep_compliance.running import worker\n"
    "worker.main(request)\n"
)


class Keeper:
    """Looks after one worker process at a time.

    Attributes:
        numerics: what the provider of the last worker declared.
    """

    def __init__(self, target: Target) -> None:
        self.numerics: Numerics | None = None
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

    def do(self, job: Job, limit: float, override: Override | None = None) -> Verdict | None:
        """Let the worker do a job; None if the run was stopped meanwhile."""
        assert self._process is not None
        assert self._process.stdin is not None
        began = time.monotonic()
        self._arm(limit)
        with contextlib.suppress(OSError):
            write_frame(self._process.stdin, job.id if isinstance(job, Check) else job, override)
        answer = self._answer()
        self._disarm()
        seconds = time.monotonic() - began
        if answer is not None:
            verdict = verdict_of(answer["verdict"])
            if verdict.case_id != job.id:
                self._discard()
                return Verdict(job.id, Outcome.CRASH, "the process answers out of turn", seconds)
            # It may have been ended as late just after it had answered.
            if self._late or not answer["fit"]:
                self._discard()
            return verdict
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
            self.numerics = Numerics(**answer["numerics"])
            return ""
        end = self._discard()
        if answer is None:
            return f"a worker process doesn't start: {end}"
        return f"the provider can't be opened: {answer['reason']}"

    def _answer(self) -> dict[str, Any] | None:
        """The worker's next answer; None if it ended, or was ended because it makes no sense."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not answer.keys() & {"ready", "verdict"}:
            # Somebody else writes to the pipe; nothing that comes after can be trusted.
            with self._lock:
                self._kill()
            return None
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
