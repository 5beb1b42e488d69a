"""The report for people: one HTML page that needs nothing else, failing models included."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ep_compliance.cases import Case
from ep_compliance.outcomes import Outcome
from ep_compliance.results import BAD, Results
from ep_core.types import DataType

__all__ = ["html_page"]

_MOST_MODEL_BYTES = 256 * 1024
"""Larger models would make the page unwieldy; their ids are enough to make them again."""

_MOST_SLOW = 25

_WORDS = {
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.UNSUPPORTED: "not claimed",
    Outcome.WAIVED: "waived",
    Outcome.NOT_RUN: "not run",
    Outcome.CRASH: "crashed",
    Outcome.TIMEOUT: "timed out",
    Outcome.QUARANTINED: "quarantined",
}

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --mild: #9a6700; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.verdict { font-size: 1.1rem; font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); } .mild { color: var(--mild); }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dl.facts dt { opacity: .7; } dl.facts dd { margin: 0; overflow-wrap: anywhere; }
ul.tiles { display: flex; flex-wrap: wrap; gap: .6rem; padding: 0; list-style: none; }
ul.tiles li { border: 1px solid var(--line); border-radius: .5rem; padding: .4rem .9rem; }
ul.tiles b { display: block; font-size: 1.3rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
td { vertical-align: top; overflow-wrap: anywhere; } td.number { text-align: right; }
.support td, .support th { text-align: center; overflow-wrap: normal; white-space: nowrap; }
.support td:first-child, .support th:first-child { text-align: left; }
code { font-size: .92em; } .muted { opacity: .6; }
"""


def html_page(results: Results) -> str:
    """Return the page."""
    title = f"Compliance of {results.target.provider}"
    parts = [
        _head(results, title),
        _tiles(results),
        _problems(results),
        _failures(results),
        _support(results),
        _others(results),
        _slowest(results),
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _head(results: Results, title: str) -> str:
    if results.passed:
        verdict = '<p class="verdict good">Passed: everything that it claims, it does.</p>'
    else:
        count = len(results.failures)
        verdict = f'<p class="verdict bad">Not passed: {count} failures, see below.</p>'
    options = ", ".join(f"{k}={v}" for k, v in results.target.options.items())
    facts = {
        "Device": f"{results.device.name or results.device.kind} ({results.device.fingerprint})",
        "Options": options or "defaults",
        "Level": results.level.name.lower(),
        "Date": results.date,
        "Time": f"{results.seconds:.1f} s",
        "Kit": results.kit_version,
        "Cases": results.cases_hash,
        "Results": results.results_hash,
    }
    items = "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f'<h1>{escape(title)}</h1>\n{verdict}\n<dl class="facts">{items}</dl>'


def _tiles(results: Results) -> str:
    tiles = [
        f'<li class="{_tone(kind)}"><b>{results.counts[kind]}</b>{_WORDS[kind]}</li>'
        for kind in Outcome
        if results.counts[kind]
    ]
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _problems(results: Results) -> str:
    if not results.blockers:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in results.blockers)
    return f'<h2>Why there is no certificate</h2>\n<ul class="bad">{items}</ul>'


def _failures(results: Results) -> str:
    if not results.failures:
        return ""
    rows = [
        [
            f"<code>{escape(verdict.case_id)}</code>",
            f'<span class="bad">{_WORDS[verdict.outcome]}</span>',
            escape(verdict.reason),
            _download(job) if isinstance(job, Case) else "",
        ]
        for job, verdict in results.failures
    ]
    return "<h2>Failures</h2>\n" + _table(["Case or check", "", "Reason", "Model"], rows)


def _download(case: Case) -> str:
    """The case's model as a link that holds it."""
    data = case.model.SerializeToString(deterministic=True)
    if len(data) > _MOST_MODEL_BYTES:
        return f'<span class="muted">{len(data) // 1024} KiB, not embedded</span>'
    text = base64.b64encode(data).decode("ascii")
    name = escape(case.id.replace("/", "_"), quote=True)
    link = f"data:application/octet-stream;base64,{text}"
    return f'<a download="{name}.onnx" href="{link}">.onnx</a>'


