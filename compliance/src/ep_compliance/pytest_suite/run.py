"""A suite's jobs and their verdicts, one by one as somebody asks; knows nothing of pytest.

Verdicts come from the worker processes of `runner`; waivers and overrides count as they do for
`ep certify`.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.vendors import vendor_cases
from ep_compliance.commands.arguments import option_values
from ep_compliance.oracle.overrides import applicable, override_problems, read_overrides
from ep_compliance.running.collection import collect_jobs
from ep_compliance.running.jobs import Job, command_for
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.runner import Run
from ep_compliance.running.targets import find_target
from ep_compliance.running.waivers import apply_waivers, read_waivers
from ep_core.discovery.registry import registry
from ep_core.errors import OptionError, did_you_mean

__all__ = ["Settings", "SuiteRun"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What somebody wants of a suite.

    Attributes:
        provider: empty if nobody named one.
        device: empty for the provider's first one.
        options: one text `K=V` each.
        workers: how many processes; None for one per processor.
    """

    provider: str
    device: str
    options: tuple[str, ...]
    level: str
    waivers: Path | None
    overrides: Path | None
    workers: int | None


class SuiteRun:
    """The jobs of a level, and who does them.

    Attributes:
        jobs: of the level.
        stale: what is wrong with the waivers and overrides that name nothing, by `waiver/NAME` and
            `override/NAME`.

    Raises:
        EpError: no such provider, device, option or level, or a file that can't be read.
    """

    def __init__(self, settings: Settings) -> None:
        if not settings.provider:
            raise OptionError(
                "no provider is named",
                fix='Add --provider NAME, or ep_provider = "NAME" to the pytest configuration.',
            )
        level = _level(settings.level)
        self._workers = _workers(settings.workers)
        options = option_values(settings.options)
        waivers = read_waivers(settings.waivers) if settings.waivers else ()
        self._waivers = {waiver.id: waiver for waiver in waivers}
        self._overrides = read_overrides(settings.overrides) if settings.overrides else {}
        self._today = datetime.date.today()
        # Before the provider is loaded; see collect_jobs.
        every = self._collected(level)
        self._target, _ = find_target(settings.provider, settings.device, options)
        every += vendor_cases(registry().distribution(settings.provider))
        self.jobs = [job for job in every if job.level <= level]
        self.stale = self._stale(every)
        self._run: Run | None = None
        self._asked: set[str] = set()
        self._found: dict[str, Verdict] = {}

    @property
    def begun(self) -> bool:
        """True between `begin` and `close`."""
        return self._run is not None

    def begin(self, jobs: Sequence[Job]) -> None:
        """Start workers, and have them do these jobs in this order; others come as asked for."""
        overrides = applicable(self.jobs, self._overrides)
        self._run = Run(self._target, overrides=overrides)
        self._run.start(min(self._workers, max(1, len(jobs))))
        self._ask(*jobs)

    def verdict(self, job: Job) -> tuple[Verdict, list[str]]:
        """Wait for the verdict of a job, after `begin`.

        Returns:
            the verdict, WAIVED where a waiver covers it, and what is wrong with the waiver and the
            override of this job. NOT_RUN means that no job can be done any more.
        """
        assert self._run is not None
        if job.id not in self._asked:
            self._ask(job)
        while job.id not in self._found:
            found = self._run.next_verdict()
            if found is None:
                return Verdict(job.id, Outcome.NOT_RUN, self._run.problem), []
            self._found[found.case_id] = found
        return self._judged(job, self._found[job.id])

    def close(self) -> None:
        """End the workers; twice without harm."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def command(self, job: Job) -> str:
        """The command line that repeats a job."""
        return command_for(self._target, job)

    def _ask(self, *jobs: Job) -> None:
        assert self._run is not None
        self._asked.update(job.id for job in jobs)
        self._run.add(*jobs)

    def _judged(self, job: Job, verdict: Verdict) -> tuple[Verdict, list[str]]:
        overrides = {job.id: self._overrides[job.id]} if job.id in self._overrides else {}
        problems = override_problems([job], [verdict], overrides)
        waivers = [self._waivers[job.id]] if job.id in self._waivers else []
        (judged,), more = apply_waivers([job], [verdict], waivers, self._today)
        return judged, [*problems, *more]

    def _collected(self, level: Level) -> list[Job]:
        """The jobs of a level, or all there are, if waivers or overrides may name others."""
        jobs = collect_jobs(level)
        named = {*self._waivers, *self._overrides}
        return jobs if named <= {job.id for job in jobs} else collect_jobs(Level.SOAK)

    def _stale(self, every: Sequence[Job]) -> dict[str, str]:
        """Ask those who judge a whole run, as if nothing had been run yet."""
        known = {job.id for job in every}
        waivers = [waiver for name, waiver in self._waivers.items() if name not in known]
        cases = {job.id for job in every if isinstance(job, Case)}
        overrides = {name: item for name, item in self._overrides.items() if name not in cases}
        names = [f"waiver/{waiver.id}" for waiver in waivers]
        names += [f"override/{name}" for name in overrides]
        unrun = [Verdict(job.id, Outcome.NOT_RUN) for job in every]
        _, problems = apply_waivers(every, unrun, waivers, self._today)
        problems += override_problems(every, unrun, overrides)
        return dict(zip(names, problems, strict=True))


def _level(text: str) -> Level:
    known = [level.name.lower() for level in Level]
    if text not in known:
        raise OptionError(f"there is no level {text!r}", fix=did_you_mean(text, known))
    return Level[text.upper()]


def _workers(given: int | None) -> int:
    if given is not None and given < 1:
        raise OptionError("--ep-jobs", expected="at least 1", got=given)
    return given or os.cpu_count() or 1
