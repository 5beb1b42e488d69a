"""Verdicts on disk, one line of JSON each, so that a run which was cut short can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType

from ep_compliance.outcomes import Outcome, Verdict

__all__ = ["Journal", "read_journal"]


class Journal:
    """Appends verdicts to a file as they come.

    Args:
        path: of the file; its folder exists.
        key: what the verdicts hold for: jobs, provider, device, options.
        resume: keep what is there under the same key; otherwise begin anew.
    """

    def __init__(self, path: Path, key: str, *, resume: bool) -> None:
        self.known = read_journal(path, key) if resume else {}
        # Written anew, so that a line cut in half by a crash doesn't spoil the next one.
        self._file = path.open("w", encoding="utf-8", buffering=1)
        print(json.dumps({"key": key}), file=self._file)
        for verdict in self.known.values():
            self.add(verdict)

    def add(self, verdict: Verdict) -> None:
        """Write one verdict."""
        line = {
            "id": verdict.case_id,
            "outcome": verdict.outcome.value,
            "reason": verdict.reason,
            "seconds": verdict.seconds,
        }
        print(json.dumps(line), file=self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read_journal(path: Path, key: str) -> dict[str, Verdict]:
    """The verdicts in a file, by job id; none if it is for something else or isn't there."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        if not lines or json.loads(lines[0]).get("key") != key:
            return {}
    except (OSError, ValueError, AttributeError):
        return {}
    found = {}
    for line in lines[1:]:
        try:
            data = json.loads(line)
            outcome = Outcome(data["outcome"])
            verdict = Verdict(data["id"], outcome, str(data["reason"]), float(data["seconds"]))
        except (ValueError, KeyError, TypeError):
            continue
        if outcome is not Outcome.NOT_RUN:
            found[verdict.case_id] = verdict
    return found