# ---------------------------------------------------------------- the table of operators


def _support(results: Results) -> str:
    """Operators and versions down, element types of the first type parameter across."""
    cells: dict[tuple[str, str, int], dict[str, list[Outcome]]] = {}
    for job, verdict in results.pairs:
        if not isinstance(job, Case) or job.subject is None:
            continue
        subject = job.subject
        first = subject.dtypes[min(subject.dtypes)].text if subject.dtypes else "any"
        key = (subject.domain, subject.op_type, subject.since_version)
        cells.setdefault(key, {}).setdefault(first, []).append(verdict.outcome)
    claimed = {
        key: by_type
        for key, by_type in cells.items()
        if any(set(found) - {Outcome.UNSUPPORTED} for found in by_type.values())
    }
    if not claimed:
        return ""
    order = {kind.text: kind.value for kind in DataType}
    types = sorted(
        {t for by_type in claimed.values() for t in by_type}, key=lambda t: order.get(t, 0)
    )
    rows = [
        [escape(f"{domain}.{op_type}" if domain else op_type), str(version)]
        + [_cell(by_type.get(kind)) for kind in types]
        for (domain, op_type, version), by_type in sorted(claimed.items())
    ]
    left_out = len(cells) - len(claimed)
    note = f'<p class="muted">{left_out} operator versions aren\'t claimed at all.</p>'
    table = _table(["Operator", "Version", *types], rows, "support")
    return f"<h2>Operators</h2>\n{table}\n{note if left_out else ''}"


def _cell(outcomes: Sequence[Outcome] | None) -> str:
    if not outcomes:
        return ""
    bad = sum(outcome in BAD for outcome in outcomes)
    good = sum(outcome in (Outcome.PASS, Outcome.WAIVED) for outcome in outcomes)
    if bad:
        return f'<span class="bad" title="{bad} of {len(outcomes)} fail">&#x2717; {bad}</span>'
    if good:
        return f'<span class="good" title="{good} of {len(outcomes)} pass">&#x2713; {good}</span>'
    return '<span class="muted" title="not claimed">&#x2013;</span>'


def _others(results: Results) -> str:
    """What was waived, quarantined or not run, folded away."""
    parts = []
    for kind in (Outcome.WAIVED, Outcome.QUARANTINED, Outcome.NOT_RUN):
        found = [verdict for verdict in results.verdicts if verdict.outcome is kind]
        if not found:
            continue
        rows = [[f"<code>{escape(v.case_id)}</code>", escape(v.reason)] for v in found]
        table = _table(["Case or check", "Reason"], rows)
        head = f"<summary>{len(found)} {_WORDS[kind]}</summary>"
        parts.append(f"<details>{head}{table}</details>")
    return "<h2>Neither passed nor failed</h2>\n" + "\n".join(parts) if parts else ""


def _slowest(results: Results) -> str:
    ordered = sorted(results.verdicts, key=lambda v: (-v.seconds, v.case_id))[:_MOST_SLOW]
    rows = [[f"<code>{escape(v.case_id)}</code>", f"{v.seconds * 1e3:.1f} ms"] for v in ordered]
    return "<h2>Slowest</h2>\n" + _table(["Case or check", "Time"], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of cells that are HTML already."""
    return "\n".join(_table_lines(head, rows, kind))


def _table_lines(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> Iterator[str]:
    yield f'<div class="scroll"><table class="{kind}">' if kind else '<div class="scroll"><table>'
    cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    yield f"<thead><tr>{cells}</tr></thead>\n<tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</tbody></table></div>"


def _tone(kind: Outcome) -> str:
    if kind is Outcome.PASS:
        return "good"
    if kind in BAD or kind is Outcome.NOT_RUN:
        return "bad"
    return "mild" if kind in (Outcome.WAIVED, Outcome.QUARANTINED) else "muted"
