"""Recorded answers: what the file holds, what cases come of it, and how they are judged."""

from __future__ import annotations

import dataclasses
import math
from importlib.resources import files

import numpy as np
import onnx
import pytest

from ep_compliance.cases.case import Level
from ep_compliance.cases.recorded.cases import recorded_cases
from ep_compliance.cases.recorded.files import read_questions, source_of_questions, written
from ep_compliance.cases.recorded.operators import OPERATORS
from ep_compliance.certificates.rows import granted_rows
from ep_compliance.oracle.answers import answer
from ep_compliance.oracle.classes import EXACT_OPERATORS, QUANTIZING
from ep_compliance.oracle.precision import is_float
from ep_compliance.oracle.tolerance import judge
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.loading.load import load_model
from ep_core.types import DataType

MICROSOFT = "com.microsoft"


@pytest.fixture(scope="module")
def cases():
    return list(recorded_cases())


@pytest.fixture(scope="module")
def questions():
    return {(q.op_type, q.name): q for q in read_questions()}


def of(cases, op_type):
    return [case for case in cases if case.subject.op_type == op_type]


def rows_of(cases):
    return granted_rows((case, Verdict(case.id, Outcome.PASS)) for case in cases)


# ---------------------------------------------------------------- the file


def test_it_says_who_answered_and_is_small():
    assert source_of_questions().startswith("onnxruntime 1.")
    assert len(files("ep_compliance.cases.recorded").joinpath("microsoft.jsonl").read_bytes()) < 2e6


def test_it_is_written_as_it_is_read():
    text = (
        files("ep_compliance.cases.recorded")
        .joinpath("microsoft.jsonl")
        .read_text(encoding="utf-8")
    )
    assert written(source_of_questions(), read_questions()) == text


def test_every_operator_has_questions(questions):
    asked = {(q.domain, q.op_type) for q in questions.values()}
    assert set(OPERATORS) <= asked


def test_inputs_are_the_same_in_every_type(cases, questions):
    """One answer serves several types only if they all hold the inputs exactly."""
    by_name = {(op, name.replace(" ", "-")): q for (op, name), q in questions.items()}
    derived = 0
    for case in cases:
        question = by_name.get((case.subject.op_type, case.id.rsplit("/", 1)[1]))
        for name, value in case.inputs.items() if question is not None else ():
            recorded = question.inputs[int(name.removeprefix("x"))]
            if is_float(value.dtype) and recorded.dtype == np.float32:
                derived += value.dtype != np.float32
                wide = value.astype(np.float64)
                np.testing.assert_array_equal(wide, recorded.astype(np.float64), err_msg=case.id)
    assert derived > 1000


# ---------------------------------------------------------------- right answers, by other means


def test_gelu_is_its_formula(questions):
    question = questions["Gelu", "far out"]
    x = question.inputs[0].astype(np.float64)
    right = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]
    np.testing.assert_allclose(question.outputs[0], right, rtol=2e-6, atol=1e-7)


def test_hashes_are_the_published_ones(questions):
    """MurmurHash3_x86_32 with seed 0: 0 of nothing, 0xB3DD93FA of `abc`."""
    question = questions["MurmurHash3", "string 1 0"]
    hashes = dict(zip(question.inputs[0].tolist(), question.outputs[0].tolist(), strict=True))
    assert hashes[""] == 0
    assert hashes["abc"] == 0xB3DD93FA


def test_inverses_undo(questions):
    question = questions["Inverse", "stack"]
    identity = question.inputs[0] @ question.outputs[0]
    np.testing.assert_allclose(identity, np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-6)


# ---------------------------------------------------------------- cases


def test_ids_are_unique_and_models_load(cases):
    assert len({case.id for case in cases}) == len(cases) > 1500
    for case in cases[::7]:
        graph = load_model(case.model).graph
        assert len(graph.nodes) == 1
        assert set(graph.input_names) == set(case.inputs)
        assert case.level is Level.FULL


def test_types_of_one_answer(cases):
    kinds = {case.subject.dtypes["T"] for case in of(cases, "FastGelu")}
    floats = {DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE}
    assert kinds == floats
    # What only moves data holds in every type; hashes are those of their own type.
    assert {DataType.STRING, DataType.BOOL, DataType.INT8} <= {
        case.subject.dtypes["T"] for case in of(cases, "ExpandDims")
    }
    hashed = {case.subject.dtypes["T1"]: case for case in of(cases, "MurmurHash3")}
    assert not np.array_equal(
        hashed[DataType.FLOAT].expected[0], hashed[DataType.DOUBLE].expected[0]
    )
    mixed = {tuple(case.subject.dtypes.values()) for case in of(cases, "GroupNorm")}
    assert (DataType.FLOAT16, DataType.FLOAT) in mixed


def test_inputs_as_constants_and_shapes_by_name(cases):
    by_id = {case.id: case for case in cases}
    fixed = by_id[f"recorded/{MICROSOFT}.FastGelu-1/float16/bias-constant"]
    assert [t.name for t in fixed.model.graph.initializer] == ["x1"]
    assert set(fixed.inputs) == {"x0"}
    named = by_id[f"recorded/{MICROSOFT}.FastGelu-1/float/plain-symbolic"]
    dims = named.model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param for dim in dims] == ["x0_0", "x0_1", "x0_2"]


