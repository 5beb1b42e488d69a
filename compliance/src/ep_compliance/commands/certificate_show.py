"""`ep certificate show`: what a certificate is bound to and what it grants."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ep_compliance.certificates.grants import (
    Operator,
    granted,
    operator_name,
    schema_versions,
    types_text,
)
from ep_compliance.certificates.signing import signature_path
from ep_compliance.certificates.tables import version_runs
from ep_compliance.commands.output import say, say_json
from ep_core.certificates.file import Certificate, CertificateRow, read_certificate
from ep_core.errors import CertificateError, did_you_mean

__all__ = ["show"]


def show(path: Path, pattern: str, *, as_json: bool) -> int:
    """Write a certificate to stdout.

    Args:
        pattern: a shell pattern for the operators to show; empty for all.

    Raises:
        CertificateError: the file is no certificate, or it has no such operator.
    """
    certificate = read_certificate(path)
    rows = _chosen(certificate.rows, pattern)
    if as_json:
        say_json({**_facts(certificate, path), "rows": [_record(row) for row in rows]})
        return 0
    for name, value in _facts(certificate, path).items():
        if isinstance(value, list):
            say(f"{name:13} {len(value) or 'none'}")
            for item in value:
                say(f"  {_exception(item)}")
        elif isinstance(value, dict):
            say(f"{name:13} {', '.join(f'{k}={v}' for k, v in value.items()) or 'defaults'}")
        else:
            say(f"{name:13} {value}")
    lines = _lines(rows)
    operators = len({name for name, _, _ in lines})
    say(f"\n{operators} operators in {len(rows)} rows, by version and type parameter:")
    widths = [max(len(line[i]) for line in lines) for i in (0, 1)] if lines else [0, 0]
    for name, versions, types in lines:
        say(f"  {name:{widths[0]}}  {versions:{widths[1]}}  {types}".rstrip())
    return 0


def _facts(certificate: Certificate, path: Path) -> dict[str, Any]:
    speed = certificate.speed
    return {
        "provider": certificate.provider,
        "package": f"{certificate.distribution} {certificate.version}",
        "device": certificate.device_fingerprint,
        "level": certificate.level,
        "date": certificate.date,
        "options": dict(certificate.options),
        "waivers": list(certificate.waivers),
        "overrides": list(certificate.overrides),
        "kit": certificate.kit_version,
        "provider API": " to ".join(
            ".".join(map(str, end)) for end in (certificate.api_from, certificate.api_until)
        ),
        "contents": certificate.content_hash,
        "cases": certificate.cases_hash,
        "results": certificate.results_hash,
        "speed": "not declared" if speed is None else dataclasses.asdict(speed),
        "signature": "beside it, not looked at" if signature_path(path).exists() else "none",
    }


def _exception(item: object) -> str:
    """A waiver or an override on one line."""
    if not isinstance(item, dict):
        return str(item)
    if "case" in item:
        return f"{item['case']}: {item.get('reason')}"
    reason = f"{item.get('id')}: {item.get('reason')}"
    return f"{reason} ({item.get('owner')}, until {item.get('expires')})"


def _chosen(rows: Sequence[CertificateRow], pattern: str) -> list[CertificateRow]:
    if not pattern:
        return list(rows)
    names = {operator_name((row.domain, row.op_type)) for row in rows}
    chosen = {name for name in names if fnmatchcase(name, pattern)}
    if not chosen:
        raise CertificateError(
            f"it grants no operator {pattern!r}", fix=did_you_mean(pattern, sorted(names))
        )
    return [row for row in rows if operator_name((row.domain, row.op_type)) in chosen]


def _lines(rows: Sequence[CertificateRow]) -> list[tuple[str, str, str]]:
    """Operator, versions and types, one line for adjacent versions that grant the same."""
    lines = []
    for operator, by_version in granted(rows).items():
        texts = {v: types_text(operator, v, types) for v, types in by_version.items()}
        known = sorted({*schema_versions(operator), *by_version})
        for first, last, text in version_runs(known, texts):
            versions = str(first) if first == last else f"{first} to {last}"
            note = _note(rows, operator, first, last)
            lines.append((operator_name(operator), versions, text + note))
    return lines


def _note(rows: Sequence[CertificateRow], operator: Operator, first: int, last: int) -> str:
    """What else the certificate says of these versions, such as `  [1 waived]`."""
    found = {
        row.predicate
        for row in rows
        if (row.domain, row.op_type) == operator and row.since <= last and first <= row.until
    } - {""}
    return f"  [{'; '.join(sorted(found))}]" if found else ""


def _record(row: CertificateRow) -> dict[str, Any]:
    """A row as it stands in the file."""
    return {
        "domain": row.domain,
        "op_type": row.op_type,
        "since": row.since,
        "until": row.until,
        "inputs": [None if types is None else sorted(types) for types in row.inputs],
        "outputs": [None if types is None else sorted(types) for types in row.outputs],
        "predicate": row.predicate,
    }
