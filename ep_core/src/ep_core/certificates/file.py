"""The certificate file: its shape, and reading it strictly. What it grants is decided elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from ep_core.errors import CertificateError, ContractError, did_you_mean
from ep_core.types import DeviceSpeed

_FORMAT = 1
_MAX_BYTES = 64 * 2**20
_JSON_KINDS = {"str": str, "int": int, "float": float, "Mapping[str, Any]": dict}
_JSON_KINDS["DeviceSpeed | None"] = dict
"""What an annotation of the classes below is in JSON; any other is a list."""


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
    predicate: str


@dataclass(frozen=True)
class Certificate:
    """One certificate file: what it is bound to, and the rows it grants.

    Attributes:
        content_hash: of the distribution, see `ep_core.certificates.content.content_hash`.
        api_from, api_until: versions of the provider API it holds for, both ends included.
        device_fingerprint: `DeviceInfo.fingerprint` of the device it was made on.
        kit_version, cases_hash, results_hash: how it came about, for a person to read.
        waivers, overrides: likewise; failures and inaccuracies that were let through.
        level: how thorough the run was: `mustpass`, `full` or `soak`.
        date: the day it was made, as `2030-12-31`.
        options: the provider's options that bear on numerics, with their values as text.
        speed: as the device declared it, for predicting times where the device isn't. It grants
            and binds nothing; a file needn't have it.
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
    level: str
    date: str
    options: Mapping[str, Any]
    waivers: tuple[Any, ...]
    overrides: tuple[Any, ...]
    rows: tuple[CertificateRow, ...]
    speed: DeviceSpeed | None = None

    @cached_property
    def by_operator(self) -> Mapping[tuple[str, str], Sequence[CertificateRow]]:
        """Rows by domain and operator."""
        found: dict[tuple[str, str], list[CertificateRow]] = {}
        for row in self.rows:
            found.setdefault((row.domain, row.op_type), []).append(row)
        return found


def read_certificate(path: Path) -> Certificate:
    """Read a certificate file: an object with `format` 1 and the fields of `Certificate`.

    Raises:
        CertificateError: the file can't be read, isn't JSON of exactly the expected shape, is of
            another format version, or contradicts itself.
    """
    where = str(path)
    try:
        if not path.is_file():
            raise CertificateError(f"can't read {where}: it is no file")
        if path.stat().st_size > _MAX_BYTES:
            raise CertificateError(f"{where} is too large", expected=f"{_MAX_BYTES} bytes at most")
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise CertificateError(f"can't read {where}: {error}") from error
    version = data.pop("format", None) if isinstance(data, dict) else None
    if type(version) is not int or version != _FORMAT:
        raise CertificateError(f"{where}: format", expected=_FORMAT, got=repr(version))
    values = _shaped(data, Certificate, where)
    for end in ("api_from", "api_until"):
        values[end] = _version(values[end], f"{where}: {end}")
    if values["api_from"] > values["api_until"]:
        raise CertificateError(f"{where}: api_from is later than api_until")
    rows = enumerate(values["rows"])
    values["rows"] = tuple(_row(row, f"{where}: rows[{i}]") for i, row in rows)
    if "speed" in values:
        values["speed"] = _speed(values["speed"], f"{where}: speed")
    values["waivers"] = tuple(values["waivers"])
    values["overrides"] = tuple(values["overrides"])
    return Certificate(**values)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _shaped(data: object, shape: type, where: str) -> dict[str, Any]:
    """Return an object that has exactly the fields of a class, each of the JSON type it needs.

    Fields that have a default may be missing.
    """
    if not isinstance(data, dict):
        raise CertificateError(where, expected="an object", got=type(data).__name__)
    kinds = {item.name: _JSON_KINDS.get(str(item.type), list) for item in fields(shape)}
    for key in data:
        if key not in kinds:
            raise CertificateError(f"{where}: unknown key {key!r}", fix=did_you_mean(key, kinds))
    for item in fields(shape):
        key, kind = item.name, kinds[item.name]
        if key not in data:
            if item.default is MISSING:
                raise CertificateError(f"{where}: key {key!r} is missing")
        # `type() is`, as bool would pass for an int.
        elif type(data[key]) is not kind:
            got = type(data[key]).__name__
            raise CertificateError(f"{where}: {key}", expected=kind.__name__, got=got)
    return dict(data)


def _version(value: list[Any], where: str) -> tuple[int, int]:
    if len(value) != 2 or not all(type(number) is int for number in value):
        raise CertificateError(where, expected="two integers", got=value)
    return value[0], value[1]


def _speed(data: Mapping[str, Any], where: str) -> DeviceSpeed:
    try:
        numbers = {key: float(v) if type(v) is int else v for key, v in data.items()}
        return DeviceSpeed(**_shaped(numbers, DeviceSpeed, where))
    except (ContractError, OverflowError) as error:
        raise CertificateError(f"{where}: {error}") from error


def _row(data: object, where: str) -> CertificateRow:
    values = _shaped(data, CertificateRow, where)
    if not 1 <= values["since"] <= values["until"]:
        got = f"{values['since']} to {values['until']}"
        raise CertificateError(f"{where}: versions", expected="1 <= since <= until", got=got)
    for side in ("inputs", "outputs"):
        values[side] = tuple(_types(item, f"{where}: {side}") for item in values[side])
    return CertificateRow(**values)


def _types(item: object, where: str) -> frozenset[str] | None:
    if item is None:
        return None
    if not isinstance(item, list) or not all(isinstance(text, str) for text in item):
        raise CertificateError(where, expected="lists of ONNX type strings, or null", got=item)
    return frozenset(item)
