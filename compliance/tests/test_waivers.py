"""Waivers are strict: exact, whole, needed, in force, and never for what must pass."""

from __future__ import annotations

import datetime

import pytest
from zoo_cases import CASES

from ep_compliance.checks import all_checks
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.waivers import Waiver, WaiverError, apply_waivers, read_waivers

TODAY = datetime.date(2030, 6, 1)
RELU = CASES["zoo/relu"]
MUST = CASES["zoo/add"]

TEXT = """
[[waiver]]
id = "zoo/relu"
reason = "the chip has no comparison"
link = "https://example.com/1"
owner = "toy team"
expires = 2030-12-31
"""


def waiver(identifier="zoo/relu", expires=datetime.date(2030, 12, 31)):
    return Waiver(identifier, "the chip can't", "https://example.com/1", "toy team", expires)


def apply(outcome, *waivers, job=RELU, **more):
    verdict = Verdict(job.id, outcome, "off by one")
    (after,), problems = apply_waivers([job], [verdict], waivers, TODAY, **more)
    return after, problems


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT])
def test_a_failure_is_waived(outcome):
    after, problems = apply(outcome, waiver())
    assert after.outcome is Outcome.WAIVED
    assert after.reason == "the chip can't (toy team, until 2030-12-31): off by one"
    assert problems == []


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.UNSUPPORTED])
def test_a_waiver_that_isnt_needed_is_a_problem(outcome):
    after, problems = apply(outcome, waiver())
    assert after.outcome is outcome
    assert "isn't needed" in problems[0]


@pytest.mark.parametrize("outcome", [Outcome.NOT_RUN, Outcome.QUARANTINED])
def test_an_undecided_case_leaves_its_waiver_alone(outcome):
    after, problems = apply(outcome, waiver())
    assert after.outcome is outcome
    assert problems == []


def test_a_waiver_holds_on_its_last_day_and_not_after():
    assert apply(Outcome.FAIL, waiver(expires=TODAY))[0].outcome is Outcome.WAIVED
    yesterday = TODAY - datetime.timedelta(days=1)
    after, problems = apply(Outcome.FAIL, waiver(expires=yesterday))
    assert after.outcome is Outcome.FAIL
    assert problems == ["the waiver for 'zoo/relu' has run out on 2030-05-31; its owner: toy team"]


def test_a_waiver_for_nothing_is_a_problem_unless_it_is_for_what_was_left_out():
    _, problems = apply(Outcome.PASS, waiver("zoo/reluu"))
    assert "names no case or check: Did you mean 'zoo/relu'?" in problems[0]
    assert apply(Outcome.PASS, waiver("zoo/other"), others={"zoo/other": None})[1] == []


@pytest.mark.parametrize("job", [MUST, all_checks()["claims/pure"]], ids=["case", "check"])
def test_what_must_pass_cant_be_waived(job):
    after, problems = apply(Outcome.FAIL, waiver(job.id), job=job)
    assert after.outcome is Outcome.FAIL
    assert problems == [f"{job.id!r} must pass; no waiver covers it"]


def test_a_file_is_read(tmp_path):
    path = tmp_path / "waivers.toml"
    path.write_text(TEXT)
    (found,) = read_waivers(path)
    assert found.expires == datetime.date(2030, 12, 31)
    assert found.record["owner"] == "toy team"
    path.write_text("")
    assert read_waivers(path) == ()


BAD = {
    "no TOML": ("[[", "can't read"),
    "other table": (TEXT.replace("waiver", "waver"), "unknown key 'waver'. Did you mean 'waiver'"),
    "one table": (TEXT.replace("[[waiver]]", "[waiver]"), "expected \\[\\[waiver\\]\\] tables"),
    "no reason": (TEXT.replace('reason = "the chip has no comparison"', ""), "'reason' is missing"),
    "empty owner": (TEXT.replace('"toy team"', '""'), "owner; expected a text"),
    "unknown key": (TEXT + 'pattern = "zoo/*"\n', "unknown key 'pattern'"),
    "date as text": (TEXT.replace("2030-12-31", '"2030-12-31"'), "expires; expected a date"),
    "time": (TEXT.replace("2030-12-31", "2030-12-31T00:00:00"), "expires; expected a date"),
    "twice": (TEXT + TEXT, "two waivers for 'zoo/relu'"),
    "a list of numbers": ("waiver = [1]", "expected a table"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_isnt_right_is_refused(tmp_path, name):
    text, saying = BAD[name]
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    with pytest.raises(WaiverError, match=saying):
        read_waivers(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(WaiverError, match="can't read"):
        read_waivers(tmp_path / "none.toml")
