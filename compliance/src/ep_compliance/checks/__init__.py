"""Contract checks beyond operators: one function each, listed by id.

A check opens the provider itself, as often as it needs, and tells what it finds by raising.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ep_compliance.cases.case import Level
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.running.outcomes import Outcome

__all__ = ["Check", "CheckFunction", "all_checks", "check"]

CheckFunction = Callable[[Bench], None]
"""Raises `Broken` with what is wrong, `NotClaimed` with why there is nothing to check."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        id: unique and stable, e.g. `memory/round-trip`.
        must_pass: no waiver covers it, and no certificate is given where it fails.
        level: the lowest level that runs it.
    """

    id: str
    run: CheckFunction
    must_pass: bool
    level: Level = Level.MUSTPASS

    def judge(self, bench: Bench) -> tuple[Outcome, str]:
        """Run it; any error that it doesn't expect is the provider's failure too."""
        try:
            self.run(bench)
        except NotClaimed as reason:
            return Outcome.UNSUPPORTED, str(reason)
        except Broken as finding:
            return Outcome.FAIL, str(finding)
        except Exception as error:  # noqa: BLE001 - raised by the provider, where none may be
            return Outcome.FAIL, f"unexpected {text_of(error)}"
        return Outcome.PASS, ""


_CHECKS: dict[str, Check] = {}


def check(
    identifier: str, *, must_pass: bool = True, level: Level = Level.MUSTPASS
) -> Callable[[CheckFunction], CheckFunction]:
    """Add a function to the list of checks."""

    def add(function: CheckFunction) -> CheckFunction:
        _CHECKS[identifier] = Check(identifier, function, must_pass, level)
        return function

    return add


def all_checks() -> Mapping[str, Check]:
    """Every check by id, in the order of the ids."""
    from ep_compliance.checks import (
        artifact_sessions,
        artifacts,
        claims,
        exchange,
        faults,
        memory,
        operators,
        options,
        order,
        overlap,
        placement,
        sessions,
        soak,
        transfers,
    )

    assert all((artifact_sessions, artifacts, exchange, operators, overlap))
    assert all((claims, faults, memory, options, order, placement, sessions, soak, transfers))
    return dict(sorted(_CHECKS.items()))
