"""Overrides: a wider tolerance for one case, with a reason; the only way to loosen anything.

A file of them is a TOML array of tables:

    [[override]]
    case = "matrix/Tan-22/float/large"
    reason = "the vendor's library promises 7 units for tan"
    ulps = 7

There are no patterns and no defaults. One that isn't needed, or that names a case which isn't
there, is stale, and that is an error.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ep_compliance.errors import OverrideError
from ep_compliance.tolerance import Context, judge

__all__ = ["Override", "judge_with", "parse_overrides", "read_overrides", "require_fresh"]

_PATTERN_CHARACTERS = frozenset("*?[]")
_KEYS = frozenset({"case", "reason", "ulps", "absolute", "steps"})


@dataclass(frozen=True, slots=True)
class Override:
    """What one case is allowed instead, in the terms of `Allowance`.

    Attributes:
        case_id: exactly one case.
        reason: why that is right, for a person.
        ulps, absolute, steps: replace those of every output of the case where they are larger.
    """

    case_id: str
    reason: str
    ulps: float = 0.0
    absolute: float = 0.0
    steps: int = 0

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
    except tomllib.TOMLDecodeError as error:
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
    if not is_number or not math.isfinite(value) or value <= 0:
        raise OverrideError(
            f"{key} of {case_id!r} must be a positive, finite number", got=repr(value)
        )
    return float(value)


def require_fresh(
    overrides: Mapping[str, Override], ran: Collection[str], needed: Collection[str]
) -> None:
    """Check after a complete run that every override was needed.

    Args:
        ran: ids of all cases that ran.
        needed: ids of those that pass only because of their override.

    Raises:
        OverrideError: some override is stale.
    """
    unknown = sorted(overrides.keys() - set(ran))
    idle = sorted((overrides.keys() & set(ran)) - set(needed))
    if unknown or idle:
        parts = [f"{case_id}: no such case ran" for case_id in unknown]
        parts += [f"{case_id}: it makes no difference" for case_id in idle]
        raise OverrideError("stale overrides: " + "; ".join(parts), fix="Remove them.")
