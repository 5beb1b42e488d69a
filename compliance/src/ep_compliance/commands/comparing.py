"""Comparing what two runs have shown: for `ep certify --diff` and `ep certificate diff`."""

from __future__ import annotations

from typing import Any

from ep_compliance.certificates.difference import Change, Coverage, Difference, difference
from ep_compliance.commands.output import say
from ep_core.errors import CertificateError

__all__ = ["check_same_provider", "difference_record", "say_difference"]


def check_same_provider(old: str, new: str, where: str) -> None:
    """Refuse to compare one provider with another.

    Args:
        where: the file that `old` stands in.
    """
    if old != new:
        raise CertificateError(f"{where} is of another provider", expected=repr(new), got=repr(old))


def say_difference(old: Coverage, new: Coverage) -> Difference:
    """Write what `new` has lost and gained, and return it."""
    found = difference(old.rows, new.rows)
    for what in ("level", "device"):
        before, after = getattr(old, what), getattr(new, what)
        if before != after:
            say(f"the {what} differs: {before}, now {after}")
    for sign, changes in (("-", found.lost), ("+", found.gained)):
        for change in changes:
            say(f"{sign} {change}")
    say(f"lost {_count(found.lost)}, gained {_count(found.gained)}, since {old.date}")
    return found


def _count(changes: tuple[Change, ...]) -> str:
    operators = len({(change.domain, change.op_type) for change in changes})
    if not changes:
        return "nothing"
    return f"grants of {operators} operator{'s' if operators > 1 else ''}"


def difference_record(found: Difference) -> dict[str, Any]:
    """A difference as JSON data."""
    return {
        side: [
            {
                "domain": change.domain,
                "op_type": change.op_type,
                "versions": list(change.versions),
                "inputs": [sorted(types) for types in change.inputs],
                "outputs": [sorted(types) for types in change.outputs],
            }
            for change in changes
        ]
        for side, changes in (("lost", found.lost), ("gained", found.gained))
    }
