"""What one certificate or report grants and another doesn't, by operator, version and types.

Compared are the nodes that are granted, not the rows: how rows are cut makes no difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ep_compliance.cases.signatures import signatures_of
from ep_compliance.certificates.boxes import Box, Layout, beyond
from ep_compliance.certificates.grants import Operator, operator_name, type_words
from ep_core.certificates.file import Certificate, CertificateRow, read_certificate
from ep_core.errors import CertificateError

__all__ = [
    "Change",
    "Coverage",
    "Difference",
    "coverage_of",
    "difference",
    "read_coverage",
    "row_of",
]

_MAX_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a certificate grants, or what the cases of a report have shown.

    Attributes:
        device: its fingerprint.
    """

    provider: str
    device: str
    level: str
    date: str
    rows: tuple[CertificateRow, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Nodes that one side grants and the other doesn't.

    Attributes:
        versions: of the operator's schema.
        inputs, outputs: ONNX type strings by position, `any` for all, none where it grants no
            value. Positions of one type parameter have the same type in a node.
    """

    domain: str
    op_type: str
    versions: tuple[int, ...]
    inputs: Box
    outputs: Box

    def __str__(self) -> str:
        """`Mul 7, 13: (float, float) -> (float)`."""
        name = operator_name((self.domain, self.op_type))
        versions = ", ".join(map(str, self.versions))
        inputs, outputs = (
            ", ".join(type_words(types, "|") for types in side)
            for side in (self.inputs, self.outputs)
        )
        return f"{name} {versions}: ({inputs}) -> ({outputs})"


@dataclass(frozen=True, slots=True)
class Difference:
    """What was lost and what was gained, by operator."""

    lost: tuple[Change, ...]
    gained: tuple[Change, ...]


# ---------------------------------------------------------------- reading


def read_coverage(path: Path) -> Coverage:
    """Read a certificate, or the `report.json` of a run.

    Raises:
        CertificateError: the file can't be read or is neither.
    """
    data = _json(path)
    if isinstance(data, dict) and "verdicts" in data:
        return _of_report(data, path)
    return coverage_of(read_certificate(path))


def coverage_of(certificate: Certificate) -> Coverage:
    """What a certificate grants."""
    return Coverage(
        certificate.provider,
        certificate.device_fingerprint,
        certificate.level,
        certificate.date,
        certificate.rows,
    )


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CertificateError(f"{path} is too large", expected=f"{_MAX_BYTES} bytes at most")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CertificateError(
            f"can't read {path}: {error}", expected="a certificate, or the report.json of a run"
        ) from error


def _of_report(data: Mapping[str, Any], path: Path) -> Coverage:
    device = data.get("device")
    fingerprint = device.get("fingerprint") if isinstance(device, dict) else None
    texts = [data.get("provider"), fingerprint, data.get("level"), data.get("date")]
    rows = data.get("rows")
    if not isinstance(rows, list) or not all(isinstance(text, str) for text in texts):
        raise CertificateError(
            f"{path} isn't a report of this kit",
            expected="provider, device, level, date and rows",
            fix="Make it again with `ep certify`.",
        )
    provider, fingerprint, level, date = map(str, texts)
    found = tuple(row_of(row, str(path)) for row in rows)
    return Coverage(provider, fingerprint, level, date, found)


def row_of(record: Any, where: str) -> CertificateRow:
    """Return a row from the form it has in JSON.

    Raises:
        CertificateError: it isn't one.
    """
    try:
        sides = [
            tuple(None if types is None else frozenset(map(str, types)) for types in record[side])
            for side in ("inputs", "outputs")
        ]
        texts = (str(record["domain"]), str(record["op_type"]))
        since, until = int(record["since"]), int(record["until"])
        return CertificateRow(*texts, since, until, sides[0], sides[1], str(record["predicate"]))
    except (KeyError, TypeError, ValueError) as error:
        got = json.dumps(record)[:100]
        raise CertificateError(f"{where}: what isn't a row stands among rows", got=got) from error


# ---------------------------------------------------------------- comparing


def difference(old: Sequence[CertificateRow], new: Sequence[CertificateRow]) -> Difference:
    """Compare what two lists of rows grant.

    Raises:
        CertificateError: rows overlap in more ways than any run of the kit makes.
    """
    before, after = _by_operator(old), _by_operator(new)
    lost: list[Change] = []
    gained: list[Change] = []
    for operator in sorted(before.keys() | after.keys()):
        sides = before.get(operator, []), after.get(operator, [])
        for found, (ours, others) in ((lost, sides), (gained, sides[::-1])):
            found += _changes(operator, ours, others)
    return Difference(tuple(lost), tuple(gained))


def _by_operator(rows: Sequence[CertificateRow]) -> dict[Operator, list[CertificateRow]]:
    found: dict[Operator, list[CertificateRow]] = {}
    for row in rows:
        found.setdefault((row.domain, row.op_type), []).append(row)
    return found


def _changes(
    operator: Operator, ours: Sequence[CertificateRow], others: Sequence[CertificateRow]
) -> Iterator[Change]:
    """What one side grants beyond the other, versions with the same change together."""
    signatures = {signature.since_version: signature for signature in signatures_of(*operator)}
    ends = {end for row in (*ours, *others) for end in (row.since, row.until)}
    versions: dict[tuple[Box, Box], list[int]] = {}
    for version in sorted(ends | signatures.keys()):
        mine, theirs = (
            [row for row in rows if row.since <= version <= row.until] for rows in (ours, others)
        )
        layout = Layout.of(signatures.get(version), [*mine, *theirs])
        boxes = [
            list(dict.fromkeys(box for row in rows for box in layout.boxes(row)))
            for rows in (mine, theirs)
        ]
        for box in beyond(*boxes):
            versions.setdefault(layout.sides(box), []).append(version)
    for (inputs, outputs), found in sorted(versions.items(), key=_order):
        yield Change(*operator, tuple(found), inputs, outputs)


def _order(item: tuple[tuple[Box, Box], list[int]]) -> tuple[list[int], list[list[str]]]:
    (inputs, outputs), versions = item
    return versions, [sorted(kinds) for kinds in (*inputs, *outputs)]
