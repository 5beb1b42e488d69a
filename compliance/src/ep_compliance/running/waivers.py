"""Waivers: known failures that a provider's authors answer for, strictly and for a time.

A waiver names one job exactly. One that nothing needs, that names nothing, or that has run out is
an error, so that the list can only tell the truth.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ep_compliance.running.jobs import Job, is_must_pass
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.texts import similar_ids
from ep_core.errors import EpError, did_you_mean

__all__ = ["Waiver", "WaiverError", "apply_waivers", "read_waivers"]

_KEYS = ("id", "reason", "link", "owner", "expires")
_WAIVABLE = (Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT)
_UNDECIDED = (Outcome.NOT_RUN, Outcome.QUARANTINED)


class WaiverError(EpError):
    """A file of waivers that can't be read, or has an entry that isn't whole."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """One known failure.

    Attributes:
        id: of the case or check, exactly.
        link: where it is followed up.
        owner: who answers for it.
        expires: the last day on which it holds.
    """

    id: str
    reason: str
    link: str
    owner: str
    expires: datetime.date

    @property
    def record(self) -> dict[str, str]:
        """The waiver as a certificate carries it."""
        return {
            "id": self.id,
            "reason": self.reason,
            "link": self.link,
            "owner": self.owner,
            "expires": self.expires.isoformat(),
        }


def read_waivers(path: Path) -> tuple[Waiver, ...]:
    """Read a file with one `[[waiver]]` table per waiver; every key is required.

    Raises:
        WaiverError: the file can't be read, isn't TOML, or has unknown, missing or wrong entries.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WaiverError(f"can't read {path}: {error}") from error
    tables = data.pop("waiver", [])
    if data:
        key = next(iter(data))
        raise WaiverError(f"{path}: unknown key {key!r}", fix=did_you_mean(key, ["waiver"]))
    if not isinstance(tables, list):
        raise WaiverError(f"{path}: waiver", expected="[[waiver]] tables", got=repr(tables))
    waivers = [_waiver(table, f"{path}: waiver {n}") for n, table in enumerate(tables, 1)]
    ids = [waiver.id for waiver in waivers]
    for identifier in ids:
        if ids.count(identifier) > 1:
            raise WaiverError(f"{path}: two waivers for {identifier!r}")
    return tuple(waivers)


def _waiver(table: Any, where: str) -> Waiver:
    if not isinstance(table, dict):
        raise WaiverError(where, expected="a table", got=repr(table))
    for key in table:
        if key not in _KEYS:
            raise WaiverError(f"{where}: unknown key {key!r}", fix=did_you_mean(key, _KEYS))
    for key in _KEYS:
        if key not in table:
            raise WaiverError(f"{where}: key {key!r} is missing")
        kind = datetime.date if key == "expires" else str
        if type(table[key]) is not kind or not table[key]:
            expected = "a date such as 2030-12-31" if key == "expires" else "a text"
            raise WaiverError(f"{where}: {key}", expected=expected, got=repr(table[key]))
    return Waiver(**table)


def apply_waivers(
    jobs: Sequence[Job],
    verdicts: Sequence[Verdict],
    waivers: Sequence[Waiver],
    today: datetime.date,
    others: Mapping[str, Any] | None = None,
) -> tuple[list[Verdict], list[str]]:
    """Turn failures that a waiver covers into WAIVED.

    Args:
        others: ids of jobs that exist but weren't chosen for this run; their waivers rest.

    Returns:
        The verdicts, in the same order, and what is wrong with the waivers, one sentence each.
    """
    by_id = {waiver.id: waiver for waiver in waivers}
    problems = [
        f"the waiver for {waiver.id!r} names no case or check: "
        + similar_ids(waiver.id, [job.id for job in jobs])
        for waiver in waivers
        if waiver.id not in {job.id for job in jobs} and waiver.id not in (others or {})
    ]
    result = []
    for job, verdict in zip(jobs, verdicts, strict=True):
        waiver = by_id.get(job.id)
        problem = "" if waiver is None else _problem(job, verdict, waiver, today)
        if problem:
            problems.append(problem)
        if waiver is None or problem or verdict.outcome in _UNDECIDED:
            result.append(verdict)
        else:
            reason = f"{waiver.reason} ({waiver.owner}, until {waiver.expires}): {verdict.reason}"
            result.append(replace(verdict, outcome=Outcome.WAIVED, reason=reason))
    return result, problems


def _problem(job: Job, verdict: Verdict, waiver: Waiver, today: datetime.date) -> str:
    """Why a waiver doesn't cover a verdict, or nothing."""
    if is_must_pass(job):
        return f"{job.id!r} must pass; no waiver covers it"
    if waiver.expires < today:
        return (
            f"the waiver for {job.id!r} has run out on {waiver.expires}; its owner: {waiver.owner}"
        )
    if verdict.outcome in _UNDECIDED:
        return ""
    if verdict.outcome not in _WAIVABLE:
        return (
            f"the waiver for {job.id!r} isn't needed any more: {verdict.outcome.value}; remove it"
        )
    return ""
