"""`ep certificate`: the arguments of its actions, and those actions that are a line or two."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ep_compliance.certificates.difference import difference, read_coverage
from ep_compliance.certificates.signing import sign_certificate, write_keys
from ep_compliance.certificates.tables import markdown_tables, text_tables
from ep_compliance.commands.arguments import option_values
from ep_compliance.commands.certificate_show import show
from ep_compliance.commands.certificate_verify import verify
from ep_compliance.commands.comparing import (
    check_same_provider,
    difference_record,
    say_difference,
)
from ep_compliance.commands.output import say, say_json
from ep_core.certificates.file import read_certificate
from ep_core.contracts import Command
from ep_core.hookspecs import hookimpl

__all__ = ["CertificateCommand", "ep_commands"]

_EPILOG = """\
examples:
  ep certificate show mychip.json --op 'Conv*'    what it grants for some operators
  ep certificate verify mychip                    which installed certificates fit, and why not
  ep certificate diff old.json new.json           what was gained and lost
  ep certificate table *.json --markdown          operators by provider
  ep certificate keygen ~/mychip.key              a pair of keys for signatures
  ep certificate sign mychip.json --key ~/mychip.key
  ep certificate verify mychip.json --trusted mychip.key.pub

A certificate is a file that `ep certify` writes. The core looks for them among a provider's own
files, as certificates/*.json, then in the user's folder. It doesn't look at signatures.
"""

_SHOW = """\
examples:
  ep certificate show mychip.json
  ep certificate show mychip.json --op MatMul
  ep certificate show mychip.json --op 'ai.onnx.ml.*' --json

Types are listed by type parameter of the operator's schema. Which combinations of them are granted
is told by the rows that --json gives.
"""

_VERIFY = """\
examples:
  ep certificate verify mychip                    all that are installed for it
  ep certificate verify mychip --option precision=f16
  ep certificate verify build/mychip.json --trusted mychip.key.pub

The exit code is 0 if every device has a certificate that fits (a file: if it fits one), else 1.
With --trusted, one that isn't signed with a trusted key doesn't count.
"""

_DIFF = """\
examples:
  ep certificate diff old.json new.json
  ep certificate diff compliance-report/report.json new.json --fail-on-loss

Compared is what is granted, by operator, version and types; how it is cut into rows makes no
difference. `ep certify NAME --diff OLD` does the same after a run.
"""

_KEYGEN = """\
Writes a private Ed25519 key, readable by its owner only and without a password, and the public key
beside it, with `.pub` added to the name. Neither is ever written over.
"""

_SIGN = """\
Writes FILE.sig: an Ed25519 signature of the file's bytes. OpenSSL can check it too:
  openssl pkeyutl -verify -rawin -pubin -inkey KEY.pub -in FILE -sigfile FILE.sig
"""


class CertificateCommand:
    """Shows, verifies, compares, tabulates and signs certificates."""

    name = "certificate"
    help = "show, verify, compare, tabulate or sign certificates of providers"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
        _add_show(actions)
        _add_verify(actions)
        _add_diff(actions)
        table = _add(actions, "table", "operators by provider", "", _table)
        table.add_argument("files", type=Path, nargs="+", metavar="FILE")
        table.add_argument("--markdown", action="store_true", help="whole cells, for documents")
        keygen = _add(actions, "keygen", "make a pair of keys for signatures", _KEYGEN, _keygen)
        keygen.add_argument("key", type=Path, metavar="KEY", help="where the private key goes")
        sign = _add(actions, "sign", "sign a certificate", _SIGN, _sign)
        sign.add_argument("file", type=Path, metavar="FILE", help="a certificate")
        sign.add_argument("--key", type=Path, required=True, metavar="KEY", help="a private key")

    def run(self, args: argparse.Namespace) -> int:
        action: Callable[[argparse.Namespace], int] = args.act
        return action(args)


def _add(
    actions: Any, name: str, text: str, epilog: str, act: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=text,
        description=text,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.set_defaults(act=act)
    return parser


def _add_show(actions: Any) -> None:
    parser = _add(actions, "show", "what a certificate is bound to and grants", _SHOW, _show)
    parser.add_argument("file", type=Path, metavar="FILE", help="a certificate")
    parser.add_argument(
        "--op", default="", metavar="PATTERN", help="only operators whose name matches"
    )
    parser.add_argument("--json", action="store_true", help="for programs, with every row")


def _add_verify(actions: Any) -> None:
    parser = _add(actions, "verify", "which certificates fit what is installed", _VERIFY, _verify)
    parser.add_argument("subject", metavar="NAME|FILE", help="a provider, or one certificate")
    parser.add_argument("--device", default="", metavar="ID", help="default: every device")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="K=V",
        dest="options",
        help="an option of the provider, as it will be used; may be repeated",
    )
    parser.add_argument(
        "--trusted",
        type=Path,
        action="append",
        default=[],
        metavar="PUBKEY",
        help="a public key that must have signed it; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def _add_diff(actions: Any) -> None:
    parser = _add(actions, "diff", "what was gained and lost between two runs", _DIFF, _diff)
    for name in ("old", "new"):
        parser.add_argument(
            name, type=Path, metavar=name.upper(), help="a certificate, or report.json of a run"
        )
    parser.add_argument("--fail-on-loss", action="store_true", help="exit code 1 for a loss")
    parser.add_argument("--json", action="store_true", help="for programs")


# ---------------------------------------------------------------- actions


def _show(args: argparse.Namespace) -> int:
    return show(args.file, args.op, as_json=args.json)


def _verify(args: argparse.Namespace) -> int:
    options = option_values(args.options)
    return verify(args.subject, args.device, options, args.trusted, as_json=args.json)


def _diff(args: argparse.Namespace) -> int:
    old, new = read_coverage(args.old), read_coverage(args.new)
    check_same_provider(old.provider, new.provider, str(args.old))
    if args.json:
        found = difference(old.rows, new.rows)
        say_json(difference_record(found))
    else:
        found = say_difference(old, new)
    return 1 if found.lost and args.fail_on_loss else 0


def _table(args: argparse.Namespace) -> int:
    certificates = [read_certificate(path) for path in args.files]
    text = markdown_tables(certificates) if args.markdown else text_tables(certificates)
    say(text.rstrip("\n"))
    return 0


def _keygen(args: argparse.Namespace) -> int:
    public = write_keys(args.key)
    say(f"private key: {args.key}\npublic key:  {public}")
    return 0


def _sign(args: argparse.Namespace) -> int:
    say(f"signature: {sign_certificate(args.file, args.key)}")
    return 0


@hookimpl
def ep_commands() -> Sequence[Command]:
    """Offer `ep certificate`."""
    return [CertificateCommand()]
