"""The kit's recorded answers, held against ONNX Runtime as it is installed, and against the
operators' definitions in standard operators, which the kit evaluates in double precision.
"""

from __future__ import annotations

import collections
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from ep_compliance.cases.recorded.answers import recorded_allowances
from ep_compliance.cases.recorded.cases import cases_of_question
from ep_compliance.cases.recorded.files import read_questions
from ep_compliance.oracle.evaluate import Evaluator
from ep_compliance.oracle.tolerance import Context, judge

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(SCRIPTS))
    try:
        path = SCRIPTS / "record_contrib_cases.py"
        spec = importlib.util.spec_from_file_location("record_contrib_cases", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def asked(script):
    return list(script.questions())


@pytest.fixture(scope="module")
def recorded():
    return {(q.domain, q.op_type, q.name): q for q in read_questions()}


def as_recorded(question):
    """The case of a question in the types in which it was answered."""
    return next(cases_of_question(question, "recorded", core=False))


def problem(got, question):
    case = as_recorded(question)
    context = Context(recorded_allowances(case, case.recorded))
    return judge(got, case.expected, context)


def same(a, b):
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.all(a == b))


def test_the_file_has_the_questions_of_the_script(asked, recorded):
    """If this fails: python scripts/record_contrib_cases.py"""
    assert [(a.domain, a.op_type, a.name) for a in asked] == list(recorded)
    for question in asked:
        kept = recorded[question.domain, question.op_type, question.name]
        assert all(map(same, question.inputs, kept.inputs)), question.name
        assert [value is not None for value in kept.outputs] == list(question.outputs)
        assert dict(kept.attributes) == dict(question.attributes)
        assert (kept.constants, kept.mixed, kept.fixed) == (
            question.constants,
            question.mixed,
            question.fixed,
        )


def test_onnxruntime_still_answers_so(asked, recorded, script):
    """On another machine, or in another version, within what a provider is allowed."""
    wrong = {}
    for question in asked:
        kept = recorded[question.domain, question.op_type, question.name]
        got = [value for value in script.answered(question).outputs if value is not None]
        found = problem(got, kept)
        if found is not None:
            wrong[question.op_type, question.name] = found
    assert wrong == {}


def test_definitions_in_standard_operators_agree(asked, recorded):
    from contrib_cases.compositions import composed, has_composition

    wrong, agreed = {}, collections.Counter()
    for question in asked:
        if not has_composition(question):
            continue
        evaluator = Evaluator(composed(question))
        inputs = {f"x{i}": value for i, value in enumerate(question.inputs) if value is not None}
        got = evaluator.rounded(evaluator.run(inputs))
        found = problem(got, recorded[question.domain, question.op_type, question.name])
        if found is None:
            agreed[question.op_type] += 1
        else:
            wrong[question.op_type, question.name] = found
    assert wrong == {}
    assert len(agreed) > 45
    assert agreed.total() > 300
