"""What can come of a case."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Outcome", "Verdict"]


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
        seconds: wall time of the case in its worker.
    """

    case_id: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
