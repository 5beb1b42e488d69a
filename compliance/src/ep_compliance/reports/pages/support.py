"""The table of operators: operator by range of versions, and what came of each type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ep_compliance.cases.case import Case
from ep_compliance.reports.costs import first_type
from ep_compliance.reports.pages.frame import section, shown, table
from ep_compliance.running.outcomes import Outcome
from ep_compliance.running.results import BAD, Results
from ep_core.types import DataType

__all__ = ["support"]

_ORDER = {kind.text: int(kind) for kind in DataType}
_GOOD = (Outcome.PASS, Outcome.WAIVED)

_Operator = tuple[str, str]
_STATES = ("granted", "failed", "not claimed", "undecided")


@dataclass(slots=True)
class _Tally:
    """The cases of one operator, range of versions and type of first input."""

    good: int = 0
    bad: int = 0
    total: int = 0
    claimed: bool = False

    def add(self, outcome: Outcome) -> None:
        self.good += outcome in _GOOD
        self.bad += outcome in BAD
        self.total += 1
        self.claimed |= outcome is not Outcome.UNSUPPORTED

    def join(self, other: _Tally) -> None:
        self.good += other.good
        self.bad += other.bad
        self.total += other.total
        self.claimed |= other.claimed

    @property
    def state(self) -> str:
        if self.bad:
            return "failed"
        if self.good:
            return "granted"
        return "undecided" if self.claimed else "not claimed"


@dataclass(slots=True)
class _Span:
    """Adjacent versions of an operator that fared alike."""

    first: int
    last: int
    types: dict[str, _Tally] = field(default_factory=dict)

    @property
    def states(self) -> dict[str, str]:
        return {kind: tally.state for kind, tally in self.types.items()}


def support(results: Results) -> str:
    """Every operator that is claimed in some version, and a list of those that aren't."""
    by_operator = _tallied(results)
    rows, unclaimed = [], []
    for operator, versions in sorted(by_operator.items()):
        name = f"{operator[0]}.{operator[1]}" if operator[0] else operator[1]
        spans = list(_spans(versions))
        if not any(tally.claimed for span in spans for tally in span.types.values()):
            unclaimed.append(name)
            continue
        rows += [_row(name, span) for span in spans]
    head = ["Operator", "Versions", "State", "Granted", "Failed", "Not claimed"]
    note = (
        '<p class="note">Types of the first input, each with its number of cases; where some '
        "fail, how many of them. Versions are those of the operator's schemas.</p>"
    )
    body = note + table("operators", head, rows, search="Conv float16 failed") if rows else ""
    return section("operators", "Operators", body + _unclaimed(unclaimed))


def _tallied(results: Results) -> dict[_Operator, dict[int, dict[str, _Tally]]]:
    found: dict[_Operator, dict[int, dict[str, _Tally]]] = {}
    for job, verdict in results.pairs:
        if not isinstance(job, Case) or job.subject is None:
            continue
        subject = job.subject
        versions = found.setdefault((subject.domain, subject.op_type), {})
        types = versions.setdefault(subject.since_version, {})
        types.setdefault(first_type(subject), _Tally()).add(verdict.outcome)
    return found


def _spans(versions: Mapping[int, Mapping[str, _Tally]]) -> Iterator[_Span]:
    """Versions in ascending order, joined where each type is in the same state."""
    current: _Span | None = None
    for version, types in sorted(versions.items()):
        states = {kind: tally.state for kind, tally in types.items()}
        if current is None or current.states != states:
            if current is not None:
                yield current
            current = _Span(version, version)
        current.last = version
        for kind, tally in types.items():
            current.types.setdefault(kind, _Tally()).join(tally)
    if current is not None:
        yield current


def _row(name: str, span: _Span) -> list[str]:
    versions = str(span.first) if span.first == span.last else f"{span.first}\u2013{span.last}"
    states = set(span.states.values())
    word = next(iter(states)) if len(states) == 1 else "in part"
    if "failed" in states:
        word = "failed"
    kind = {"granted": "good", "failed": "bad", "not claimed": "muted"}.get(word, "mild")
    cells = {state: _types(span, state) for state in _STATES}
    return [
        shown(name),
        versions,
        f'<span class="{kind}">{word}</span>',
        cells["granted"],
        cells["failed"],
        ", ".join(text for text in (cells["not claimed"], cells["undecided"]) if text),
    ]


def _types(span: _Span, state: str) -> str:
    kinds = sorted(span.types, key=lambda kind: (_ORDER.get(kind, 0), kind))
    chosen = [kind for kind in kinds if span.types[kind].state == state]
    return ", ".join(_type(kind, span.types[kind], state) for kind in chosen)


def _type(kind: str, tally: _Tally, state: str) -> str:
    count = f"{tally.bad}/{tally.total}" if state == "failed" else str(tally.total)
    mark = "?" if state == "undecided" else ""
    return f"{shown(kind)}{mark}&nbsp;<small>{count}</small>"


def _unclaimed(names: list[str]) -> str:
    if not names:
        return ""
    listed = ", ".join(shown(name) for name in names)
    head = f"<summary>{len(names)} operators aren't claimed in any version</summary>"
    return f"<details>{head}<p>{listed}</p></details>"
