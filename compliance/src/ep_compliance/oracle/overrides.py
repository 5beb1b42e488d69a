"""Overrides: a wider tolerance for one case, with a reason; the only way to loosen anything.

A file of them is a TOML array of tables:

    [[override]]
    case = "matrix/Tan-22/float/large"
    reason = "the vendor's library promises 7 units for tan"
    ulps = 7

There are no patterns and no defaults. One that isn't needed, or that names a case which isn't
there, is stale, and that is an error, as it is for waivers. What must pass can't be overridden:
an override may be as wide as its author likes, so there it would be a waiver by another name.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ep_compliance.cases.case import Case
from ep_compliance.errors import OverrideError
from ep_compliance.oracle.tolerance import Context, judge
from ep_compliance.running.jobs import Job, is_must_pass
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.texts import similar_ids

__all__ = [
    "Override",
    "applicable",
    "judge_with",
    "override_problems",
    "parse_overrides",
    "read_overrides",
]

_UNDECIDED = (Outcome.NOT_RUN, Outcome.QUARANTINED)
_PATTERN_CHARACTERS = frozenset("*?[]")
_MOST = 1e300
_KEYS = frozenset({"case", "reason", "ulps", "absolute", "steps"})


@dataclass(frozen=True, slots=True)
class Override:
    """What one case is allowed instead, in the terms of `Allowance`.

    Attributes:
        case_id: exactly one case.
        reason: why that is right, for a person.
        ulps, steps: replace those of every output of the case where they are larger.
        absolute: is added to what every output of the case is allowed, in its own unit.
    """

    case_id: str
    reason: str
    ulps: float = 0.0
    absolute: float = 0.0
    steps: int = 0

    @property
    def allows(self) -> str:
        """What it allows, for a person."""
        amounts = {"ulps": self.ulps, "absolute": self.absolute, "steps": self.steps}
        return ", ".join(f"{name} {amount:g}" for name, amount in amounts.items() if amount)

    @property
    def record(self) -> dict[str, Any]:
        """The override as JSON data."""
        amounts = {"ulps": self.ulps, "absolute": self.absolute, "steps": self.steps}
        return {"case": self.case_id, "reason": self.reason, **amounts}

    def applied(self, context: Context, outputs: int) -> Context:
        """The context with this override in force for a case with so many outputs."""
        allowances = [context.allowance(index) for index in range(outputs)]
        wider = tuple(
            dataclasses.replace(
                allowance,
                rule=f"{allowance.rule}; override: {self.reason}",
                ulps=max(allowance.ulps, self.ulps),
                absolute=allowance.absolute + self.absolute,
                steps=max(allowance.steps, self.steps),
                near_tie=None if self.steps else allowance.near_tie,
            )
            for allowance in allowances
        )
        return dataclasses.replace(context, allowances=wider)


def judge_with(
    override: Override | None, got: Sequence[Any], expected: Sequence[Any], context: Context
) -> tuple[str | None, bool]:
    """Judge with an override in reserve.

    Returns:
        what `judge` says, and whether the override was needed and helped.
    """
    problem = judge(got, expected, context)
    if problem is None or override is None:
        return problem, False
    problem = judge(got, expected, override.applied(context, len(expected)))
    return problem, problem is None


def read_overrides(path: str | os.PathLike[str]) -> Mapping[str, Override]:
    """Read a file of overrides, by case id.

    Raises:
        OverrideError: the file can't be read, or an override is malformed.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OverrideError(f"overrides {os.fspath(path)} can't be read", got=str(error)) from error
    return parse_overrides(text)


def parse_overrides(text: str) -> Mapping[str, Override]:
    """Parse the text of a file of overrides, by case id.

    Raises:
        OverrideError: it isn't TOML, or an override is malformed.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OverrideError("overrides aren't valid TOML", got=str(error)) from error
    tables = document.pop("override", [])
    if document or not isinstance(tables, list):
        raise OverrideError(
            "overrides hold nothing but [[override]] tables",
            got=", ".join(document) or "another kind of 'override'",
            fix="There are no global tolerances; name each case.",
        )
    found: dict[str, Override] = {}
    for table in tables:
        override = _parse(table)
        if override.case_id in found:
            raise OverrideError(f"case {override.case_id!r} has two overrides")
        found[override.case_id] = override
    return found


def _parse(table: Any) -> Override:
    if not isinstance(table, dict) or table.keys() - _KEYS:
        raise OverrideError("an override has unknown keys", expected=sorted(_KEYS), got=table)
    case_id, reason = table.get("case"), table.get("reason")
    if not isinstance(case_id, str) or not case_id or _PATTERN_CHARACTERS & set(case_id):
        raise OverrideError(
            "an override names exactly one case",
            expected="a case id without wildcards",
            got=repr(case_id),
        )
    if not isinstance(reason, str) or not reason.strip():
        raise OverrideError(f"the override of {case_id!r} has no reason")
    numbers = {key: _number(case_id, key, table[key]) for key in table.keys() - {"case", "reason"}}
    if not numbers:
        raise OverrideError(f"the override of {case_id!r} allows nothing")
    steps = numbers.pop("steps", 0)
    if steps != int(steps):
        raise OverrideError(f"steps of {case_id!r} are whole", got=steps)
    return Override(case_id, reason, steps=int(steps), **numbers)


def _number(case_id: str, key: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _MOST or not math.isfinite(value):
        raise OverrideError(
            f"{key} of {case_id!r} must be a positive, finite number", got=repr(value)
        )
    return float(value)


def applicable(jobs: Sequence[Job], overrides: Mapping[str, Override]) -> dict[str, Override]:
    """The overrides that are in force: those of cases among the jobs that may have one."""
    return {
        job.id: overrides[job.id]
        for job in jobs
        if job.id in overrides and isinstance(job, Case) and not is_must_pass(job)
    }


def override_problems(
    jobs: Sequence[Job],
    verdicts: Sequence[Verdict],
    overrides: Mapping[str, Override],
    others: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return what is wrong with the overrides after a run, one sentence each.

    Args:
        jobs, verdicts: of the run, in the same order; waivers haven't been applied.
        others: ids of jobs that exist but weren't chosen for this run; their overrides rest.
    """
    known = [job.id for job in jobs if isinstance(job, Case)]
    problems = [
        f"the override of {name!r} names no case: {similar_ids(name, known)}"
        for name in overrides
        if name not in known and name not in (others or {})
    ]
    for job, verdict in zip(jobs, verdicts, strict=True):
        if job.id not in overrides or not isinstance(job, Case):
            continue
        if is_must_pass(job):
            problems.append(f"{job.id!r} must pass; no override covers it")
        elif verdict.outcome is Outcome.PASS and not verdict.overridden:
            problems.append(f"the override of {job.id!r} isn't needed; remove it")
        elif verdict.outcome is not Outcome.PASS and verdict.outcome not in _UNDECIDED:
            outcome = verdict.outcome.value
            problems.append(f"the override of {job.id!r} doesn't help: {outcome}; remove it")
    return problems
