"""`ep certify NAME`: runs the kit on a provider, writes reports, installs the certificate."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.vendors import vendor_cases
from ep_compliance.commands import granting
from ep_compliance.commands.arguments import option_values
from ep_compliance.oracle.overrides import read_overrides
from ep_compliance.reports.failures import save_failures, shrink_failures
from ep_compliance.reports.files import prepare_folder, write_text
from ep_compliance.reports.formats import dumps, json_report, junit_report, summary
from ep_compliance.reports.page import html_page
from ep_compliance.running.certification import Plan, certify
from ep_compliance.running.collection import collect_jobs, matches
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.results import BAD, Results
from ep_compliance.running.shrink import shrinks
from ep_compliance.running.targets import find_target
from ep_compliance.running.waivers import read_waivers
from ep_core.contracts import Command
from ep_core.discovery.registry import registry
from ep_core.errors import OptionError
from ep_core.hookspecs import hookimpl

__all__ = ["CertifyCommand", "ep_commands"]

_MOST_SHOWN = 20

_EPILOG = """\
The certificate goes to the user's folder, where the core finds it, unless one of a higher level
lies there that still fits. To ship it, let it go into the package's folder `certificates`.

examples:
  ep certify mychip                         everything that CI should run
  ep certify mychip --level mustpass        the quick part
  ep certify mychip --only 'official/conv*' some cases; gives reports and no certificate
  ep certify mychip --resume                go on where the last run was cut short
  ep certify mychip --diff old.json         fail if something was lost since then
  ep certify mychip --certificate-folder src/ep_mychip/certificates
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
        parser.add_argument(
            "--overrides",
            type=Path,
            metavar="FILE",
            help="wider tolerances of single cases, each with its reason (overrides.toml)",
        )
        granting.add_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        if args.workers < 1:
            raise OptionError("--jobs", expected="at least 1", got=args.workers)
        prepare_folder(args.out)
        level = Level[args.level.upper()]
        wanted = granting.read_wanted(args)
        plan = _plan(args, level)
        wanted.check(plan)
        results = certify(plan, _Progress(len(plan.jobs)))
        _write_reports(results, args.out, _save_failures(results, args.out))
        for _, verdict in results.failures[:_MOST_SHOWN]:
            _say(f"{verdict.outcome.name} {verdict.case_id}: {verdict.reason}")
        if len(results.failures) > _MOST_SHOWN:
            _say(f"... and {len(results.failures) - _MOST_SHOWN} more")
        _say(f"{summary(results)}, in {results.seconds:.1f} s")
        _say(f"report: {args.out / 'report.html'}")
        if results.failures:
            _say(f"models and data of what fails: {args.out / 'failures'}")
        if args.only:
            _say("no certificate, as --only leaves out cases")
            return 0 if results.passed else 1
        return granting.grant(results, plan, wanted)


def _plan(args: argparse.Namespace, level: Level) -> Plan:
    waivers = read_waivers(args.waivers) if args.waivers else ()
    overrides = read_overrides(args.overrides) if args.overrides else {}
    # Before the provider is loaded; see collect_jobs. Waivers and overrides may name any job.
    jobs = collect_jobs(Level.SOAK) if waivers or overrides else collect_jobs(level, args.only)
    target, device = find_target(args.provider, args.device, option_values(args.options))
    distribution = registry().distribution(args.provider)
    jobs += vendor_cases(distribution)
    at_level = [job for job in jobs if job.level <= level]
    chosen = [job for job in at_level if not args.only or matches(job, args.only)]
    if not chosen:
        raise OptionError(f"no case or check has an id that matches {args.only!r}")
    return Plan(
        target=target,
        device=device,
        distribution=distribution,
        level=level,
        jobs=chosen,
        others=sorted({job.id for job in jobs} - {job.id for job in chosen}),
        folder=args.out,
        workers=args.workers,
        resume=args.resume,
        waivers=waivers,
        overrides=overrides,
    )


def _save_failures(results: Results, folder: Path) -> Mapping[str, Sequence[str]]:
    """The files of what fails, by case id; some failing graphs are made smaller first."""
    graphs = [job for job, _ in results.failures if isinstance(job, Case) and shrinks(job)]
    if graphs:
        _say("making failing graphs smaller")
    return save_failures(results, folder, shrink_failures(results))


def _write_reports(results: Results, folder: Path, files: Mapping[str, Sequence[str]]) -> None:
    write_text(folder / "report.json", dumps(json_report(results)))
    write_text(folder / "report.xml", junit_report(results))
    write_text(folder / "report.html", html_page(results, files))


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
