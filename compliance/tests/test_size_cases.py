"""Cases of integers that are worked out from shapes, and the rows that they earn."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ep_compliance.cases.case import Subject
from ep_compliance.cases.matrix import matrix_cases
from ep_compliance.cases.size_cases import size_cases
from ep_compliance.certificates.rows import granted_rows
from ep_compliance.oracle.answers import answer
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.loading.load import load_model
from ep_core.types import DataType


@pytest.fixture(scope="module")
def cases():
    return {case.id: case for case in size_cases()}


def test_all_are_valid_and_have_an_answer(cases):
    assert len(cases) > 250
    for case in cases.values():
        onnx.checker.check_model(case.model)
        assert answer(case, cross_check=False).quarantine_reason is None


def test_integers_come_from_the_shape_alone(cases):
    for case in cases.values():
        graph = load_model(case.model).graph
        assert [graph.type_of(name).dtype for name in case.inputs] == [DataType.FLOAT]
        assert all(not isinstance(n, int) for n in graph.type_of(next(iter(case.inputs))).shape)
        last = graph.nodes[-1]
        asked = (last.domain, last.op_type, last.since_version)
        subject = case.subject
        assert asked == (subject.domain, subject.op_type, subject.since_version)
        assert DataType.INT64 in subject.dtypes.values()


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("Sub-14/lengths", 2),
        ("Div-7/constant", 1),
        ("Mod-13/below-zero", [2, 0, 2]),
        ("Concat-4/lengths", [2, 15, -1]),
        ("Slice-10/last", [5]),
        ("Range-11/backwards", [5, 3, 1]),
        ("Where-16/given-lengths", [2, 3, 5]),
        ("ConstantOfShape-9/ones", [[1, 1]] * 3),
        ("Cast-13/float", [2.0, 3.0, 5.0]),
    ],
)
def test_answers_by_hand(cases, name, right):
    # The input is 2 by 3 by 5.
    found = answer(cases[f"size/{name}"], cross_check=False)
    np.testing.assert_array_equal(found.expected[0], right)


def test_a_row_says_that_its_integers_came_from_shapes(cases):
    def passed(case):
        return case, Verdict(case.id, Outcome.PASS, "")

    worked_out = passed(cases["size/Add-14/lengths"])
    given = passed(next(iter(matrix_cases([Subject("", "Add", 14, {"T": DataType.INT64})]))))
    (row,) = granted_rows([worked_out])
    assert row.inputs == (frozenset({"tensor(int64)"}),) * 2
    assert row.predicate == "worked out from shapes"
    (row,) = granted_rows([worked_out, given])
    assert row.predicate == ""