def test_subjects_do_not_depend_on_what_is_registered(cases):
    before = [case.subject for case in cases]
    # One of those whose names onnx has too, so that no plugin has registered it.
    onnx.defs.register_schema(onnx.defs.OpSchema("Gelu", MICROSOFT, 1))
    try:
        assert [case.subject for case in recorded_cases()] == before
        rows = rows_of(of(cases, "Gelu"))
    finally:
        onnx.defs.deregister_schema("Gelu", 1, MICROSOFT)
    assert [row.record for row in rows] == [row.record for row in rows_of(of(cases, "Gelu"))]


# ---------------------------------------------------------------- judging


def test_the_recorded_answer_is_final(cases):
    for case in cases[::11]:
        right = answer(case)
        assert right.quarantine_reason is None
        assert right.source == source_of_questions()
        assert judge(case.expected, right.expected, right.context) is None


def wrong_by(value, share):
    """A value that is off by a share of its largest element, or by two steps."""
    if is_float(value.dtype):
        wide = value.astype(np.float64)
        return (wide + share * np.max(np.abs(wide))).astype(value.dtype)
    if value.dtype == object or value.dtype == bool:
        return ~value if value.dtype == bool else np.full_like(value, "wrong")
    if value.dtype.kind == "c":
        return value + value.dtype.type(1)
    if value.dtype.kind == "V":
        return np.bitwise_xor(value.view(np.uint8) & 15, 8).view(value.dtype)
    info = np.iinfo(value.dtype)
    return np.where(value > info.max - 2, value - 2, value + 2).astype(value.dtype)


def test_wrong_answers_are_found(cases):
    """An error of 1/8 of the largest element always shows, one of 1/1000 in nearly all of float32.

    In 16 bits it is 1/2: eight units of bfloat16 are 1/16. What remains are operators that answer
    to a change with a leap: samples and codes.
    """
    missed, judged = [], 0
    for case in cases:
        if not all(np.asarray(value).size for value in case.expected):
            continue
        context = answer(case).context
        coarse = [wrong_by(v, 0.5 if v.dtype.itemsize == 2 else 0.125) for v in case.expected]
        assert judge(coarse, case.expected, context) is not None, case.id
        if case.expected[0].dtype == np.float32:
            judged += 1
            fine = [wrong_by(value, 1e-3) for value in case.expected]
            if judge(fine, case.expected, context) is None:
                missed.append(case.id)
    assert judged > 300
    assert len(missed) < 0.05 * judged, missed


def test_a_step_is_allowed_to_quantizing_operators_only(cases):
    for op_type in ("QLinearAdd", "NhwcMaxPool"):
        case = next(c for c in of(cases, op_type) if c.expected[0].dtype == np.uint8)
        off = case.expected[0].copy()
        off.flat[0] += 1 if off.flat[0] < 255 else -1
        right = answer(case)
        allowed = judge([off], case.expected, right.context) is None
        assert allowed is (op_type in QUANTIZING)
        assert (op_type in EXACT_OPERATORS) is not allowed


def test_doubles_are_known_to_float32(cases):
    case = next(c for c in of(cases, "Gelu") if c.expected[0].dtype == np.float64)
    context = answer(case).context
    for error, wrong in ((1e-8, False), (1e-4, True)):
        off = case.expected[0] + error
        assert (judge([off], case.expected, context) is not None) is wrong


# ---------------------------------------------------------------- rows


def test_rows_close_what_no_case_had(cases):
    (row,) = rows_of(of(cases, "SkipSimplifiedLayerNormalization"))
    assert [sorted(types) for types in row.inputs[:1]] == [
        ["tensor(bfloat16)", "tensor(double)", "tensor(float)", "tensor(float16)"]
    ]
    # Mean and deviation are among no case's outputs; the sum is.
    assert [types if types is None else len(types) for types in row.outputs] == [None, 0, 0, None]
    assert row.record["outputs"] == [None, [], [], None]


def test_rows_of_a_variadic_operator_stay_open(cases):
    rows = rows_of(of(cases, "QLinearConcat"))
    codes = {"tensor(int8)", "tensor(uint8)"}
    assert {kind for row in rows for kind in row.inputs[-1]} == codes | {"tensor(float)"}
    assert all(len(row.inputs) == 3 for row in rows)


def test_one_wrong_case_costs_its_types(cases):
    gelus = of(cases, "Gelu")
    verdicts = [
        Verdict(
            case.id,
            Outcome.FAIL if case.subject.dtypes["T"] is DataType.FLOAT16 else Outcome.PASS,
        )
        for case in gelus
    ]
    (row,) = granted_rows(zip(gelus, verdicts, strict=True))
    assert sorted(row.inputs[0]) == ["tensor(bfloat16)", "tensor(double)", "tensor(float)"]


def test_a_recording_counts_in_the_hash(cases):
    from ep_compliance.running.jobs import jobs_hash

    case = of(cases, "Gelu")[0]
    changed = dataclasses.replace(case, expected=[case.expected[0] + 1])
    looser = dataclasses.replace(
        case, recorded=dataclasses.replace(case.recorded, spreads=[case.expected[0]])
    )
    assert len({jobs_hash([one]) for one in (case, changed, looser)}) == 3
