"""`ep certificate show|verify|diff`: looks at certificates that there are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ep_core.contracts import Command
from ep_core.discovery.certificate import find_certificate
from ep_core.discovery.certificate_file import Certificate, CertificateRow, read_certificate
from ep_core.discovery.options import parse_options
from ep_core.discovery.registry import registry
from ep_core.errors import CertificateError
from ep_core.hookspecs import hookimpl

__all__ = ["CertificateCommand", "ep_commands"]

_EPILOG = """\
examples:
  ep certificate show mychip.json           what it is bound to and what it grants
  ep certificate verify mychip              whether an installed provider has one that fits
  ep certificate diff old.json new.json     what was gained and lost; exit code 1 for a loss
"""


class CertificateCommand:
    """Shows, verifies and compares certificates."""

    name = "certificate"
    help = "show, verify or compare certificates of providers"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
        show = actions.add_parser("show", help="what a certificate grants")
        show.add_argument("file", type=Path, metavar="FILE")
        verify = actions.add_parser("verify", help="whether a provider has one that fits")
        verify.add_argument("provider", metavar="NAME")
        verify.add_argument("--device", default="", metavar="ID", help="default: every device")
        diff = actions.add_parser("diff", help="what one grants and another doesn't")
        diff.add_argument("old", type=Path, metavar="OLD")
        diff.add_argument("new", type=Path, metavar="NEW")

    def run(self, args: argparse.Namespace) -> int:
        if args.action == "show":
            return _show(read_certificate(args.file))
        if args.action == "verify":
            return _verify(args.provider, args.device)
        return _diff(read_certificate(args.old), read_certificate(args.new))


def _show(certificate: Certificate) -> int:
    options = ", ".join(f"{k}={v}" for k, v in certificate.options.items()) or "defaults"
    api = " to ".join(".".join(map(str, v)) for v in (certificate.api_from, certificate.api_until))
    for name, text in [
        ("provider", certificate.provider),
        ("package", f"{certificate.distribution} {certificate.version}"),
        ("contents", certificate.content_hash),
        ("provider API", api),
        ("device", certificate.device_fingerprint),
        ("options", options),
        ("kit", certificate.kit_version),
        ("cases", certificate.cases_hash),
        ("results", certificate.results_hash),
        ("waivers", str(len(certificate.waivers))),
    ]:
        _say(f"{name:13} {text}")
    for waiver in certificate.waivers:
        _say(f"  waived: {waiver}")
    _say(f"\n{len(certificate.rows)} rows:")
    for row in certificate.rows:
        _say(f"  {_describe(row)}")
    return 0


def _describe(row: CertificateRow) -> str:
    name = f"{row.domain}.{row.op_type}" if row.domain else row.op_type
    versions = str(row.since) if row.since == row.until else f"{row.since}..{row.until}"
    inputs = ", ".join(_types(types) for types in row.inputs)
    outputs = ", ".join(_types(types) for types in row.outputs)
    note = f"  [{row.predicate}]" if row.predicate else ""
    return f"{name} {versions}: ({inputs}) -> ({outputs}){note}"


def _types(types: frozenset[str] | None) -> str:
    if types is None:
        return "any"
    plain = [text.removeprefix("tensor(").removesuffix(")") for text in types]
    return "|".join(sorted(plain)) or "none"


def _verify(provider: str, device_id: str) -> int:
    status = registry().status(provider)
    factory = registry().factory(provider)
    distribution = registry().distribution(provider)
    options = parse_options(factory.info, {})
    devices = [d for d in status.devices if not device_id or d.id == device_id]
    if not devices:
        known = ", ".join(device.id for device in status.devices)
        raise CertificateError(f"{provider!r} has no device {device_id!r}", fix=f"Known: {known}.")
    missing = 0
    for device in devices:
        found, reason = find_certificate(factory.info, distribution, device, options)
        if found is None:
            missing += 1
            _say(f"device {device.id}: {reason}")
        else:
            _say(f"device {device.id}: certified, {len(found.rows)} rows")
    return 1 if missing else 0


def _diff(old: Certificate, new: Certificate) -> int:
    before = _grants(old)
    after = _grants(new)
    for sign, only in (("-", before - after), ("+", after - before)):
        for line in sorted(only):
            _say(f"{sign} {line}")
    lost = len(before - after)
    _say(f"{lost} grants lost, {len(after - before)} gained, {len(before & after)} kept")
    return 1 if lost else 0


def _grants(certificate: Certificate) -> set[str]:
    """Every grant by operator, version and types, so that rows may be cut differently."""
    return {
        f"{row.domain}.{row.op_type} {version} {side} {position} {kind}".lstrip(".")
        for row in certificate.rows
        for version in _versions(row)
        for side, types in (("input", row.inputs), ("output", row.outputs))
        for position, kinds in enumerate(types)
        for kind in (("any",) if kinds is None else kinds)
    }


def _versions(row: CertificateRow) -> list[int]:
    """The schema versions in a row's range that exist."""
    from onnx import defs

    found = {
        schema.since_version
        for schema in defs.get_all_schemas_with_history()
        if (schema.domain, schema.name) == (row.domain, row.op_type)
    }
    return sorted(v for v in found | {row.since} if row.since <= v <= row.until)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@hookimpl
def ep_commands() -> Sequence[Command]:
    """Offer `ep certificate`."""
    return [CertificateCommand()]
