"""What every part of the page is made of: the frame with style and script, tables, amounts.

Everything that comes from outside goes through `shown` before it gets here; functions that take
HTML say so.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from ep_compliance.reports.pages.assets import SCRIPT, STYLE
from ep_compliance.running.outcomes import Outcome
from ep_compliance.running.results import BAD
from ep_compliance.texts import printable

__all__ = [
    "WORDS",
    "code",
    "document",
    "duration",
    "megabytes",
    "section",
    "shown",
    "table",
    "tone",
]

WORDS = {
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.UNSUPPORTED: "not claimed",
    Outcome.WAIVED: "waived",
    Outcome.NOT_RUN: "not run",
    Outcome.CRASH: "crashed",
    Outcome.TIMEOUT: "timed out",
    Outcome.QUARANTINED: "quarantined",
}
"""What to call an outcome."""


def document(title: str, body: str) -> str:
    """A whole page around a body of HTML; nothing in it is allowed to load anything."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{body}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def section(identifier: str, heading: str, content: str) -> str:
    """A part of the page with its heading; nothing without content. `content` is HTML."""
    if not content:
        return ""
    return (
        f'<section aria-labelledby="{identifier}"><h2 id="{identifier}">{shown(heading)}</h2>\n'
        f"{content}\n</section>"
    )


def table(
    identifier: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    search: str = "",
) -> str:
    """A table.

    Args:
        identifier: unique on the page.
        head: of the columns, as text.
        rows: of cells that are HTML.
        numbers: columns whose cells stand to the right.
        search: what to search for in it; none is offered where that is empty.
    """
    kinds = [' class="number"' if place in numbers else "" for place in range(len(head))]
    names = "".join(
        f'<th scope="col"{kind}>{shown(text)}</th>' for kind, text in zip(kinds, head, strict=True)
    )
    labels = [f' data-label="{shown(text)}"{kind}' for kind, text in zip(kinds, head, strict=True)]
    lines = [
        "<tr>"
        + "".join(f"<td{label}>{cell}</td>" for label, cell in zip(labels, row, strict=True))
        + "</tr>"
        for row in rows
    ]
    body = "\n".join(lines)
    return (
        f"{_search(identifier, search, len(lines))}"
        f'<div class="scroll" role="region" aria-labelledby="{identifier}-head" tabindex="0">\n'
        f'<table id="{identifier}-table"><thead id="{identifier}-head"><tr>{names}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _search(identifier: str, what: str, count: int) -> str:
    if not what:
        return ""
    return (
        f'<p class="search"><label>Search <input type="search" data-table="{identifier}-table" '
        f'placeholder="{shown(what)}"></label> <output>{count} rows</output></p>\n'
    )


def shown(text: str) -> str:
    """A text as HTML, wherever it comes from and wherever it goes: element or attribute."""
    return escape(printable(text))


def code(text: str) -> str:
    """A text as HTML, in the letters of code."""
    return f"<code>{shown(text)}</code>"


def duration(seconds: float | None) -> str:
    """`1.25 s`, `3.40 ms`, `12.0 µs`; a dash for None."""
    if seconds is None:
        return "\u2013"
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds * 1e6)} \u00b5s"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def megabytes(count: int | None) -> str:
    """`123 MiB`; says so where it isn't known."""
    return "not known" if count is None else f"{count / 2**20:.0f} MiB"


def tone(kind: Outcome) -> str:
    """The class of an outcome's colour."""
    if kind is Outcome.PASS:
        return "good"
    if kind in BAD or kind is Outcome.NOT_RUN:
        return "bad"
    return "mild" if kind in (Outcome.WAIVED, Outcome.QUARANTINED) else "muted"
