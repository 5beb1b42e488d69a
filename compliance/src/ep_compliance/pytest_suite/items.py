"""The kit's jobs as items of pytest: how they are collected, and what a verdict becomes.

Passes pass; what speaks against the provider fails; what it doesn't claim, and what the oracles
disagree about, is skipped; what is waived is an expected failure. An item only waits: jobs are
done by the worker processes of `suite_run`, which knows nothing of pytest.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable

import pytest

from ep_compliance.pytest_suite.run import Settings, SuiteRun
from ep_compliance.running.jobs import Job
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.errors import EpError

__all__ = ["JobItem", "StaleItem", "SuiteCollector"]

_RUN = pytest.StashKey[SuiteRun]()
_SKIPPED = (Outcome.UNSUPPORTED, Outcome.QUARANTINED)


class SuiteCollector(pytest.Collector):
    """All jobs of the level, then one item for each waiver or override that names nothing."""

    def __init__(self, *, settings: Settings, **keywords: object) -> None:
        super().__init__(**keywords)  # type: ignore[arg-type]
        self._settings = settings

    def collect(self) -> Iterable[pytest.Item]:
        run = self._suite_run()
        for job in run.jobs:
            yield JobItem.from_parent(self, name=job.id, run=run, job=job)
        for name, problem in run.stale.items():
            yield StaleItem.from_parent(self, name=name, problem=problem)

    def _suite_run(self) -> SuiteRun:
        """One for all modules of a run of pytest, as they have the same settings."""
        if _RUN not in self.config.stash:
            try:
                run = SuiteRun(self._settings)
            except EpError as error:
                raise self.CollectError(f"ep-compliance: {error}") from None
            self.config.stash[_RUN] = run
            self.config.pluginmanager.register(_Watch(run))
        return self.config.stash[_RUN]


class JobItem(pytest.Item):
    """One job; `verdict` is None until it has been waited for."""

    def __init__(self, *, run: SuiteRun, job: Job, **keywords: object) -> None:
        super().__init__(**keywords)  # type: ignore[arg-type]
        self.job = job
        self.verdict: Verdict | None = None
        self._run = run
        self._problems: list[str] = []

    def setup(self) -> None:
        """Wait for the verdict; without one there is nothing to test, now or later."""
        _begin(self._run, self.session)
        self.verdict, self._problems = self._run.verdict(self.job)
        if self.verdict.outcome is Outcome.NOT_RUN:
            self.session.shouldstop = f"ep-compliance: {self.verdict.reason}"
            pytest.fail(f"not run: {self.verdict.reason}", pytrace=False)

    def runtest(self) -> None:
        """Turn the verdict into what pytest has for it."""
        verdict = self.verdict
        assert verdict is not None
        if self._problems:
            pytest.fail("\n".join(self._problems), pytrace=False)
        if verdict.outcome in _SKIPPED:
            pytest.skip(f"{verdict.outcome.value}: {verdict.reason}")
        if verdict.outcome is Outcome.WAIVED:
            pytest.xfail(verdict.reason)
        if verdict.outcome is not Outcome.PASS:
            again = f"Repeat it, saving model and inputs: {self._run.command(self.job)}"
            pytest.fail(f"{verdict.outcome.name}: {verdict.reason}\n{again}", pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        """Where it stands, and the heading of its report."""
        return self.path, 0, self.job.id


class StaleItem(pytest.Item):
    """A waiver or an override that names nothing; it fails."""

    def __init__(self, *, problem: str, **keywords: object) -> None:
        super().__init__(**keywords)  # type: ignore[arg-type]
        self._problem = problem

    def runtest(self) -> None:
        """Say what is wrong."""
        pytest.fail(self._problem, pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        """Where it stands, and the heading of its report."""
        return self.path, 0, self.name


class _Watch:
    """Hooks for as long as there is a suite."""

    def __init__(self, run: SuiteRun) -> None:
        self._run = run

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report how long the job took, not how long the item waited; place skips at the module."""
        report = yield
        if isinstance(item, JobItem) and item.verdict is not None:
            report.duration = item.verdict.seconds if report.when == "call" else 0.0
            if report.skipped and isinstance(report.longrepr, tuple):
                report.longrepr = (str(item.path), 1, report.longrepr[2])
        return report

    def pytest_sessionfinish(self) -> None:
        """End the workers, whatever they are at."""
        self._run.close()


def _begin(run: SuiteRun, session: pytest.Session) -> None:
    """Have everything done that is selected, ahead of the items that ask for it.

    With xdist, which of the items are this process's own shows only as they come; they are done
    then, and the parallelism is that of xdist.
    """
    if run.begun:
        return
    items = [] if "PYTEST_XDIST_WORKER" in os.environ else session.items
    jobs = {item.job.id: item.job for item in items if isinstance(item, JobItem)}
    run.begin(list(jobs.values()))
