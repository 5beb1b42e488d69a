"""The report page: well formed, whole, escaped, in need of nothing else, and of bounded size."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from html.parser import HTMLParser

import onnx
import pytest
from results_of import NASTY, VERDICTS, good_run, run_of_everything
from zoo_cases import CASES

from ep_compliance.cases.case import Subject
from ep_compliance.reports.page import html_page
from ep_compliance.reports.pages.frame import duration
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.types import DataType

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Checks that tags nest, and gathers links, ids, tables and text."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.elements = []
        self.words = ""
        self.script = ""
        self.tables = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.rows = self.tables[dict(attrs)["id"]] = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.script += data
        elif self.open and self.open[-1] != "style":
            self.words += f"{data} "
            if {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data

    def attributes(self, name):
        return [found[name] for _, found in self.elements if name in found]

    def links(self):
        return [found for tag, found in self.elements if tag == "a"]


@pytest.fixture
def page():
    return Page(html_page(run_of_everything()))


def test_it_is_well_formed(page):
    assert page.open == []
    identifiers = page.attributes("id")
    assert len(set(identifiers)) == len(identifiers)
    known = set(identifiers)
    assert set(page.attributes("aria-labelledby")) <= known
    assert set(page.attributes("data-table")) <= known
    assert len(set(page.tables)) == len(page.tables) == 10


def test_it_needs_nothing_else(page):
    text = html_page(run_of_everything())
    assert page.attributes("src") == []
    for link in page.links():
        assert link["href"].startswith(("data:application/octet-stream;base64,", "#"))
    assert "@import" not in text
    assert "url(" not in text
    assert {link["href"][1:] for link in page.links() if link["href"].startswith("#")} <= set(
        page.attributes("id")
    )


def test_only_its_own_script_may_run(page):
    (policy,) = [c for c in page.attributes("content") if c.startswith("default-src")]
    digest = hashlib.sha256(page.script.encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert not any(name.startswith("on") for _, found in page.elements for name in found)


def test_everything_from_outside_is_escaped(page):
    text = html_page(run_of_everything())
    assert "<script>alert" not in text
    assert "<Zoo>" not in text
    assert "<4>" not in text
    assert "<team>" not in text
    # In the failure, the waiver, the waived case, the override and the quarantine.
    assert page.words.count("<script>alert(1)</script>") >= 4
    assert NASTY.replace("\x00", "\\x00").replace("\x1b", "\\x1b") in page.words
    assert all("javascript:" not in link["href"] for link in page.links())


def test_it_says_what_fails_and_holds_the_model(page):
    relu, mul = page.tables["failures-table"][1:]
    assert relu[:2] == ["zoo/relu", "failed"]
    assert mul[:3] == ["zoo/mul", "crashed", "crashed with SIGSEGV"]
    link = next(link for link in page.links() if "download" in link)
    assert link["download"] == "zoo_relu.onnx"
    data = base64.b64decode(link["href"].partition("base64,")[2])
    assert onnx.load_from_string(data) == CASES["zoo/relu"].model


def test_it_has_a_table_of_operators(page):
    head, *rows = page.tables["operators-table"]
    assert head == ["Operator", "Versions", "State", "Granted", "Failed", "Not claimed"]
    found = {row[0]: [cell.replace("\xa0", " ") for cell in row[1:]] for row in rows}
    assert found["Add"] == ["14", "in part", "float 2", "", "int64 1"]
    assert found["Relu"] == ["14", "failed", "", "float 1/1", ""]
    assert found["Identity"] == ["16", "undecided", "", "", "float? 1"]
    assert found["MatMul"] == ["13", "granted", "float 1", "", ""]
    assert "Softmax" not in found
    assert "1 operators aren't claimed in any version" in page.words


def versions(*outcomes):
    """A run of one operator whose versions 1, 6, 13, 14 fare as given."""
    jobs, verdicts = [], []
    for version, outcome in zip((1, 6, 13, 14), outcomes, strict=True):
        subject = Subject("", "Relu", version, {"T": DataType.FLOAT})
        name = f"zoo/relu-{version}"
        jobs.append(dataclasses.replace(CASES["zoo/relu"], id=name, subject=subject))
        verdicts.append(Verdict(name, outcome))
    table = Page(html_page(run_of_everything(jobs=jobs, verdicts=verdicts))).tables
    return [row[1:3] for row in table["operators-table"][1:]]


def test_versions_that_fare_alike_are_one_row():
    good, bad = Outcome.PASS, Outcome.FAIL
    assert versions(good, good, good, good) == [["1\u201314", "granted"]]
    assert versions(good, bad, bad, good) == [
        ["1", "granted"],
        ["6\u201313", "failed"],
        ["14", "granted"],
    ]


def test_it_tells_what_was_excepted_and_why(page):
    waiver = page.tables["waivers-table"][1]
    assert waiver[:2] == ["zoo/matmul", "in force"]
    assert waiver[3:] == ["javascript:1", "zoo <team>", "9999-12-31"]
    needed, idle = page.tables["overrides-table"][1:]
    assert [needed[0], needed[1], needed[3]] == ["zoo/sqrt", "needed", "ulps 7"]
    assert [idle[0], idle[1], idle[3]] == ["zoo/add", "not needed", "steps 1"]
    assert page.tables["quarantined-table"][1][0] == "zoo/identity"
    assert page.tables["not_run-table"][1] == ["claims/pure", "stopped"]


def test_it_tells_time_memory_and_costs(page):
    words = " ".join(page.words.split())
    assert "Whole run 1.5 s Workers 2, busy for 1 s together" in words
    assert "7 MiB in a worker, 9 MiB in the kit's own process" in words
    assert page.tables["groups-table"][1] == ["zoo", "9", "3", "2", "2", "1 s"]
    assert page.tables["slowest-table"][1][:2] == ["zoo/sqrt", "500 ms"]
    costs = page.tables["costs-table"][1]
    assert costs == ["Add", "float", "2", "4.5 \u00b5s", "3 \u00b5s", "1.25", "0.5", "2"]


def test_it_tells_what_a_certificate_is_bound_to(page):
    words = " ".join(page.words.split())
    assert "Fingerprint zoo-1 cages <4> Options threads=2 Arithmetic flushes denormals" in words
    assert "Cases sha256:0 (9 cases, 1 checks)" in words
    assert "Why there is no certificate the run is incomplete" in words.replace(
        "the waiver for 'x' isn't needed ", ""
    )


def test_checks_say_what_they_are_about(page):
    row = page.tables["checks-table"][1]
    assert row[:2] == ["claims/pure", "not run"]
    assert len(row[2]) > 20


def test_a_run_without_failures_says_so():
    page = Page(html_page(good_run()))
    assert "Passed: everything that it claims, it does." in page.words
    assert "failures-table" not in page.tables
    assert "Arithmetic as IEEE 754 has it" in " ".join(page.words.split())


def test_a_run_of_nothing_is_a_page_too():
    page = Page(html_page(run_of_everything(jobs=[], verdicts=[], problems=[], overrides=[])))
    assert page.open == []


def test_its_size_is_bounded_whatever_fails():
    model = CASES["zoo/matmul"].model
    jobs = [dataclasses.replace(CASES["zoo/matmul"], id=f"zoo/{n}") for n in range(4000)]
    verdicts = [Verdict(job.id, Outcome.FAIL, "x" * 300) for job in jobs]
    text = html_page(run_of_everything(jobs=jobs, verdicts=verdicts))
    assert len(text.encode()) < 3_000_000
    page = Page(text)
    assert "3000 more in report.json" in page.words
    big = onnx.ModelProto()
    big.CopyFrom(model)
    big.doc_string = "x" * 300_000
    jobs = [dataclasses.replace(jobs[0], model=big)]
    text = html_page(run_of_everything(jobs=jobs, verdicts=[VERDICTS["zoo/relu"]]))
    assert "293.1 KiB, not embedded" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\u2013"),
        (0.0, "0 \u00b5s"),
        (1.5e-6, "1.5 \u00b5s"),
        (0.25, "250 ms"),
        (1.0, "1 s"),
        (123.456, "123 s"),
    ],
)
def test_durations_have_a_unit(seconds, text):
    assert duration(seconds) == text
