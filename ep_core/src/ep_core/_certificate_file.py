"""The certificate file: its shape, and reading it strictly. What it grants is decided elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from ep_core.errors import CertificateError, did_you_mean

__all__ = ["Certificate", "CertificateRow", "Waiver", "read_certificate"]

_FORMAT = 1
_MAX_BYTES = 64 * 2**20
_CERTIFICATE: Mapping[str, type] = {
    "format": int,
    "provider": str,
    "distribution": str,
    "version": str,
    "content_hash": str,
    "api_from": list,
    "api_until": list,
    "device_fingerprint": str,
    "kit_version": str,
    "cases_hash": str,
    "results_hash": str,
    "options": dict,
    "waivers": list,
    "rows": list,
}
_ROW: Mapping[str, type] = {
    "domain": str,
    "op_type": str,
    "since": int,
    "until": int,
    "inputs": list,
    "outputs": list,
    "predicate": str,
}
_WAIVER: Mapping[str, type] = {"id": str, "reason": str, "owner": str, "expires": str}


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """Nodes that are granted.

    Attributes:
        since, until: range of schema versions, both ends included.
        inputs, outputs: allowed ONNX type strings (`tensor(float)`) by position, None for any;
            the last entry also stands for all later positions.
        predicate: what else held of the cases, as text; the provider's own capability checks it.
    """

    domain: str
    op_type: str
    since: int
    until: int
    inputs: tuple[frozenset[str] | None, ...]
    outputs: tuple[frozenset[str] | None, ...]
    predicate: str = ""


@dataclass(frozen=True, slots=True)
class Waiver:
    """A case the provider was excused from, until the day it expires."""

    id: str
    reason: str
    owner: str
    expires: date


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate file: what it is bound to, and the rows it grants.

    Attributes:
        content_hash: of the distribution, see the function of that name.
        api_from, api_until: versions of the provider API it holds for, both ends included.
        device_fingerprint: `DeviceInfo.fingerprint` of the device it was made on.
        options: the provider's options that bear on numerics, as they were.
    """

    provider: str
    distribution: str
    version: str
    content_hash: str
    api_from: tuple[int, int]
    api_until: tuple[int, int]
    device_fingerprint: str
    kit_version: str
    cases_hash: str
    results_hash: str
    options: Mapping[str, Any]
    waivers: tuple[Waiver, ...]
    rows: tuple[CertificateRow, ...]


def read_certificate(path: Path) -> Certificate:
    """Read a certificate file.

    Raises:
        CertificateError: the file can't be read, isn't JSON of exactly the expected shape, is of
            another format version, or contradicts itself.
    """
    where = str(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CertificateError(f"{where} is too large", expected=f"{_MAX_BYTES} bytes at most")
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise CertificateError(f"can't read {where}: {error}") from error
    if isinstance(data, dict) and data.get("format") != _FORMAT:
        raise CertificateError(
            f"{where}: format of the certificate", expected=_FORMAT, got=repr(data.get("format"))
        )
    fields = _shaped(data, _CERTIFICATE, where)
    del fields["format"]
    for end in ("api_from", "api_until"):
        fields[end] = _version(fields[end], f"{where}: {end}")
    if fields["api_from"] > fields["api_until"]:
        raise CertificateError(f"{where}: api_from is later than api_until")
    waivers, rows = fields["waivers"], fields["rows"]
    fields["waivers"] = tuple(_waiver(w, f"{where}: waivers[{i}]") for i, w in enumerate(waivers))
    fields["rows"] = tuple(_row(row, f"{where}: rows[{i}]") for i, row in enumerate(rows))
    return Certificate(**fields)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _shaped(data: object, kinds: Mapping[str, type], where: str) -> dict[str, Any]:
    """Return an object that has exactly the given keys, each of exactly the given type."""
    if not isinstance(data, dict):
        raise CertificateError(where, expected="an object", got=type(data).__name__)
    for key in data:
        if key not in kinds:
            raise CertificateError(f"{where}: unknown key {key!r}", fix=did_you_mean(key, kinds))
    for key, kind in kinds.items():
        if key not in data:
            raise CertificateError(f"{where}: key {key!r} is missing")
        # `type() is`, as bool would pass for an int.
        if type(data[key]) is not kind:
            got = type(data[key]).__name__
            raise CertificateError(f"{where}: {key}", expected=kind.__name__, got=got)
    return dict(data)


def _version(value: list[Any], where: str) -> tuple[int, int]:
    if len(value) != 2 or not all(type(number) is int for number in value):
        raise CertificateError(where, expected="two integers", got=value)
    return value[0], value[1]


def _waiver(data: object, where: str) -> Waiver:
    fields = _shaped(data, _WAIVER, where)
    try:
        fields["expires"] = date.fromisoformat(fields["expires"])
    except ValueError as error:
        raise CertificateError(f"{where}: expires: {error}", expected="a date") from error
    return Waiver(**fields)


def _row(data: object, where: str) -> CertificateRow:
    fields = _shaped(data, _ROW, where)
    if not 1 <= fields["since"] <= fields["until"]:
        got = f"{fields['since']} to {fields['until']}"
        raise CertificateError(f"{where}: versions", expected="1 <= since <= until", got=got)
    for side in ("inputs", "outputs"):
        fields[side] = tuple(_types(item, f"{where}: {side}") for item in fields[side])
    return CertificateRow(**fields)


def _types(item: object, where: str) -> frozenset[str] | None:
    if item is None:
        return None
    if not isinstance(item, list) or not all(isinstance(text, str) for text in item):
        raise CertificateError(where, expected="lists of ONNX type strings, or null", got=item)
    return frozenset(item)
