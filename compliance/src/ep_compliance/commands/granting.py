"""What `ep certify` does after a run: compares with an earlier one, and places the certificate."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from ep_compliance.cases.case import Level
from ep_compliance.certificates.certificate import certificate_of
from ep_compliance.certificates.difference import Coverage, read_coverage, row_of
from ep_compliance.certificates.installed import Installed
from ep_compliance.certificates.keeping import place
from ep_compliance.commands.comparing import check_same_provider, say_difference
from ep_compliance.commands.output import say
from ep_compliance.running.certification import Plan
from ep_compliance.running.results import Results
from ep_core.certificates.lookup import user_folder
from ep_core.contracts import ProviderInfo
from ep_core.discovery.options import parse_options
from ep_core.discovery.registry import registry
from ep_core.errors import CertificateError, OptionError

__all__ = ["Wanted", "add_arguments", "grant", "read_wanted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to become of a run.

    Attributes:
        old: what to compare with, and the file it stands in.
        folder: where the certificate goes.
        replace: put it there even if a better one lies there.
    """

    old: tuple[Coverage, Path] | None
    folder: Path
    replace: bool

    def check(self, plan: Plan) -> None:
        """Refuse a comparison that would say nothing, before the run.

        Raises:
            CertificateError: the earlier run is of another provider, or of a higher level.
        """
        if self.old is None:
            return
        old, path = self.old
        check_same_provider(old.provider, plan.target.provider, str(path))
        level = old.level.upper()
        if level in Level.__members__ and Level[level] > plan.level:
            raise CertificateError(
                f"{path} is from a run of level {old.level}; a lower one always has less",
                got=f"level {plan.level.name.lower()}",
                fix=f"Run with --level {old.level}.",
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `read_wanted` reads."""
    parser.add_argument(
        "--diff",
        type=Path,
        metavar="OLD",
        help="say what was gained and lost since an earlier certificate or report.json; "
        "exit code 1 for a loss",
    )
    parser.add_argument(
        "--certificate-folder",
        type=Path,
        metavar="DIR",
        help="where the certificate goes (default: the user's folder, where the core looks)",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="write the certificate even over one of a higher level that still fits",
    )


def read_wanted(args: argparse.Namespace) -> Wanted:
    """Read what is wanted, and find out now what can't be done after the run.

    Raises:
        CertificateError: the earlier certificate can't be read, or no file can be written where
            the new one should go.
        OptionError: arguments that contradict each other.
    """
    if args.only:
        for name in ("diff", "certificate_folder", "replace"):
            if getattr(args, name):
                option = f"--{name.replace('_', '-')}"
                raise OptionError(
                    f"{option} needs a whole run, and --only leaves out cases",
                    fix="Leave one of the two out.",
                )
    old = (read_coverage(args.diff), args.diff) if args.diff else None
    if args.certificate_folder:
        _prepare(args.certificate_folder)
    return Wanted(old, args.certificate_folder or user_folder(), args.replace)


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CertificateError(f"can't make the folder {folder}: {error}") from error
    if not os.access(folder, os.W_OK):
        raise CertificateError(f"can't write into the folder {folder}")


def grant(results: Results, plan: Plan, wanted: Wanted) -> int:
    """Compare, and put the certificate where it belongs if the run earns one.

    Returns:
        0, or 1 if something failed or coverage was lost.

    Raises:
        CertificateError: the run earns no certificate, or it can't be written.
    """
    lost = wanted.old is not None and _has_lost(results, wanted.old[0])
    if plan.distribution is None:
        raise CertificateError("a provider registered by hand can't have a certificate")
    info = registry().factory(plan.target.provider).info
    certificate = certificate_of(results, plan.distribution, info)
    placed = place(certificate, wanted.folder, _installed(plan, info), replace=wanted.replace)
    if placed.kept is not None:
        say(f"kept: {placed.path}, which is of level {placed.kept.level} and still fits")
        say(f"--replace puts this run's in its place (level {results.level.name.lower()})")
    else:
        say(f"certificate with {len(certificate['rows'])} rows: {placed.path}")
    if placed.unsigned is not None:
        say(f"removed {placed.unsigned}, the signature of the one before")
    return 1 if lost or not results.passed else 0


def _has_lost(results: Results, old: Coverage) -> bool:
    rows = tuple(row_of(row.record, "this run") for row in results.rows)
    level = results.level.name.lower()
    device = results.device.fingerprint
    new = Coverage(results.target.provider, device, level, results.date, rows)
    return bool(say_difference(old, new).lost)


def _installed(plan: Plan, info: ProviderInfo) -> Installed:
    assert plan.distribution is not None
    options = parse_options(info, plan.target.options)
    return Installed(info, plan.distribution, plan.device, options)
