"""Reports for machines: JSON with everything, JUnit XML for continuous integration.

The keys of the JSON report stand in the kit's README; they are always all there.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from ep_compliance.cases.case import Case
from ep_compliance.reports.costs import estimates_of
from ep_compliance.reports.groups import groups_of
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.results import BAD, Results
from ep_compliance.texts import printable

__all__ = ["dumps", "json_report", "junit_report", "summary"]


_EXCEPTIONS = "waivers-and-overrides"


def summary(results: Results) -> str:
    """Numbers of verdicts by outcome, on one line."""
    counts = [f"{results.counts[kind]} {kind.value}" for kind in Outcome if results.counts[kind]]
    return f"{len(results.verdicts)} cases and checks: {', '.join(counts)}"


def json_report(results: Results) -> dict[str, Any]:
    """Everything about a run, as JSON data."""
    return {
        "format": 1,
        "provider": results.target.provider,
        "device": {
            "id": results.device.id,
            "kind": results.device.kind,
            "vendor": results.device.vendor,
            "name": results.device.name,
            "fingerprint": results.device.fingerprint,
            "properties": dict(results.device.properties),
        },
        "options": dict(results.target.options),
        "numerics": None if results.numerics is None else dataclasses.asdict(results.numerics),
        "level": results.level.name.lower(),
        "date": results.date,
        "seconds": round(results.seconds, 3),
        "workers": results.workers,
        "peak_bytes": {"kit": results.peak_bytes, "worker": results.worker_peak_bytes},
        "kit_version": results.kit_version,
        "cases_hash": results.cases_hash,
        "results_hash": results.results_hash,
        "passed": results.passed,
        "problems": list(results.blockers),
        "counts": {kind.value: results.counts[kind] for kind in Outcome if results.counts[kind]},
        "rows": [row.record for row in results.rows],
        "groups": [group.record for group in groups_of(results.verdicts)],
        "waivers": [waiver.record for waiver in results.waivers],
        "overrides": [
            {**override.record, "needed": override.case_id in results.overridden}
            for override in results.overrides
        ],
        "costs": [estimates.record for estimates in estimates_of(results.pairs)],
        "verdicts": [_record(job, verdict) for job, verdict in results.pairs],
    }


def _record(job: Any, verdict: Verdict) -> dict[str, Any]:
    return {
        "id": verdict.case_id,
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "overridden": verdict.overridden,
        "seconds": verdict.seconds,
        "run_seconds": verdict.run_seconds,
        "predicted_seconds": verdict.predicted_seconds,
        "subject": _subject(job),
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
    """The run as JUnit XML: one suite per group of ids, problems of the exceptions as errors."""
    groups: dict[str, list[ElementTree.Element]] = {}
    for verdict in results.verdicts:
        group, _, name = verdict.case_id.partition("/")
        case = ElementTree.Element(
            "testcase", classname=group, name=printable(name), time=f"{verdict.seconds:.6f}"
        )
        _add_outcome(case, verdict.outcome, printable(verdict.reason))
        groups.setdefault(group, []).append(case)
    for problem in results.problems:
        case = ElementTree.Element(
            "testcase", classname=_EXCEPTIONS, name=printable(problem), time="0"
        )
        ElementTree.SubElement(case, "error", type="stale", message=printable(problem))
        groups.setdefault(_EXCEPTIONS, []).append(case)
    everything = [case for cases in groups.values() for case in cases]
    name = printable(f"ep certify {results.target.provider}")
    root = ElementTree.Element("testsuites", {"name": name, **_totals(everything)})
    for group, cases in groups.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": group, **_totals(cases)})
        if results.date:
            suite.set("timestamp", f"{results.date}T00:00:00")
        suite.extend(cases)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_outcome(case: ElementTree.Element, outcome: Outcome, reason: str) -> None:
    if outcome is Outcome.FAIL:
        ElementTree.SubElement(case, "failure", type=outcome.value, message=reason)
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


def dumps(report: Mapping[str, Any]) -> str:
    """The text of a JSON report: one line for each verdict and each row."""
    short = {**report, "verdicts": [], "rows": []}
    text = json.dumps(short, indent=1)
    for key in ("verdicts", "rows"):
        items = ",\n".join(f"  {json.dumps(item)}" for item in report[key])
        if items:
            text = text.replace(f'\n "{key}": []', f'\n "{key}": [\n{items}\n ]', 1)
    return text + "\n"
