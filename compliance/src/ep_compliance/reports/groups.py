"""Verdicts by group: the first word of their ids, such as `matrix` or `memory`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ep_compliance.running.outcomes import Outcome, Verdict

__all__ = ["Group", "groups_of"]


@dataclass(frozen=True, slots=True)
class Group:
    """What came of one group.

    Attributes:
        counts: number of verdicts by outcome; those that are 0 are left out.
        seconds: of all its jobs together, whichever worker did them.
        slowest: id of the job that took longest.
    """

    name: str
    counts: Mapping[Outcome, int]
    seconds: float
    slowest: str

    @property
    def total(self) -> int:
        """Number of verdicts."""
        return sum(self.counts.values())

    @property
    def record(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "name": self.name,
            "counts": {kind.value: self.counts[kind] for kind in Outcome if kind in self.counts},
            "seconds": round(self.seconds, 3),
            "slowest": self.slowest,
        }


def groups_of(verdicts: Iterable[Verdict]) -> list[Group]:
    """Return the groups, those that took longest first."""
    by_name: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_name.setdefault(verdict.case_id.partition("/")[0], []).append(verdict)
    groups = [
        Group(
            name,
            Counter(verdict.outcome for verdict in members),
            sum(verdict.seconds for verdict in members),
            max(members, key=lambda verdict: verdict.seconds).case_id,
        )
        for name, members in by_name.items()
    ]
    return sorted(groups, key=lambda group: (-group.seconds, group.name))
