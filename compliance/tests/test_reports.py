"""Reports: JSON and JUnit that tools can read, a page that holds together and needs nothing."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import onnx
import pytest
from zoo_cases import CASES

from ep_compliance.cases import Level
from ep_compliance.checks import all_checks
from ep_compliance.jobs import Target
from ep_compliance.outcomes import Outcome, Verdict
from ep_compliance.page import html_page
from ep_compliance.reports import dumps, json_report, junit_report, summary
from ep_compliance.results import Results
from ep_core.types import DeviceInfo

NASTY = 'wrong <b>value</b> & "quotes" \x00\x1b \N{SNOWMAN}'
JOBS = [CASES["zoo/relu"], CASES["zoo/add"], CASES["zoo/add_int"], CASES["zoo/mul"]]
VERDICTS = [
    Verdict("zoo/relu", Outcome.FAIL, NASTY, 0.25),
    Verdict("zoo/add", Outcome.PASS, "", 0.125),
    Verdict("zoo/add_int", Outcome.UNSUPPORTED, "no integers"),
    Verdict("zoo/mul", Outcome.CRASH, "crashed with SIGSEGV"),
]
CHECK = all_checks()["claims/pure"]


@pytest.fixture
def results():
    return Results(
        target=Target("zoo", options={"threads": "2"}),
        device=DeviceInfo("zoo", "0", "cpu", name="<Zoo>", fingerprint="zoo-1"),
        level=Level.FULL,
        jobs=[*JOBS, CHECK],
        verdicts=[*VERDICTS, Verdict(CHECK.id, Outcome.NOT_RUN, "stopped")],
        cases_hash="sha256:0",
        kit_version="0.1.0",
        problems=["the waiver for 'x' isn't needed"],
        seconds=1.5,
        date="2030-06-01",
    )


def test_the_summary_counts(results):
    assert summary(results) == (
        "5 cases and checks: 1 pass, 1 fail, 1 unsupported, 1 not run, 1 crash"
    )


def test_json_has_everything(results):
    report = json.loads(dumps(json_report(results)))
    assert report["passed"] is False
    assert report["counts"]["pass"] == 1
    assert [v["id"] for v in report["verdicts"]] == [v.case_id for v in results.verdicts]
    assert report["verdicts"][0]["reason"] == NASTY
    assert report["verdicts"][0]["subject"] == {
        "domain": "",
        "op_type": "Relu",
        "since_version": 14,
        "dtypes": {"T": "float"},
    }
    assert any("incomplete" in problem for problem in report["problems"])


def test_junit_is_xml_with_right_totals(results):
    root = ElementTree.fromstring(junit_report(results))
    suites = {suite.get("name"): suite for suite in root}
    zoo = suites["zoo"]
    totals = [zoo.get(key) for key in ("tests", "failures", "errors", "skipped")]
    assert totals == ["4", "1", "1", "1"]
    failure = zoo.find("testcase[@name='relu']/failure")
    assert failure.get("message") == NASTY.replace("\x00", "\\x00").replace("\x1b", "\\x1b")
    assert suites["claims"].get("errors") == "1"
    assert suites["waivers"].get("errors") == "1"


# ---------------------------------------------------------------- the page

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Checks that tags nest, and gathers links and text."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.links = []
        self.resources = []
        self.tables = 0
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        found = dict(attrs)
        self.tables += tag == "table"
        if tag == "a":
            self.links.append(found)
        self.resources += [found[key] for key in ("src", "href") if key in found]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += f"{data} "


def test_the_page_is_well_formed_and_needs_nothing_else(results):
    text = html_page(results)
    page = Page(text)
    assert page.open == []
    assert all(resource.startswith("data:") for resource in page.resources)
    assert "@import" not in text
    assert "url(" not in text
    assert "<script" not in text


def test_the_page_says_what_fails_and_holds_the_model(results):
    page = Page(html_page(results))
    assert 'wrong <b>value</b> & "quotes"' in page.words
    assert "<Zoo>" in page.words
    link = page.links[0]
    assert link["download"] == "zoo_relu.onnx"
    data = base64.b64decode(link["href"].partition("base64,")[2])
    assert onnx.load_from_string(data) == CASES["zoo/relu"].model


def test_the_page_has_a_table_of_operators(results):
    page = Page(html_page(results))
    words = " ".join(page.words.split())
    assert "Operator Version float int64" in words
    assert "Add 14 \u2713 1 \u2013" in words
    assert "Relu 14 \u2717 1" in words


def test_a_run_without_failures_says_so(results):
    good = Results(
        target=results.target,
        device=results.device,
        level=Level.MUSTPASS,
        jobs=JOBS[1:2],
        verdicts=VERDICTS[1:2],
        cases_hash="sha256:0",
        kit_version="0.1.0",
    )
    assert good.passed
    page = Page(html_page(good))
    assert "Passed: everything that it claims, it does." in page.words
    assert "Failures" not in page.words
