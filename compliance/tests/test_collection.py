"""A pattern chooses jobs by their ids, and spares the making of those that it can't choose."""

from __future__ import annotations

import pytest

from ep_compliance.cases.case import Level
from ep_compliance.cases.matrix import matrix_cases
from ep_compliance.checks import all_checks
from ep_compliance.running.collection import collect_jobs, matches


@pytest.fixture(scope="module")
def everything():
    return collect_jobs(Level.FULL)


PATTERNS = [
    "matrix/Relu-14/float/plain",
    "matrix/Relu-14/*",
    "matrix/Re*-1?/float/*",
    "matrix/ai.onnx.ml.Scaler-1/*",
    "*/float/empty",
    "placement/*",
    "placement/copies",
    "chain/float/*",
    "recorded/*Gelu*",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_what_matches_and_nothing_else(everything, pattern):
    right = [job.id for job in everything if matches(job, pattern)]
    assert [job.id for job in collect_jobs(Level.FULL, pattern)] == right
    assert right


def test_cases_that_a_pattern_excludes_are_not_made(monkeypatch):
    def unwanted(*arguments):
        raise AssertionError("made for nothing")

    monkeypatch.setattr("ep_compliance.cases.official.official_cases", unwanted)
    monkeypatch.setattr("ep_compliance.cases.random_graphs.random_cases", unwanted)
    assert [job.id for job in collect_jobs(Level.FULL, "matrix/Relu-14/float/plain")]
    monkeypatch.setattr("ep_compliance.cases.matrix.matrix_cases", unwanted)
    found = {job.id for job in collect_jobs(Level.FULL, "memory/*")}
    assert found == {name for name in all_checks() if name.startswith("memory/")} - {
        name for name, check in all_checks().items() if check.level > Level.FULL
    }


def test_an_operators_cases_are_made_alone():
    assert {case.subject.op_type for case in matrix_cases(begin="Relu-14/float")} == {"Relu"}
