"""Worker processes: crashes, hangs and chatter cost one case; results don't depend on workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from zoo_cases import CASES

from ep_compliance.checks import all_checks
from ep_compliance.running.jobs import Target, jobs_hash
from ep_compliance.running.journal import Journal, read_journal
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.runner import run_jobs

ZOO = Path(__file__).parent / "zoo"
SOME = [CASES[f"zoo/{name}"] for name in ("add", "mul", "relu", "matmul", "sqrt")]
MUL = SOME[1].id

pytestmark = pytest.mark.usefixtures("site")


def outcomes(verdicts):
    return {verdict.case_id: verdict.outcome for verdict in verdicts}


def only_mul(outcome):
    return {case.id: outcome if case.id == MUL else Outcome.PASS for case in SOME}


def test_a_crash_costs_one_case_and_says_how_it_ended():
    verdicts = run_jobs(SOME, Target("crashes"))
    assert outcomes(verdicts) == only_mul(Outcome.CRASH)
    assert "crashed with SIGSEGV" in verdicts[1].reason


def test_a_process_that_ends_itself_leaves_its_last_words():
    verdicts = run_jobs(SOME[:3], Target("exits"))
    assert verdicts[1].outcome is Outcome.CRASH
    assert verdicts[1].reason == (
        "the process ended with exit code 7 (its last words: zoo: out of cheese)"
    )
    assert verdicts[2].outcome is Outcome.PASS


def test_a_hang_costs_one_case_and_its_time_limit():
    began = time.monotonic()
    verdicts = run_jobs(SOME, Target("hangs"), limits=(2.0, 2.0))
    assert outcomes(verdicts) == only_mul(Outcome.TIMEOUT)
    assert verdicts[1].reason == "no answer within 2 s"
    assert time.monotonic() - began < 30


def test_what_a_provider_prints_is_no_answer():
    verdicts = run_jobs(SOME, Target("chatters"))
    assert outcomes(verdicts) == {case.id: Outcome.PASS for case in SOME}


def test_a_child_that_answers_too_shifts_no_verdicts():
    verdicts = run_jobs(SOME, Target("forks"))
    assert [verdict.case_id for verdict in verdicts] == [case.id for case in SOME]
    assert Outcome.NOT_RUN not in outcomes(verdicts).values()
    crashed = [verdict for verdict in verdicts if verdict.outcome is not Outcome.PASS]
    assert {verdict.outcome for verdict in crashed} <= {Outcome.CRASH}
    assert all("out of turn" in verdict.reason for verdict in crashed)


def test_what_isnt_an_answer_costs_one_case():
    verdicts = run_jobs(SOME, Target("scribbles"))
    assert outcomes(verdicts) == only_mul(Outcome.CRASH)


def test_a_provider_that_cant_be_opened_makes_the_run_incomplete():
    verdicts = run_jobs(SOME, Target("cant_open"))
    assert {verdict.outcome for verdict in verdicts} == {Outcome.NOT_RUN}
    assert "exit code 9" in verdicts[0].reason
    verdicts = run_jobs(SOME, Target("no_such_provider"))
    assert "no provider 'no_such_provider' is installed" in verdicts[0].reason
    verdicts = run_jobs(SOME, Target("correct", options={"threads": "none"}))
    assert "threads" in verdicts[0].reason


def test_results_are_equal_for_any_number_of_workers_and_in_order():
    jobs = [*CASES.values(), all_checks()["claims/pure"], all_checks()["options/defaults"]]
    alone = run_jobs(jobs, Target("crashes"), workers=1)
    many = run_jobs(jobs, Target("crashes"), workers=3)
    assert [verdict.case_id for verdict in many] == [job.id for job in jobs]
    assert [(v.case_id, v.outcome, v.reason) for v in alone] == [
        (v.case_id, v.outcome, v.reason) for v in many
    ]


def test_known_verdicts_are_taken_over_unless_they_were_not_run():
    known = {
        SOME[0].id: Verdict(SOME[0].id, Outcome.FAIL, "known"),
        SOME[1].id: Verdict(SOME[1].id, Outcome.NOT_RUN),
    }
    seen = []
    verdicts = run_jobs(SOME[:3], Target("correct"), known=known, on_verdict=seen.append)
    assert [v.outcome for v in verdicts] == [Outcome.FAIL, Outcome.PASS, Outcome.PASS]
    assert [v.case_id for v in seen] == [SOME[1].id, SOME[2].id]


def test_stopping_a_run_ends_its_workers():
    def stop(verdict):
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_jobs(SOME, Target("hangs"), workers=2, on_verdict=stop)
    assert time.monotonic() - began < 30


def test_small_cases_are_quick_once_the_worker_has_started():
    began = []
    jobs = [CASES["zoo/add"]] + [CASES["zoo/relu"]] * 150

    def note(verdict):
        began.append(time.monotonic())

    run_jobs(jobs, Target("correct"), on_verdict=note)
    # Generous, for machines that do much else at the same time; usually it is ten times as fast.
    assert 150 / (began[-1] - began[0]) > 30


def test_the_users_program_is_not_run_again(site, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "print('started')\n"
        "from ep_compliance.checks import all_checks\n"
        "from ep_compliance.running.jobs import Target\n"
        "from ep_compliance.running.runner import run_jobs\n"
        "jobs = [all_checks()['options/defaults']]\n"
        "print(run_jobs(jobs, Target('correct'), workers=2)[0].outcome.name)\n"
    )
    path = os.pathsep.join([str(site), str(ZOO)])
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["started", "PASS"]


# ---------------------------------------------------------------- the journal


def test_a_journal_is_resumed_also_after_a_line_that_was_cut(tmp_path):
    path = tmp_path / "run.jsonl"
    with Journal(path, "key", resume=False) as journal:
        journal.add(Verdict("a", Outcome.PASS, "", 0.5))
        journal.add(Verdict("b", Outcome.FAIL, "wrong\nvalue", 0.25))
        journal.add(Verdict("c", Outcome.NOT_RUN))
    with path.open("a") as file:
        file.write('{"id": "d", "outco')
    assert set(read_journal(path, "key")) == {"a", "b"}
    with Journal(path, "key", resume=True) as journal:
        assert journal.known["b"] == Verdict("b", Outcome.FAIL, "wrong\nvalue", 0.25)
        journal.add(Verdict("d", Outcome.PASS))
    assert set(read_journal(path, "key")) == {"a", "b", "d"}
    assert json.loads(path.read_text().splitlines()[0]) == {"key": "key"}


def test_a_journal_of_something_else_counts_for_nothing(tmp_path):
    path = tmp_path / "run.jsonl"
    with Journal(path, "one", resume=False) as journal:
        journal.add(Verdict("a", Outcome.PASS))
    assert read_journal(path, "other") == {}
    for text in ("", "[]\n", "no json\n", '{"key": "one"}\n[]\n'):
        path.write_text(text)
        assert read_journal(path, "one") == {}
    with Journal(path, "one", resume=True) as journal:
        assert journal.known == {}


def test_the_hash_of_jobs_sees_every_change():
    first = jobs_hash(SOME)
    assert first == jobs_hash(SOME[::-1])
    assert first.startswith("sha256:")
    assert jobs_hash(SOME[1:]) != first
    changed = type(SOME[0])(
        SOME[0].id, SOME[0].model, {k: v + 1 for k, v in SOME[0].inputs.items()}, SOME[0].expected
    )
    assert jobs_hash([changed, *SOME[1:]]) != first
