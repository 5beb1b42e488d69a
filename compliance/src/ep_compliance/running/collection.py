"""Which jobs a run has: checks and cases of a level, chosen by a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from ep_compliance.cases.case import Case, Level
from ep_compliance.checks import all_checks
from ep_compliance.running.jobs import Job

__all__ = ["collect_jobs", "matches"]


def collect_jobs(level: Level) -> list[Job]:
    """Return the checks, then the cases, of a level and of those below it.

    To be called before any provider is loaded: collecting official cases imports onnx's reference
    evaluator, which can't be imported once a provider has registered operator schemas.
    """
    jobs: list[Job] = [*all_checks().values(), *_cases(level)]
    return [job for job in jobs if job.level <= level]


def matches(job: Job, pattern: str) -> bool:
    """True if a shell pattern, or plain text, is found in the job's id."""
    return fnmatchcase(job.id, pattern) or pattern in job.id


def _cases(level: Level) -> Iterator[Case]:
    from ep_compliance.cases.chains import chain_cases
    from ep_compliance.cases.matrix import matrix_cases
    from ep_compliance.cases.numerics_cases import numerics_cases
    from ep_compliance.cases.official import official_cases
    from ep_compliance.cases.random_graphs import random_cases
    from ep_compliance.cases.recorded.cases import recorded_cases

    yield from official_cases()
    yield from matrix_cases()
    yield from recorded_cases()
    yield from numerics_cases()
    yield from chain_cases()
    yield from random_cases(level)
