"""Tables of what providers are certified for: operators down, certificates across.

A cell compares with the operator's schemas, so that it can be short: `all` is everything they have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ep_compliance.certificates.grants import (
    Operator,
    Types,
    by_parameter,
    granted,
    operators_in,
    schema_types,
    schema_versions,
    type_words,
    types_text,
)
from ep_core.certificates.file import Certificate

__all__ = [
    "SupportTable",
    "column_heads",
    "markdown_tables",
    "support_tables",
    "text_tables",
    "version_runs",
]

_ALL = "all"
_MOST_LETTERS = 48


@dataclass(frozen=True, slots=True)
class SupportTable:
    """The operators of one domain that a provider at least is certified for.

    Attributes:
        cells: by operator, one text per certificate, empty where it grants nothing.
        versions, types: of the schemas, as text; types of the newest.
        missing: operators of the standard that no certificate grants.
    """

    domain: str
    cells: Mapping[str, Sequence[str]]
    versions: Mapping[str, str]
    types: Mapping[str, str]
    missing: Sequence[str]


def support_tables(certificates: Sequence[Certificate]) -> list[SupportTable]:
    """One table for each domain that a certificate has rows of."""
    grants = [granted(certificate.rows) for certificate in certificates]
    domains = sorted({domain for found in grants for domain, _ in found})
    return [_table(domain, grants) for domain in domains]


def _table(domain: str, grants: Sequence[Mapping[Operator, Mapping[int, Types]]]) -> SupportTable:
    names = sorted({name for found in grants for owner, name in found if owner == domain})
    known = {name: schema_versions((domain, name)) for name in names}
    newest = {n: schema_types((domain, n), found[-1]) for n, found in known.items() if found}
    return SupportTable(
        domain,
        {
            name: [_cell((domain, name), found.get((domain, name), {})) for found in grants]
            for name in names
        },
        {name: ", ".join(map(str, found)) for name, found in known.items()},
        {name: types_text((domain, name), known[name][-1], newest[name]) for name in newest},
        sorted(set(operators_in(domain)) - set(names)),
    )


def _cell(operator: Operator, by_version: Mapping[int, Types]) -> str:
    """`all`, `from 7: floats` or `9: float · 13 to 21: all`."""
    known = sorted({*schema_versions(operator), *by_version})
    plain = {v: _compared(operator, v, types, _plain) for v, types in by_version.items()}
    short = {v: _compared(operator, v, types, _part) for v, types in by_version.items()}
    labels: dict[int, str] = {}
    for first, last, text in version_runs(known, plain):
        # `all but` means something else in each version, so it must not part equal types.
        versions = [version for version in known if first <= version <= last]
        shorter = {short[version] for version in versions}
        labels |= dict.fromkeys(versions, shorter.pop() if len(shorter) == 1 else text)
    runs = version_runs(known, labels)
    if [text for _, _, text in runs] == [_ALL]:
        return _span(*runs[0][:2], known) or _ALL
    parts = []
    for first, last, text in runs:
        span = _span(first, last, known)
        parts.append(f"{span}: {text}" if span else text)
    return " · ".join(parts)


def _compared(
    operator: Operator,
    version: int,
    types: Types,
    words: Callable[[frozenset[str], frozenset[str]], str],
) -> str:
    """`all` for everything that the schema has; else the parameters that fall short of it.

    Args:
        words: makes a text of the types that are granted and those that the schema allows.
    """
    allowed = schema_types(operator, version)
    if not allowed and types:
        return types_text(operator, version, types)
    short = {
        name: words(types.get(name, frozenset()), kinds)
        for name, kinds in sorted(allowed.items())
        if not kinds <= types.get(name, frozenset())
    }
    if len(allowed) == 1:
        return by_parameter(short) or _ALL
    return "; ".join(f"{name}: {text}" for name, text in short.items()) or _ALL


def _plain(granted_types: frozenset[str], allowed: frozenset[str]) -> str:
    return type_words(granted_types)


def _part(granted_types: frozenset[str], allowed: frozenset[str]) -> str:
    """What is granted, or `all but` what isn't, whichever is shorter."""
    plain = type_words(granted_types)
    left_out = f"{_ALL} but {type_words(allowed - granted_types)}"
    return left_out if granted_types and len(left_out) < len(plain) else plain


def version_runs(known: Sequence[int], texts: Mapping[int, str]) -> list[tuple[int, int, str]]:
    """First and last version of each stretch of versions with the same text."""
    runs: list[tuple[int, int, str]] = []
    before: str | None = None
    for version in known:
        text = texts.get(version)
        if text is not None and text == before:
            runs[-1] = (runs[-1][0], version, text)
        elif text is not None:
            runs.append((version, version, text))
        before = text
    return runs


def _span(first: int, last: int, known: Sequence[int]) -> str:
    if last == known[-1]:
        return f"from {first}" if first != known[0] else ""
    return f"{first} to {last}" if first != last else str(first)


def column_heads(certificates: Sequence[Certificate]) -> list[str]:
    """A head for each certificate: its provider, numbered where there are several."""
    names = [certificate.provider for certificate in certificates]
    return [
        f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name
        for i, name in enumerate(names)
    ]


def markdown_tables(certificates: Sequence[Certificate]) -> str:
    """The tables as Markdown, one section per domain."""
    heads = column_heads(certificates)
    lines: list[str] = []
    for table in support_tables(certificates):
        lines += [f"## {table.domain or 'ai.onnx'}", "", f"{len(table.cells)} operators.", ""]
        lines += [f"| Operator | Versions | Types | {' | '.join(heads)} |"]
        lines += ["|---" * (3 + len(heads)) + "|"]
        for name, cells in table.cells.items():
            known = f"{table.versions[name]} | {table.types.get(name, '')}"
            lines.append(f"| {name} | {known} | {' | '.join(cells)} |")
        if table.missing:
            lines += ["", f"Nobody is certified for: {', '.join(table.missing)}."]
        lines.append("")
    return "\n".join(lines)


def text_tables(certificates: Sequence[Certificate]) -> str:
    """The tables for a terminal; long cells are cut short."""
    heads = ["Operator", *column_heads(certificates)]
    parts = []
    for table in support_tables(certificates):
        rows = [heads, *([name, *map(_short, cells)] for name, cells in table.cells.items())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        title = f"{table.domain or 'ai.onnx'}: {len(table.cells)} operators"
        missing = f"\nnobody is certified for: {', '.join(table.missing)}" if table.missing else ""
        parts.append("\n".join([title, *lines]) + missing)
    return "\n\n".join(parts) + "\n"


def _short(cell: str) -> str:
    return cell if len(cell) <= _MOST_LETTERS else f"{cell[: _MOST_LETTERS - 3]}..."
