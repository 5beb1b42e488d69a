"""Which jobs a run has: checks and cases of a level, chosen by a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from ep_compliance.cases.case import Case, Level
from ep_compliance.checks import all_checks
from ep_compliance.running.jobs import Job

__all__ = ["collect_jobs", "matches"]

_WILDCARD = re.compile(r"[*?\[]")


def collect_jobs(level: Level, pattern: str = "") -> list[Job]:
    """Return the checks, then the cases, of a level and of those below it.

    To be called before any provider is loaded: collecting official cases imports onnx's reference
    evaluator, which can't be imported once a provider has registered operator schemas.

    Args:
        pattern: only jobs that match it. One that begins as ids do, such as `matrix/Relu-*`, is
            quicker than all: other cases aren't even made.
    """
    jobs: list[Job] = [*all_checks().values(), *_cases(level, pattern)]
    return [job for job in jobs if job.level <= level and (not pattern or matches(job, pattern))]


def matches(job: Job, pattern: str) -> bool:
    """True if a shell pattern, or plain text, is found in the job's id."""
    return fnmatchcase(job.id, pattern) or pattern in job.id


def _cases(level: Level, pattern: str) -> Iterator[Case]:
    """The cases of every source that the pattern leaves open."""
    from ep_compliance.cases.matrix import matrix_cases

    head = _WILDCARD.split(pattern, maxsplit=1)[0]
    sources = _sources(level)
    named, slash, rest = head.partition("/")
    if slash and named in _check_groups():
        return
    if not slash or named not in sources:
        named, rest = "", ""
    for name, source in sources.items():
        if named in ("", name):
            yield from matrix_cases(begin=rest) if name == "matrix" else source()


def _check_groups() -> frozenset[str]:
    """The first words of the ids of checks."""
    return frozenset(identifier.partition("/")[0] for identifier in all_checks())


def _sources(level: Level) -> Mapping[str, Callable[[], Iterable[Case]]]:
    """Where cases come from, by the first word of their ids."""
    from ep_compliance.cases.chains import chain_cases
    from ep_compliance.cases.matrix import matrix_cases
    from ep_compliance.cases.numerics_cases import numerics_cases
    from ep_compliance.cases.official import official_cases
    from ep_compliance.cases.random_graphs import random_cases
    from ep_compliance.cases.recorded.cases import recorded_cases
    from ep_compliance.cases.size_cases import size_cases

    return {
        "official": official_cases,
        "matrix": matrix_cases,
        "recorded": recorded_cases,
        "numerics": numerics_cases,
        "size": size_cases,
        "chain": chain_cases,
        "random": lambda: random_cases(level),
    }
