"""One certification from start to end: run the jobs, apply waivers, put the results together.

Knows nothing of the command line.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution, version
from pathlib import Path

from ep_compliance.cases.case import Level
from ep_compliance.oracle.overrides import Override, applicable, override_problems
from ep_compliance.running.footprint import peak_bytes
from ep_compliance.running.jobs import Job, Target, jobs_hash
from ep_compliance.running.journal import Journal
from ep_compliance.running.outcomes import Verdict
from ep_compliance.running.results import Results
from ep_compliance.running.runner import run_jobs
from ep_compliance.running.waivers import Waiver, apply_waivers
from ep_core.certificates.content import content_hash
from ep_core.types import DeviceInfo

__all__ = ["Plan", "certify"]


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        jobs: what is run.
        others: ids of jobs that exist but aren't run.
        folder: where the journal is kept.
        resume: take over verdicts of an earlier run of the same jobs on the same provider.
        overrides: by case id.
    """

    target: Target
    device: DeviceInfo
    distribution: Distribution | None
    level: Level
    jobs: Sequence[Job]
    others: Sequence[str]
    folder: Path
    workers: int = 1
    resume: bool = False
    waivers: Sequence[Waiver] = ()
    overrides: Mapping[str, Override] = field(default_factory=dict)


def certify(plan: Plan, on_progress: Callable[[int, int, Verdict], None]) -> Results:
    """Run a plan.

    Args:
        on_progress: called after each job with how many are done, of how many, and its verdict.

    Raises:
        OSError: the folder can't be written to.
    """
    began = time.monotonic()
    cases_hash = jobs_hash(plan.jobs)
    plan.folder.mkdir(parents=True, exist_ok=True)
    with Journal(
        plan.folder / f"{plan.target.provider}.jsonl",
        _key(plan, cases_hash),
        resume=plan.resume,
    ) as journal:
        done = len(journal.known)

        def note(verdict: Verdict) -> None:
            nonlocal done
            done += 1
            journal.add(verdict)
            on_progress(done, len(plan.jobs), verdict)

        found = run_jobs(
            plan.jobs,
            plan.target,
            workers=plan.workers,
            known=journal.known,
            overrides=applicable(plan.jobs, plan.overrides),
            on_verdict=note,
            on_open=journal.add_numerics,
        )
    today = datetime.date.today()
    others = dict.fromkeys(plan.others)
    verdicts, problems = apply_waivers(plan.jobs, found, plan.waivers, today, others)
    problems += override_problems(plan.jobs, found, plan.overrides, others)
    return Results(
        target=plan.target,
        device=plan.device,
        level=plan.level,
        jobs=plan.jobs,
        verdicts=verdicts,
        cases_hash=cases_hash,
        kit_version=version("ep-compliance"),
        waivers=plan.waivers,
        problems=problems,
        seconds=time.monotonic() - began,
        date=today.isoformat(),
        overrides=tuple(plan.overrides.values()),
        numerics=journal.numerics,
        workers=plan.workers,
        peak_bytes=peak_bytes(),
    )


def _key(plan: Plan, cases_hash: str) -> str:
    """What an earlier run must have had in common for its verdicts to be taken over."""
    parts = [
        cases_hash,
        plan.target.provider,
        plan.device.id,
        plan.device.fingerprint,
        sorted(plan.target.options.items()),
        [override.record for _, override in sorted(plan.overrides.items())],
        version("ep-compliance"),
        content_hash(plan.distribution) if plan.distribution is not None else "",
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
