"""Reports for machines: JSON and JUnit XML that tools can read."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from results_of import NASTY, good_run, run_of_everything

from ep_compliance.reports.formats import dumps, json_report, junit_report, summary
from ep_compliance.reports.groups import groups_of
from ep_compliance.running.outcomes import Outcome


@pytest.fixture
def results():
    return run_of_everything()


def test_the_summary_counts(results):
    assert summary(results) == (
        "10 cases and checks: 3 pass, 1 fail, 2 unsupported, 1 waived, 1 not run, 1 crash, "
        "1 quarantined"
    )


def test_json_has_everything(results):
    report = json.loads(dumps(json_report(results)))
    assert report["passed"] is False
    assert report["counts"]["pass"] == 3
    assert [v["id"] for v in report["verdicts"]] == [v.case_id for v in results.verdicts]
    assert report["verdicts"][0]["reason"] == NASTY
    assert report["verdicts"][0]["subject"] == {
        "domain": "",
        "op_type": "Relu",
        "since_version": 14,
        "dtypes": {"T": "float"},
    }
    assert any("incomplete" in problem for problem in report["problems"])


def test_json_tells_time_and_memory(results):
    report = json_report(results)
    assert report["seconds"] == 1.5
    assert report["workers"] == 2
    assert report["peak_bytes"] == {"kit": 9 << 20, "worker": 7 << 20}
    zoo, claims = report["groups"]
    assert zoo == {
        "name": "zoo",
        "counts": {
            "pass": 3,
            "fail": 1,
            "unsupported": 2,
            "waived": 1,
            "crash": 1,
            "quarantined": 1,
        },
        "seconds": 1.0,
        "slowest": "zoo/sqrt",
    }
    assert claims["counts"] == {"not run": 1}


def test_json_tells_what_was_declared_and_excepted(results):
    report = json_report(results)
    assert report["numerics"] == {"flushes_denormals": True, "narrow_accumulation": False}
    assert json_report(run_of_everything(numerics=None))["numerics"] is None
    assert report["waivers"][0]["id"] == "zoo/matmul"
    assert [(o["case"], o["needed"]) for o in report["overrides"]] == [
        ("zoo/sqrt", True),
        ("zoo/add", False),
    ]
    assert report["overrides"][0]["ulps"] == 7
    assert [v["id"] for v in report["verdicts"] if v["overridden"]] == ["zoo/sqrt"]


def test_keys_are_always_the_same(results):
    one, other = json_report(results), json_report(good_run())
    assert list(one) == list(other)
    assert len({tuple(verdict) for verdict in one["verdicts"]}) == 1


def test_json_has_one_line_for_each_verdict(results):
    lines = dumps(json_report(results)).splitlines()
    found = [line for line in lines if line.lstrip().startswith('{"id"')]
    assert len(found) == len(results.verdicts)


def test_groups_come_in_the_order_of_their_time(results):
    groups = groups_of(results.verdicts)
    assert [group.name for group in groups] == ["zoo", "claims"]
    assert groups[0].total == 9
    assert groups[0].counts[Outcome.CRASH] == 1
    assert groups_of([]) == []


def test_junit_is_xml_with_right_totals(results):
    root = ElementTree.fromstring(junit_report(results))
    suites = {suite.get("name"): suite for suite in root}
    totals = {
        name: [suite.get(key) for key in ("tests", "failures", "errors", "skipped")]
        for name, suite in suites.items()
    }
    assert totals == {
        "zoo": ["9", "1", "1", "4"],
        "claims": ["1", "0", "1", "0"],
        "waivers-and-overrides": ["1", "0", "1", "0"],
    }
    assert [root.get(key) for key in ("tests", "failures", "errors", "skipped")] == [
        "11",
        "1",
        "3",
        "4",
    ]
    failure = suites["zoo"].find("testcase[@name='relu']/failure")
    assert failure.get("message") == NASTY.replace("\x00", "\\x00").replace("\x1b", "\\x1b")
    assert suites["zoo"].get("timestamp") == "2030-06-01T00:00:00"


def test_junit_has_only_what_its_readers_know(results):
    root = ElementTree.fromstring(junit_report(results))
    assert {element.tag for element in root.iter()} == {
        "testsuites",
        "testsuite",
        "testcase",
        "failure",
        "error",
        "skipped",
    }
    for case in root.iter("testcase"):
        assert float(case.get("time")) >= 0
        assert case.get("classname")
        assert len(case) <= 1
