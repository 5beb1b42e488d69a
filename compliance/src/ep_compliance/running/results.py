"""The results of one run, and what follows from them: complete, passed, which operators."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ep_compliance.cases.case import Case, Level
from ep_compliance.certificates.rows import Row, granted_rows
from ep_compliance.oracle.overrides import Override
from ep_compliance.running.jobs import Job, Target, is_must_pass
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.waivers import Waiver
from ep_core.contracts import Numerics
from ep_core.types import DeviceInfo

__all__ = ["BAD", "Results"]

BAD = (Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT)
"""Outcomes that speak against a provider."""


@dataclass(frozen=True, eq=False)
class Results:
    """One run.

    Attributes:
        jobs, verdicts: in the same order.
        cases_hash: of the jobs, see `jobs_hash`.
        problems: what is wrong with the waivers and the overrides.
        seconds: wall time of the run.
        date: the day of the run, as `2030-12-31`.
        overrides: those that were given.
        numerics: what the provider declares about its arithmetic; None if it was never opened.
        workers: how many processes the provider ran in.
        peak_bytes: peak memory of the kit's own process; None where it can't be told.
    """

    target: Target
    device: DeviceInfo
    level: Level
    jobs: Sequence[Job]
    verdicts: Sequence[Verdict]
    cases_hash: str
    kit_version: str
    waivers: Sequence[Waiver] = ()
    problems: Sequence[str] = ()
    seconds: float = 0.0
    date: str = ""
    overrides: Sequence[Override] = ()
    numerics: Numerics | None = None
    workers: int = 1
    peak_bytes: int | None = None

    @cached_property
    def counts(self) -> Mapping[Outcome, int]:
        """Number of verdicts by outcome."""
        return Counter(verdict.outcome for verdict in self.verdicts)

    @property
    def pairs(self) -> Iterator[tuple[Job, Verdict]]:
        """Jobs with their verdicts."""
        return zip(self.jobs, self.verdicts, strict=True)

    @cached_property
    def failures(self) -> tuple[tuple[Job, Verdict], ...]:
        """What speaks against the provider."""
        return tuple(pair for pair in self.pairs if pair[1].outcome in BAD)

    @cached_property
    def blockers(self) -> tuple[str, ...]:
        """Why no certificate can be given, one sentence each."""
        found = list(self.problems)
        if missing := self.counts.get(Outcome.NOT_RUN, 0):
            reason = next(v.reason for v in self.verdicts if v.outcome is Outcome.NOT_RUN)
            found.append(f"the run is incomplete: {missing} jobs were not run ({reason})")
        found += [
            f"the contract check {job.id!r} fails: {verdict.reason}"
            for job, verdict in self.failures
            if not isinstance(job, Case) and is_must_pass(job)
        ]
        return tuple(found)

    @cached_property
    def overridden(self) -> frozenset[str]:
        """Ids of the cases that pass only within their overrides."""
        return frozenset(verdict.case_id for verdict in self.verdicts if verdict.overridden)

    @cached_property
    def worker_peak_bytes(self) -> int | None:
        """Peak memory of the worker that needed most; None where it can't be told."""
        return max((v.peak_bytes for v in self.verdicts if v.peak_bytes is not None), default=None)

    @cached_property
    def rows(self) -> Sequence[Row]:
        """What the cases have shown, whether or not the run earns a certificate."""
        return granted_rows(self.pairs)

    @property
    def passed(self) -> bool:
        """True if nothing speaks against the provider and the run is complete."""
        return not self.failures and not self.blockers

    @cached_property
    def results_hash(self) -> str:
        """`sha256:...` over ids and outcomes; times and reasons don't count."""
        table = sorted((verdict.case_id, verdict.outcome.value) for verdict in self.verdicts)
        text = json.dumps(table, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
