"""Parts of the page that explain a run: contract checks, exceptions, times, costs, certificate."""

from __future__ import annotations

from ep_compliance.cases.case import Case
from ep_compliance.checks import Check
from ep_compliance.reports.costs import Estimates, estimates_of
from ep_compliance.reports.groups import groups_of
from ep_compliance.reports.pages.frame import (
    WORDS,
    code,
    duration,
    megabytes,
    section,
    shown,
    table,
    tone,
)
from ep_compliance.running.outcomes import Outcome
from ep_compliance.running.results import BAD, Results

__all__ = ["binding", "checks", "costs", "exceptions", "facts", "times", "undecided"]

_MOST_SLOW = 25
_MOST_UNDECIDED = 1000


def facts(items: dict[str, str]) -> str:
    """Names and texts, as a list."""
    listed = "".join(
        f"<dt>{shown(name)}</dt><dd>{shown(text)}</dd>" for name, text in items.items() if text
    )
    return f"<dl>{listed}</dl>"


def checks(results: Results) -> str:
    """Every contract check with what it is about."""
    rows = [
        [
            code(job.id),
            f'<span class="{tone(verdict.outcome)}">{WORDS[verdict.outcome]}</span>',
            shown(_about(job)),
            duration(verdict.seconds),
        ]
        for job, verdict in results.pairs
        if isinstance(job, Check)
    ]
    if not rows:
        return ""
    head = ["Check", "Result", "What must hold", "Time"]
    return section("checks", "Contract checks", table("checks", head, rows, numbers=[3]))


def _about(job: Check) -> str:
    return (job.run.__doc__ or "").strip().partition("\n")[0]


# ---------------------------------------------------------------- waivers, overrides, quarantine


def exceptions(results: Results) -> str:
    """Waivers and overrides, as they were given."""
    parts = []
    if results.waivers:
        waived = {v.case_id for v in results.verdicts if v.outcome is Outcome.WAIVED}
        rows = [
            [
                code(waiver.id),
                "in force" if waiver.id in waived else "not in force",
                shown(waiver.reason),
                _link(waiver.link),
                shown(waiver.owner),
                waiver.expires.isoformat(),
            ]
            for waiver in results.waivers
        ]
        head = ["Waived", "State", "Reason", "Link", "Owner", "Until"]
        parts.append(table("waivers", head, rows))
    if results.overrides:
        rows = [
            [
                code(override.case_id),
                "needed" if override.case_id in results.overridden else "not needed",
                shown(override.reason),
                shown(override.allows),
            ]
            for override in results.overrides
        ]
        parts.append(table("overrides", ["Overridden", "State", "Reason", "Allows"], rows))
    return section("exceptions", "Waivers and overrides", "\n".join(parts))


def _link(address: str) -> str:
    """A link only where it leads to the web; anything else is a text."""
    text = shown(address)
    if address.startswith(("https://", "http://")):
        return f'<a href="{text}" rel="noreferrer">{text}</a>'
    return text


def undecided(results: Results) -> str:
    """What was quarantined or not run, with reasons, folded away."""
    parts = []
    for kind in (Outcome.QUARANTINED, Outcome.NOT_RUN):
        found = [verdict for verdict in results.verdicts if verdict.outcome is kind]
        if not found:
            continue
        rows = [[code(v.case_id), shown(v.reason)] for v in found[:_MOST_UNDECIDED]]
        name = kind.name.lower()
        listed = table(name, ["Case or check", "Reason"], rows, search="Resize")
        if len(found) > len(rows):
            listed += f'<p class="note">{len(found) - len(rows)} more in report.json.</p>'
        parts.append(f"<details><summary>{len(found)} {WORDS[kind]}</summary>\n{listed}</details>")
    note = '<p class="note">Nobody is blamed where the oracles disagree about the answer.</p>'
    return section("undecided", "Undecided", note + "\n".join(parts) if parts else "")


# ---------------------------------------------------------------- time, memory, costs


def times(results: Results) -> str:
    """Time by group, the slowest jobs, and memory."""
    busy = sum(verdict.seconds for verdict in results.verdicts)
    totals = facts(
        {
            "Whole run": duration(results.seconds),
            "Workers": f"{results.workers}, busy for {duration(busy)} together",
            "Peak memory": f"{megabytes(results.worker_peak_bytes)} in a worker, "
            f"{megabytes(results.peak_bytes)} in the kit's own process",
        }
    )
    groups = [
        [
            code(group.name),
            str(group.total),
            str(group.counts.get(Outcome.PASS, 0)),
            str(sum(group.counts.get(kind, 0) for kind in BAD)),
            str(group.counts.get(Outcome.UNSUPPORTED, 0)),
            duration(group.seconds),
        ]
        for group in groups_of(results.verdicts)
    ]
    head = ["Group", "All", "Passed", "Failed", "Not claimed", "Time"]
    ordered = sorted(results.verdicts, key=lambda v: (-v.seconds, v.case_id))[:_MOST_SLOW]
    slowest = [[code(v.case_id), duration(v.seconds), duration(v.run_seconds)] for v in ordered]
    slow_head = ["Slowest", "Time", "of which one run"]
    content = "\n".join(
        [
            totals,
            table("groups", head, groups, numbers=range(1, 6)),
            table("slowest", slow_head, slowest, numbers=[1, 2]),
        ]
    )
    return section("times", "Time and memory", content)


def costs(results: Results) -> str:
    """Estimates of cost beside what was measured."""
    found = estimates_of(results.pairs)
    if not found:
        return ""
    note = (
        '<p class="note">Medians over the cases of an operator and type. The ratio is estimate '
        "over measurement, with its range. Nothing depends on it.</p>"
    )
    head = ["Operator", "Type", "Cases", "Estimated", "Measured", "Ratio", "From", "To"]
    rows = [_cost(item) for item in found]
    listed = table("costs", head, rows, numbers=range(2, 8), search="MatMul float")
    return section("costs", "Estimates of cost", note + listed)


def _cost(item: Estimates) -> list[str]:
    ratios = [f"{value:.3g}" for value in (item.ratio, item.lowest, item.highest)]
    times = [duration(item.predicted_seconds), duration(item.measured_seconds)]
    return [shown(item.operator), shown(item.dtype), str(item.cases), *times, *ratios]


# ---------------------------------------------------------------- the certificate


def binding(results: Results) -> str:
    """What a certificate of this run grants and is bound to."""
    cases = sum(isinstance(job, Case) for job in results.jobs)
    items = {
        "Rows": str(len(results.rows)),
        "Provider": results.target.provider,
        "Device": results.device.fingerprint,
        "Level": results.level.name.lower(),
        "Date": results.date,
        "Kit": results.kit_version,
        "Cases": f"{results.cases_hash} ({cases} cases, {len(results.jobs) - cases} checks)",
        "Results": results.results_hash,
        "Exceptions": f"{len(results.waivers)} waivers, {len(results.overrides)} overrides",
    }
    if results.blockers:
        note = '<p class="bad">This run gives no certificate.</p>'
    else:
        note = '<p class="note">A complete run gives one, bound to the package\'s files too.</p>'
    return section("certificate", "Certificate", note + facts(items))
