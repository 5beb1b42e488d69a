"""What can come of a case."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Outcome", "Verdict", "verdict_of"]


class Outcome(enum.Enum):
    """How a case ended.

    Attributes:
        PASS: the provider itself computed it, and rightly.
        FAIL: a wrong answer, an error after a claim, or a broken contract.
        UNSUPPORTED: the provider doesn't claim it; says nothing against it.
        WAIVED: it fails and a valid waiver covers it.
        NOT_RUN: it wasn't tried; the run is incomplete.
        CRASH: the worker process died.
        TIMEOUT: no answer within the time limit.
        QUARANTINED: the oracles disagree about the right answer; nobody is blamed.
    """

    PASS = "pass"
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    WAIVED = "waived"
    NOT_RUN = "not run"
    CRASH = "crash"
    TIMEOUT = "timeout"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A case's outcome.

    Attributes:
        reason: for a person; empty for a pass.
        seconds: wall time of the case in its worker, oracle and judge included.
        overridden: it passes, but only within its override.
        run_seconds: median of the runs after the first, from the call until the outputs are there;
            None if it didn't get that far.
        predicted_seconds: what the provider estimated for that; None if it gave no estimate.
        peak_bytes: peak memory of the worker until now; None where it can't be told.
    """

    case_id: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    overridden: bool = False
    run_seconds: float | None = None
    predicted_seconds: float | None = None
    peak_bytes: int | None = None

    @property
    def record(self) -> dict[str, Any]:
        """As JSON data; what has its default and says nothing is left out."""
        record: dict[str, Any] = {"id": self.case_id, "outcome": self.outcome.value}
        record |= {"reason": self.reason, "seconds": self.seconds}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in _OPTIONAL and value != item.default:
                record[item.name] = value
        return record


_OPTIONAL = ("overridden", "run_seconds", "predicted_seconds", "peak_bytes")


def verdict_of(record: Mapping[str, Any]) -> Verdict:
    """The verdict that a record holds.

    Raises:
        KeyError, ValueError, TypeError: it isn't one.
    """
    more = {name: record[name] for name in _OPTIONAL if name in record}
    outcome, reason, seconds = record["outcome"], str(record["reason"]), float(record["seconds"])
    return Verdict(record["id"], Outcome(outcome), reason, seconds, **more)
