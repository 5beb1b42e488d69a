"""`ep certify NAME`: runs the kit on a provider, writes reports, installs the certificate."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ep_compliance.cases import Level
from ep_compliance.certification import Plan, certify
from ep_compliance.certify import certificate_of, write_certificate
from ep_compliance.collection import collect_jobs, matches
from ep_compliance.jobs import Target
from ep_compliance.outcomes import Outcome, Verdict
from ep_compliance.page import html_page
from ep_compliance.reports import dumps, json_report, junit_report, summary
from ep_compliance.results import BAD, Results
from ep_compliance.waivers import read_waivers
from ep_core.contracts import Command
from ep_core.discovery.certificate import user_folder
from ep_core.discovery.options import parse_options, select_device
from ep_core.discovery.registry import registry
from ep_core.errors import CertificateError, OptionError
from ep_core.hookspecs import hookimpl

__all__ = ["CertifyCommand", "ep_commands"]

_MOST_SHOWN = 20

_EPILOG = """\
The certificate goes to the user's folder, where the core finds it. To ship it, put it into the
package as certificates/NAME.json.

examples:
  ep certify mychip                         everything that CI should run
  ep certify mychip --level mustpass        the quick part
  ep certify mychip --only 'official/conv*' some cases; gives reports and no certificate
  ep certify mychip --resume                go on where the last run was cut short
"""


class CertifyCommand:
    """Holds a provider to its claims."""

    name = "certify"
    help = "hold a provider to its claims and give it a certificate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        parser.add_argument("provider", metavar="NAME", help="the provider, such as cpu")
        parser.add_argument("--device", default="", metavar="ID", help="default: its first device")
        parser.add_argument(
            "--option",
            action="append",
            default=[],
            metavar="K=V",
            dest="options",
            help="an option of the provider that the certificate is then bound to; may be repeated",
        )
        parser.add_argument(
            "--level",
            choices=[level.name.lower() for level in Level],
            default="full",
            help="how thorough (default: full)",
        )
        parser.add_argument(
            "--jobs",
            type=int,
            default=os.cpu_count() or 1,
            metavar="N",
            dest="workers",
            help="worker processes (default: one per processor)",
        )
        parser.add_argument(
            "--resume", action="store_true", help="take over what an earlier run has found"
        )
        parser.add_argument(
            "--out",
            type=Path,
            default=Path("compliance-report"),
            metavar="DIR",
            help="where reports go (default: compliance-report)",
        )
        parser.add_argument(
            "--only", default="", metavar="PATTERN", help="only cases and checks whose id matches"
        )
        parser.add_argument(
            "--waivers", type=Path, metavar="FILE", help="known failures (waivers.toml)"
        )

    def run(self, args: argparse.Namespace) -> int:
        if args.workers < 1:
            raise OptionError("--jobs", expected="at least 1", got=args.workers)
        level = Level[args.level.upper()]
        plan = _plan(args, level)
        results = certify(plan, _Progress(len(plan.jobs)))
        _write_reports(results, args.out)
        for _, verdict in results.failures[:_MOST_SHOWN]:
            _say(f"{verdict.outcome.name} {verdict.case_id}: {verdict.reason}")
        if len(results.failures) > _MOST_SHOWN:
            _say(f"... and {len(results.failures) - _MOST_SHOWN} more")
        _say(f"{summary(results)}, in {results.seconds:.1f} s")
        _say(f"report: {args.out / 'report.html'}")
        if args.only:
            _say("no certificate, as --only leaves out cases")
            return 0 if results.passed else 1
        return _give(results, plan)


def _plan(args: argparse.Namespace, level: Level) -> Plan:
    # Before the provider is loaded; see collect_jobs.
    jobs = collect_jobs(level)
    chosen = [job for job in jobs if not args.only or matches(job, args.only)]
    if not chosen:
        raise OptionError(f"no case or check has an id that matches {args.only!r}")
    status = registry().status(args.provider)
    factory = registry().factory(args.provider)
    options = _options(args.options)
    wanted = {"device_id": args.device} if args.device else {}
    device, _ = select_device(factory.info, status.devices, wanted)
    parse_options(factory.info, options)
    return Plan(
        target=Target(factory.info.name, args.device, options),
        device=device,
        distribution=registry().distribution(args.provider),
        level=level,
        jobs=chosen,
        others=sorted({job.id for job in jobs} - {job.id for job in chosen}),
        folder=args.out,
        workers=args.workers,
        resume=args.resume,
        waivers=read_waivers(args.waivers) if args.waivers else (),
    )


def _options(texts: Sequence[str]) -> dict[str, str]:
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise OptionError("--option", expected="KEY=VALUE", got=repr(text))
        options[key] = value
    return options


def _write_reports(results: Results, folder: Path) -> None:
    (folder / "report.json").write_text(dumps(json_report(results)), encoding="utf-8")
    (folder / "report.xml").write_text(junit_report(results), encoding="utf-8")
    (folder / "report.html").write_text(html_page(results), encoding="utf-8")


def _give(results: Results, plan: Plan) -> int:
    """Install the certificate if there is one to give; the exit code tells of failures too."""
    if plan.distribution is None:
        raise CertificateError("a provider registered by hand can't have a certificate")
    certificate = certificate_of(
        results, plan.distribution, registry().factory(plan.target.provider).info
    )
    path = write_certificate(certificate, user_folder())
    _say(f"certificate with {len(certificate['rows'])} rows: {path}")
    return 0 if results.passed else 1


class _Progress:
    """One line that is written over, on a terminal only; failures as they come."""

    def __init__(self, total: int) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._bad = 0

    def __call__(self, done: int, total: int, verdict: Verdict) -> None:
        self._bad += verdict.outcome in BAD
        if not self._live:
            return
        end = "\n" if done == total else ""
        state = f", {self._bad} failed" if self._bad else ""
        now = verdict.case_id if verdict.outcome is not Outcome.NOT_RUN else ""
        sys.stderr.write(f"\r\x1b[K{done} of {total}{state}  {now[:50]}{end}")
        sys.stderr.flush()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@hookimpl
def ep_commands() -> Sequence[Command]:
    """Offer `ep certify`."""
    return [CertifyCommand()]
