"""A provider's estimates of cost beside what was measured. They are recorded and never judged.

Times on a busy machine say little one by one, so what counts are medians over many cases.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ep_compliance.cases.case import Case, Subject
from ep_compliance.running.jobs import Job
from ep_compliance.running.outcomes import Outcome, Verdict

__all__ = ["Estimates", "estimates_of", "first_type"]


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates for one operator with one type of first input.

    Attributes:
        operator: with its domain unless that is the default one.
        dtype: as a text, `any` for an operator without types.
        cases: how many were estimated and measured.
        predicted_seconds, measured_seconds: medians over the cases.
        ratio: median of predicted / measured; above 1 where the provider is faster than it says.
        lowest, highest: range of that ratio.
    """

    operator: str
    dtype: str
    cases: int
    predicted_seconds: float
    measured_seconds: float
    ratio: float
    lowest: float
    highest: float

    @property
    def record(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "operator": self.operator,
            "dtype": self.dtype,
            "cases": self.cases,
            "predicted_seconds": self.predicted_seconds,
            "measured_seconds": self.measured_seconds,
            "ratio": {"median": self.ratio, "lowest": self.lowest, "highest": self.highest},
        }


def estimates_of(pairs: Iterable[tuple[Job, Verdict]]) -> list[Estimates]:
    """Return the estimates by operator and type, in the order of their names.

    Cases that pass and are about one operator count; chains estimate several at once.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for job, verdict in pairs:
        if not isinstance(job, Case) or job.subject is None or verdict.outcome is not Outcome.PASS:
            continue
        if verdict.predicted_seconds is None or not verdict.run_seconds:
            continue
        subject = job.subject
        operator = f"{subject.domain}.{subject.op_type}" if subject.domain else subject.op_type
        key = (operator, first_type(subject))
        found.setdefault(key, []).append((verdict.predicted_seconds, verdict.run_seconds))
    return [_estimates(*key, times) for key, times in sorted(found.items())]


def _estimates(operator: str, dtype: str, times: list[tuple[float, float]]) -> Estimates:
    ratios = [predicted / measured for predicted, measured in times]
    return Estimates(
        operator,
        dtype,
        len(times),
        statistics.median(predicted for predicted, _ in times),
        statistics.median(measured for _, measured in times),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
    )


def first_type(subject: Subject) -> str:
    """The element type of the first type parameter, `any` for an operator without types."""
    return subject.dtypes[min(subject.dtypes)].text if subject.dtypes else "any"
