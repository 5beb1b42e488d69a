"""Overrides in a run: needed, stale, unknown, of what must pass; and how a run records them."""

from __future__ import annotations

import json

import pytest
from zoo_cases import CASES

from ep_compliance.cases.case import Level
from ep_compliance.checks import all_checks
from ep_compliance.errors import OverrideError
from ep_compliance.oracle.overrides import Override, applicable, override_problems, read_overrides
from ep_compliance.reports.formats import json_report
from ep_compliance.reports.page import html_page
from ep_compliance.running.certification import Plan, certify
from ep_compliance.running.jobs import Target
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.contracts import Numerics
from ep_core.discovery.registry import registry

SQRT, ADD, MUL = (CASES[f"zoo/{name}"] for name in ("sqrt", "add", "mul"))
CHECK = all_checks()["claims/pure"]
JOBS = [SQRT, ADD, MUL]


def wide(case_id, **amounts):
    """An override by its id."""
    return {case_id: Override(case_id, "the library promises no more", **(amounts or {"ulps": 4}))}


def problems(overrides, jobs=JOBS, outcomes=None, overridden=(), others=()):
    verdicts = [
        Verdict(job.id, (outcomes or {}).get(job.id, Outcome.PASS), overridden=job.id in overridden)
        for job in jobs
    ]
    return override_problems(jobs, verdicts, overrides, dict.fromkeys(others))


def test_one_that_is_needed_is_right():
    assert problems(wide(SQRT.id), overridden=[SQRT.id]) == []
    assert applicable(JOBS, wide(SQRT.id)) == wide(SQRT.id)


def test_one_that_makes_no_difference_is_an_error():
    assert problems(wide(SQRT.id)) == ["the override of 'zoo/sqrt' isn't needed; remove it"]


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.CRASH, Outcome.UNSUPPORTED])
def test_one_that_doesnt_help_is_an_error(outcome):
    assert problems(wide(SQRT.id), outcomes={SQRT.id: outcome}) == [
        f"the override of 'zoo/sqrt' doesn't help: {outcome.value}; remove it"
    ]


@pytest.mark.parametrize("outcome", [Outcome.NOT_RUN, Outcome.QUARANTINED])
def test_where_nothing_is_decided_nothing_is_stale(outcome):
    assert problems(wide(SQRT.id), outcomes={SQRT.id: outcome}) == []


def test_one_that_names_no_case_is_an_error():
    (problem,) = problems(wide("zoo/sqrd"))
    assert problem.startswith("the override of 'zoo/sqrd' names no case: Did you mean 'zoo/sqrt'")
    assert problems(wide("q")) == ["the override of 'q' names no case: No id is like it."]
    (problem,) = problems(wide(CHECK.id), jobs=[*JOBS, CHECK])
    assert problem.startswith("the override of 'claims/pure' names no case")
    assert applicable([*JOBS, CHECK], wide(CHECK.id)) == {}


def test_cases_that_were_left_out_say_nothing():
    assert problems(wide("zoo/matmul"), others=["zoo/matmul"]) == []


def test_what_must_pass_cant_be_overridden():
    assert ADD.level is Level.MUSTPASS
    assert problems(wide(ADD.id)) == ["'zoo/add' must pass; no override covers it"]
    assert applicable(JOBS, wide(ADD.id)) == {}


def test_what_is_allowed_reads_well():
    override = Override("a", "why", ulps=7, absolute=1e-6)
    assert override.allows == "ulps 7, absolute 1e-06"
    assert override.record == {
        "case": "a",
        "reason": "why",
        "ulps": 7,
        "absolute": 1e-6,
        "steps": 0,
    }


# ---------------------------------------------------------------- a whole run


@pytest.fixture
def run(site, tmp_path):
    """Certify the careless provider with overrides; `resume` goes on in the same folder."""

    def go(overrides, *, resume=False):
        name = "careless"
        plan = Plan(
            target=Target(name),
            device=registry().status(name).devices[0],
            distribution=registry().distribution(name),
            level=Level.FULL,
            jobs=JOBS,
            others=[],
            folder=tmp_path,
            overrides=overrides,
            resume=resume,
        )
        done = []
        results = certify(plan, lambda number, total, verdict: done.append(verdict.case_id))
        return results, done

    return go


def test_the_judge_in_the_worker_uses_it(run):
    results, _ = run({})
    assert [v.outcome for v in results.verdicts] == [Outcome.FAIL, Outcome.PASS, Outcome.PASS]
    assert not results.passed
    results, _ = run(wide(SQRT.id))
    assert results.passed
    assert [v.overridden for v in results.verdicts] == [True, False, False]
    assert results.overridden == {SQRT.id}
    assert [o.case_id for o in results.overrides] == [SQRT.id]


def test_one_that_is_too_narrow_or_unneeded_blocks_the_certificate(run):
    results, _ = run(wide(SQRT.id, ulps=1.5))
    assert results.blockers == ("the override of 'zoo/sqrt' doesn't help: fail; remove it",)
    assert "override: the library promises no more" in results.verdicts[0].reason
    results, _ = run({**wide(SQRT.id), **wide(MUL.id)})
    assert results.blockers == ("the override of 'zoo/mul' isn't needed; remove it",)
    assert not results.passed


def test_a_resumed_run_remembers_it_and_other_overrides_begin_anew(run):
    first, done = run(wide(SQRT.id))
    assert len(done) == 3
    again, done = run(wide(SQRT.id), resume=True)
    assert done == []
    assert again.passed
    assert list(again.verdicts) == list(first.verdicts)
    _, done = run({}, resume=True)
    assert len(done) == 3


def test_what_the_provider_declares_is_recorded_also_by_a_resumed_run(run):
    flushing = Numerics(flushes_denormals=True)
    assert run(wide(SQRT.id))[0].numerics == flushing
    assert run(wide(SQRT.id), resume=True)[0].numerics == flushing


def test_reports_show_it(run):
    results, _ = run(wide(SQRT.id))
    report = json_report(results)
    assert report["overrides"][0]["needed"] is True
    assert "the library promises no more" in html_page(results)


def test_the_command_reads_the_file(site, tmp_path, monkeypatch):
    from ep_compliance.commands import certify as command

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(command, "collect_jobs", lambda *_: list(JOBS))
    path = tmp_path / "overrides.toml"
    path.write_text('[[override]]\ncase = "zoo/sqrt"\nreason = "no better here"\nulps = 4\n')
    assert read_overrides(path)["zoo/sqrt"].ulps == 4
    parser = command_parser(command)
    out = tmp_path / "out"

    def ep(*arguments):
        args = parser.parse_args(["careless", "--jobs", "1", "--out", str(out), *arguments])
        return command.CertifyCommand().run(args)

    assert ep("--only", "zoo/*") == 1
    assert ep("--only", "zoo/*", "--overrides", str(path)) == 0
    # The case isn't run, so its override rests.
    assert ep("--only", "zoo/mul", "--overrides", str(path)) == 0
    assert json.loads((out / "report.json").read_text())["problems"] == []
    with pytest.raises(OverrideError, match="can't be read"):
        ep("--overrides", str(tmp_path / "none.toml"))


def command_parser(module):
    import argparse

    parser = argparse.ArgumentParser()
    module.CertifyCommand().configure(parser)
    return parser
