"""Reports for machines: JSON with everything, JUnit XML for continuous integration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from ep_compliance.cases import Case
from ep_compliance.outcomes import Outcome
from ep_compliance.results import BAD, Results

__all__ = ["dumps", "json_report", "junit_report", "summary"]


def summary(results: Results) -> str:
    """Numbers of verdicts by outcome, on one line."""
    counts = [f"{results.counts[kind]} {kind.value}" for kind in Outcome if results.counts[kind]]
    return f"{len(results.verdicts)} cases and checks: {', '.join(counts)}"


def json_report(results: Results) -> dict[str, Any]:
    """Everything about a run, as JSON data."""
    return {
        "provider": results.target.provider,
        "device": {
            "id": results.device.id,
            "name": results.device.name,
            "fingerprint": results.device.fingerprint,
        },
        "options": dict(results.target.options),
        "level": results.level.name.lower(),
        "date": results.date,
        "seconds": round(results.seconds, 3),
        "kit_version": results.kit_version,
        "cases_hash": results.cases_hash,
        "results_hash": results.results_hash,
        "passed": results.passed,
        "problems": list(results.blockers),
        "counts": {kind.value: results.counts[kind] for kind in Outcome if results.counts[kind]},
        "verdicts": [
            {
                "id": verdict.case_id,
                "outcome": verdict.outcome.value,
                "reason": verdict.reason,
                "seconds": verdict.seconds,
                "subject": _subject(job),
            }
            for job, verdict in results.pairs
        ],
    }


def _subject(job: Any) -> Mapping[str, Any] | None:
    if not isinstance(job, Case) or job.subject is None:
        return None
    subject = job.subject
    return {
        "domain": subject.domain,
        "op_type": subject.op_type,
        "since_version": subject.since_version,
        "dtypes": {name: kind.text for name, kind in sorted(subject.dtypes.items())},
    }


def junit_report(results: Results) -> str:
    """The run as JUnit XML: one suite per group of ids, problems of waivers as errors."""
    groups: dict[str, list[ElementTree.Element]] = {}
    for verdict in results.verdicts:
        group, _, name = verdict.case_id.partition("/")
        case = ElementTree.Element(
            "testcase", classname=group, name=_printable(name), time=f"{verdict.seconds:.6f}"
        )
        _add_outcome(case, verdict.outcome, _printable(verdict.reason))
        groups.setdefault(group, []).append(case)
    for problem in results.problems:
        case = ElementTree.Element("testcase", classname="waivers", name=_printable(problem))
        ElementTree.SubElement(case, "error", message=_printable(problem))
        groups.setdefault("waivers", []).append(case)
    root = ElementTree.Element("testsuites", name=f"ep certify {results.target.provider}")
    for group, cases in groups.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": group, **_totals(cases)})
        suite.extend(cases)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_outcome(case: ElementTree.Element, outcome: Outcome, reason: str) -> None:
    if outcome is Outcome.FAIL:
        ElementTree.SubElement(case, "failure", message=reason)
    elif outcome in BAD:
        ElementTree.SubElement(case, "error", type=outcome.value, message=reason)
    elif outcome is Outcome.NOT_RUN:
        ElementTree.SubElement(case, "error", type="not run", message=reason)
    elif outcome is not Outcome.PASS:
        ElementTree.SubElement(case, "skipped", message=f"{outcome.value}: {reason}")


def _totals(cases: list[ElementTree.Element]) -> dict[str, str]:
    def count(tag: str) -> str:
        return str(sum(case.find(tag) is not None for case in cases))

    seconds = sum(float(case.get("time", "0")) for case in cases)
    return {
        "tests": str(len(cases)),
        "failures": count("failure"),
        "errors": count("error"),
        "skipped": count("skipped"),
        "time": f"{seconds:.3f}",
    }


def _printable(text: str) -> str:
    """XML has no way to write most control characters."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def dumps(report: Mapping[str, Any]) -> str:
    """The text of a JSON report."""
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"
