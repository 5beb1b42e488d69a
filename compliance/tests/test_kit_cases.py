"""Generated and official cases: valid, stable, cheap, and about what they say."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import onnx
import pytest

from ep_compliance.cases.case import Level, Subject
from ep_compliance.cases.chaining import builders
from ep_compliance.cases.chains import chain_cases
from ep_compliance.cases.coverage import Claim, claims_of, coverage
from ep_compliance.cases.matrix import matrix_cases
from ep_compliance.cases.official import official_cases
from ep_compliance.cases.recipes.numbers import Numbers, scattered, special_values
from ep_compliance.errors import OverrideError
from ep_compliance.oracle.answers import answer
from ep_compliance.oracle.overrides import judge_with, parse_overrides
from ep_compliance.oracle.tolerance import Allowance, Context
from ep_core.loading.load import load_model
from ep_core.types import DataType
from ep_sdk.kernels import KernelTable


def cases_of(op_type, version, *dtypes, domain=""):
    parameters = {str(i): dtype for i, dtype in enumerate(dtypes)}
    return list(matrix_cases([Subject(domain, op_type, version, parameters)]))


class TestMatrix:
    def test_shape_classes_of_an_elementwise_operator(self):
        cases = {c.id: c for c in cases_of("Sqrt", 13, DataType.FLOAT)}
        shapes = {
            "rank0": (),
            "empty": (2, 0, 3),
            "one": (1, 1, 1),
            "odd": (7, 13),
        }
        for name, shape in shapes.items():
            assert cases[f"matrix/Sqrt-13/float/{name}"].inputs["x0"].shape == shape
        strided = cases["matrix/Sqrt-13/float/strided"].inputs["x0"]
        assert not strided.flags.c_contiguous
        symbolic = cases["matrix/Sqrt-13/float/symbolic"].model.graph.input[0]
        assert [dim.dim_param for dim in symbolic.type.tensor_type.shape.dim] == ["x0_0", "x0_1"]
        assert (cases["matrix/Sqrt-13/float/plain"].inputs["x0"] >= 0).all()

    def test_the_subject_is_what_the_id_says(self):
        for case in cases_of("Pow", 15, DataType.FLOAT16):
            assert case.subject.since_version == 15
            assert case.subject.dtypes["T"] is DataType.FLOAT16
        exponents = {case.subject.dtypes["T1"] for case in cases_of("Pow", 15, DataType.FLOAT)}
        assert {DataType.INT32, DataType.DOUBLE, DataType.UINT8} <= exponents

    def test_older_versions_get_their_own_form(self):
        old = next(iter(cases_of("Squeeze", 11, DataType.FLOAT)))
        new = next(iter(cases_of("Squeeze", 13, DataType.FLOAT)))
        assert [a.name for a in old.model.graph.node[0].attribute] == ["axes"]
        assert len(new.inputs) == 2
        assert old.model.opset_import[0].version == 11

    def test_every_pair_of_types_is_cast(self):
        pairs = {
            (case.subject.dtypes["T1"], case.subject.dtypes["T2"]) for case in cases_of("Cast", 13)
        }
        numeric = [
            k for k in DataType if k.bits >= 8 and "8E" not in k.name and "COMPLEX" not in k.name
        ]
        missing = set(itertools.product(numeric, numeric)) - pairs
        assert missing == set()

    def test_generation_is_lazy(self):
        assert next(iter(matrix_cases())).id.startswith("matrix/")

    @pytest.mark.parametrize("op_type", ["MatMul", "Gather", "Conv", "TopK", "LSTM", "Slice"])
    def test_models_load_and_check(self, op_type):
        version = onnx.defs.get_schema(op_type).since_version
        for case in cases_of(op_type, version, DataType.FLOAT):
            onnx.checker.check_model(case.model)
            assert len(load_model(case.model).graph.nodes) == 1
            declared = {info.name for info in case.model.graph.input}
            assert set(case.inputs) == declared

    def test_ids_are_unique_and_levels_nested(self):
        ops = ["Add", "Relu", "MatMul", "Softmax", "Cast", "Concat"]
        subjects = [Subject("", op, onnx.defs.get_schema(op).since_version) for op in ops]
        cases = list(matrix_cases(subjects))
        ids = [case.id for case in cases]
        assert len(set(ids)) == len(ids) > 300
        assert {case.level for case in cases} == set(Level)
        assert sum(case.level is Level.MUSTPASS for case in cases) < len(cases) / 10

    def test_the_same_values_in_another_process(self):
        case = cases_of("Add", 14, DataType.FLOAT)[0]
        script = (
            "from ep_compliance.cases.matrix import matrix_cases\n"
            "from ep_compliance.cases.case import Subject\n"
            "case = next(iter(matrix_cases([Subject('', 'Add', 14)])))\n"
            "case = next(c for c in matrix_cases([Subject('', 'Add', 14)]) "
            f"if c.id == {case.id!r})\n"
            "print(case.inputs['x0'].tobytes().hex())"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == case.inputs["x0"].tobytes().hex()

    def test_answers_for_every_family(self):
        """One case of each operator and the first of its types, by the oracle alone."""
        from ep_compliance.cases.recipes import recipe_names
        from ep_compliance.cases.subjects import schemas_of

        unanswered = []
        for domain, op_type in recipe_names():
            newest = schemas_of(domain, op_type)[-1].since_version
            case = next(iter(matrix_cases([Subject(domain, op_type, newest)])), None)
            if case is None or answer(case, cross_check=False).quarantine_reason is not None:
                unanswered.append(op_type)
        assert unanswered == []


class TestNumbers:
    def test_scattered_has_the_same_values(self):
        x = np.arange(24).reshape(2, 3, 4)
        apart = scattered(x)
        np.testing.assert_array_equal(apart, x)
        assert not apart.flags.c_contiguous
        assert scattered(np.array(3)) == 3

    @pytest.mark.parametrize("kind", [k for k in DataType if k.bits])
    def test_every_type_has_values(self, kind):
        assert Numbers("x").random((3, 2), kind).dtype == kind.numpy
        assert special_values(kind).dtype == kind.numpy

    def test_special_values_of_a_float(self):
        values = special_values(DataType.FLOAT)
        assert np.isnan(values).any()
        assert np.isposinf(values).any()
        assert (np.signbit(values) & (values == 0)).any()

    def test_extremes_of_an_integer(self):
        assert {-128, 127} <= set(special_values(DataType.INT8).tolist())
        assert 2**64 - 1 in special_values(DataType.UINT64).tolist()


class TestCoverage:
    table = KernelTable({"": 14})
    table.kernel("Relu", since=6, types={"T": {DataType.FLOAT, DataType.INT8}})(lambda node: abs)
    table.kernel("Add", since=14, types={0: {DataType.FLOAT}})(lambda node: abs)

    def test_claims_follow_schemas(self):
        claims = claims_of(self.table)
        assert Claim("", "Relu", 6, DataType.FLOAT) in claims
        # int8 came with version 14.
        assert Claim("", "Relu", 6, DataType.INT8) not in claims
        assert Claim("", "Relu", 14, DataType.INT8) in claims
        assert Claim("", "Add", 14, DataType.FLOAT) in claims
        assert len(claims) == 5

    def test_shares(self):
        claims = claims_of(self.table)
        cases = cases_of("Relu", 14, DataType.FLOAT, DataType.INT8)
        found = coverage(claims, cases)
        assert {claim.since_version for claim in found.covered} == {14}
        assert found.share == pytest.approx(2 / 5)
        assert found.pair_share == pytest.approx(2 / 3)
        assert coverage([], []).share == 1


class TestChains:
    def test_every_chain_loads_and_has_an_answer(self):
        cases = [case for case in chain_cases() if case.level is Level.MUSTPASS]
        assert len(cases) == len(builders()) >= 45
        for case in cases:
            onnx.checker.check_model(case.model, full_check=True)
            assert len(case.model.graph.node) > 1
            load_model(case.model)
            found = answer(case, cross_check=False)
            assert found.quarantine_reason is None
            assert found.context.names == [info.name for info in case.model.graph.output]


def test_official_cases():
    cases = list(official_cases())
    assert len(cases) > 1800
    by_id = {case.id: case for case in cases}
    assert len(by_id) == len(cases)
    relu = by_id["official/relu"]
    assert relu.subject == Subject("", "Relu", 14, {"T": DataType.FLOAT})
    assert relu.level is Level.MUSTPASS
    np.testing.assert_array_equal(relu.expected[0], np.maximum(relu.inputs["x"], 0))
    assert by_id["official/bernoulli"].draws
    assert relu.made_by == f"onnx {onnx.__version__}"
    assert by_id["official/gelu_default_1_expanded"].subject is None
    assert 200 < sum(case.level is Level.MUSTPASS for case in cases) < 900


class TestOverrides:
    text = """
    [[override]]
    case = "matrix/Tan-22/float/large"
    reason = "the vendor's library promises 7 units"
    ulps = 7
    """

    def test_it_widens_one_case(self):
        override = parse_overrides(self.text)["matrix/Tan-22/float/large"]
        expected = [np.array([1.0], np.float32)]
        got = [np.array([1 + 6 * 2.0**-23], np.float32)]
        context = Context([Allowance("Tan: 5 ULP", ulps=5)])
        assert judge_with(None, got, expected, context)[0] is not None
        assert judge_with(override, got, expected, context) == (None, True)
        assert judge_with(override, expected, expected, context) == (None, False)
        far = [np.array([1 + 8 * 2.0**-23], np.float32)]
        problem, needed = judge_with(override, far, expected, context)
        assert "override: the vendor's library promises" in problem
        assert not needed

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("[[override]]", "ulps = 9\n[[override]]", "nothing but"),
            ("float/large", "*", "exactly one case"),
            ("the vendor's library promises 7 units", " ", "no reason"),
            ("ulps = 7", "", "allows nothing"),
            ("ulps = 7", "ulps = -1", "positive"),
            ("ulps = 7", "ulps = inf", "positive"),
            ("ulps = 7", "steps = 0.5", "whole"),
            ("ulps = 7", "rtol = 1", "unknown keys"),
            ("[[override]]", "[[override]", "TOML"),
        ],
    )
    def test_what_is_refused(self, old, new, message):
        with pytest.raises(OverrideError, match=message):
            parse_overrides(self.text.replace(old, new))

    def test_two_for_one_case(self):
        with pytest.raises(OverrideError, match="two overrides"):
            parse_overrides(self.text + self.text)
