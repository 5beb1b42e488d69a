"""Verdicts on disk, one line of JSON each, so that a run which was cut short can be resumed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from ep_compliance.running.outcomes import Outcome, Verdict, verdict_of
from ep_core.contracts import Numerics

__all__ = ["Journal", "read_journal"]

_NUMERICS = "numerics"


class Journal:
    """Appends verdicts to a file as they come.

    Attributes:
        known: verdicts that were there, by job id.
        numerics: what the provider declares about its arithmetic; None as long as nobody told.

    Args:
        path: of the file; its folder exists.
        key: what the verdicts hold for: jobs, provider, device, options.
        resume: keep what is there under the same key; otherwise begin anew.
    """

    def __init__(self, path: Path, key: str, *, resume: bool) -> None:
        self.known = read_journal(path, key) if resume else {}
        self.numerics: Numerics | None = None
        numerics = _read_numerics(path, key) if resume else None
        # Written anew, so that a line cut in half by a crash doesn't spoil the next one.
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._write({"key": key})
        if numerics is not None:
            self.add_numerics(numerics)
        for verdict in self.known.values():
            self.add(verdict)

    def add(self, verdict: Verdict) -> None:
        """Write one verdict."""
        self._write(verdict.record)

    def add_numerics(self, numerics: Numerics) -> None:
        """Write what the provider declares about its arithmetic."""
        self.numerics = numerics
        self._write({_NUMERICS: dataclasses.asdict(numerics)})

    def _write(self, record: dict[str, Any]) -> None:
        print(json.dumps(record), file=self._file)

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
    found = {}
    for record in _records(path, key):
        try:
            verdict = verdict_of(record)
        except (ValueError, KeyError, TypeError):
            continue
        if verdict.outcome is not Outcome.NOT_RUN:
            found[verdict.case_id] = verdict
    return found


def _read_numerics(path: Path, key: str) -> Numerics | None:
    for record in _records(path, key):
        if isinstance(record, dict) and _NUMERICS in record:
            try:
                return Numerics(**record[_NUMERICS])
            except TypeError:
                continue
    return None


def _records(path: Path, key: str) -> Iterator[Any]:
    """What the lines after the first hold; lines that were cut are left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not lines or json.loads(lines[0]).get("key") != key:
            return
    except (OSError, ValueError, AttributeError):
        return
    for line in lines[1:]:
        try:
            yield json.loads(line)
        except ValueError:
            continue
