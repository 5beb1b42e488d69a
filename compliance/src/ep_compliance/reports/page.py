"""The report for people: one HTML page that needs nothing else, failing models included.

What stands in its parts is in `pages`; here is their order, and what comes first: the verdict and
the failures. It stays below 3 MB, whatever fails; what is left out is in `report.json`.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence

from ep_compliance.cases.case import Case
from ep_compliance.reports.pages.details import (
    binding,
    checks,
    costs,
    exceptions,
    facts,
    times,
    undecided,
)
from ep_compliance.reports.pages.frame import WORDS, code, document, section, shown, table, tone
from ep_compliance.reports.pages.support import support
from ep_compliance.running.jobs import Job
from ep_compliance.running.outcomes import Outcome
from ep_compliance.running.results import Results

__all__ = ["html_page"]

_MOST_MODEL_BYTES = 256 * 1024
"""Larger models would make the page unwieldy; their ids are enough to make them again."""

_MOST_BYTES = 768 * 1024
"""Of all models together."""

_MOST_FAILURES = 1000


def html_page(results: Results, files: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return the page.

    Args:
        files: of failing cases by case id, relative to the page; see `failures.save_failures`.
    """
    title = f"Compliance of {results.target.provider}"
    parts = {
        "failures": ("Failures", _failures(results, files or {})),
        "operators": ("Operators", support(results)),
        "checks": ("Contract checks", checks(results)),
        "exceptions": ("Waivers and overrides", exceptions(results)),
        "undecided": ("Undecided", undecided(results)),
        "times": ("Time and memory", times(results)),
        "costs": ("Estimates of cost", costs(results)),
        "certificate": ("Certificate", binding(results)),
    }
    there = {name: heading for name, (heading, content) in parts.items() if content}
    links = "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading in there.items())
    first = next(iter(there))
    body = [
        f'<a class="skip" href="#{first}">Skip to {there[first].lower()}</a>',
        f"<header>{_head(results, title)}\n{_tiles(results)}\n{_problems(results)}</header>",
        f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>',
        f"<main>{''.join(content for _, content in parts.values())}</main>",
    ]
    return document(title, "\n".join(body))


def _head(results: Results, title: str) -> str:
    if results.passed:
        verdict = '<p class="verdict good">Passed: everything that it claims, it does.</p>'
    else:
        verdict = f'<p class="verdict bad">Not passed: {_reasons(results)}.</p>'
    device = results.device
    options = ", ".join(f"{k}={v}" for k, v in results.target.options.items())
    items = {
        "Device": ", ".join(filter(None, (device.name, device.kind, device.vendor))),
        "Fingerprint": device.fingerprint,
        **{name: str(text) for name, text in device.properties.items()},
        "Options": options or "defaults",
        "Arithmetic": _arithmetic(results),
        "Level": results.level.name.lower(),
        "Date": results.date,
        "Kit": results.kit_version,
    }
    return f"<h1>{shown(title)}</h1>\n{verdict}\n{facts(items)}"


def _reasons(results: Results) -> str:
    """How much speaks against it."""
    count = len(results.failures)
    if not count:
        return "nothing failed, but the run doesn't count"
    return "1 failure" if count == 1 else f"{count} failures"


def _arithmetic(results: Results) -> str:
    """What the provider declares about its numbers."""
    if results.numerics is None:
        return "not known, as it was never opened"
    declared = [name for name, yes in dataclasses.asdict(results.numerics).items() if yes]
    return ", ".join(declared).replace("_", " ") or "as IEEE 754 has it"


def _tiles(results: Results) -> str:
    tiles = [
        f'<li class="{tone(kind)}"><b>{results.counts[kind]}</b>{WORDS[kind]}</li>'
        for kind in Outcome
        if results.counts[kind]
    ]
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _problems(results: Results) -> str:
    if not results.blockers:
        return ""
    items = "".join(f"<li>{shown(text)}</li>" for text in results.blockers)
    return f'<h2>Why there is no certificate</h2>\n<ul class="bad">{items}</ul>'


# ---------------------------------------------------------------- failures


def _failures(results: Results, files: Mapping[str, Sequence[str]]) -> str:
    rows = []
    left = _MOST_BYTES
    for job, verdict in results.failures[:_MOST_FAILURES]:
        link, size = _download(job, left)
        left -= size
        outcome = f'<span class="bad">{WORDS[verdict.outcome]}</span>'
        link += _links(files.get(verdict.case_id, ()))
        rows.append([code(verdict.case_id), outcome, shown(verdict.reason), link])
    if not rows:
        return ""
    listed = table(
        "failures", ["Case or check", "Result", "Reason", "Model"], rows, search="float16 Conv"
    )
    if len(results.failures) > len(rows):
        listed += f'<p class="note">{len(results.failures) - len(rows)} more in report.json.</p>'
    return section("failures", "Failures", listed)


def _links(paths: Sequence[str]) -> str:
    """The files of a case, named as in its folder, which is two levels down."""
    if not paths:
        return ""
    items = "".join(
        f'<li><a href="{shown(path)}">{shown(path.split("/", 2)[-1])}</a></li>' for path in paths
    )
    return f"<details><summary>files</summary><ul>{items}</ul></details>"


def _download(job: Job, most_bytes: int) -> tuple[str, int]:
    """The case's model as a link that holds it, and how long that is."""
    if not isinstance(job, Case):
        return "", 0
    data = job.model.SerializeToString(deterministic=True)
    text = base64.b64encode(data).decode("ascii")
    if len(data) > _MOST_MODEL_BYTES or len(text) > most_bytes:
        return f'<span class="muted">{len(data) / 1024:.1f} KiB, not embedded</span>', 0
    name = shown(job.id.replace("/", "_"))
    link = f"data:application/octet-stream;base64,{text}"
    return f'<a download="{name}.onnx" href="{link}">.onnx</a>', len(text)
