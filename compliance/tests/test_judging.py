"""What a provider declares about its arithmetic reaches the judge, and nothing else loosens it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import helper
from zoo_base import CorrectProvider, factory_of

from ep_compliance.cases.case import Case
from ep_compliance.cases.numerics_cases import numerics_cases
from ep_compliance.checks import all_checks
from ep_compliance.driving.bench import Bench
from ep_compliance.oracle.answers import answer
from ep_compliance.oracle.flushing import nearest_flushed
from ep_compliance.oracle.tolerance import judge
from ep_compliance.running.judging import declared_numerics, examine, judge_case
from ep_compliance.running.outcomes import Outcome
from ep_core.contracts import Numerics, ProviderFeatures
from ep_core.types import DataType
from ep_sdk import KernelProvider, KernelTable

F16 = np.dtype(np.float16)
FLOATS = frozenset({DataType.FLOAT16, DataType.FLOAT, DataType.DOUBLE})
CASES = {case.id: case for case in numerics_cases()}
DENORMAL = [
    f"numerics/{op}/{kind}/denormal-operands"
    for op in ("Add-14", "Mul-14", "Div-14", "Less-13")
    for kind in ("float16", "float", "double")
]
LONG = [f"numerics/{op}/float16/long-sum" for op in ("MatMul-13", "ReduceSum-13")]


def flushed(x):
    """As hardware does it: the sign of what is flushed stays."""
    if x.dtype.kind != "f":
        return x
    return np.where(np.abs(x) < np.finfo(x.dtype).smallest_normal, np.copysign(0, x), x).astype(
        x.dtype
    )


def unsigned(x):
    """As some hardware does it: what is flushed is +0."""
    tiny = (x != 0) & (np.abs(x) < np.finfo(x.dtype).smallest_normal)
    return np.where(tiny, x.dtype.type(0), x)


def flushing(function, read=flushed):
    return lambda a, b: flushed(function(read(a), read(b)))


def half_sum(x):
    """One after the other, each partial sum rounded."""
    total = x.dtype.type(0)
    for term in x.ravel():
        total = x.dtype.type(total + term)
    return total.reshape((1,) * x.ndim)


def half_matmul(a, b):
    total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for k in range(a.shape[1]):
        total = (total + np.outer(a[:, k], b[k])).astype(a.dtype)
    return total


OPERATORS = {"Add": np.add, "Mul": np.multiply, "Div": np.divide, "Less": np.less}


def provider_of(kernels, **declared):
    """An open provider with these kernels, function by operator, and its declaration."""
    table = KernelTable({"": 28})
    for op_type, function in kernels.items():
        table.kernel(op_type, types={"T": FLOATS})(lambda node, f=function: f)
    features = ProviderFeatures(numerics=Numerics(**declared))
    provider_class = type("Provider", (KernelProvider,), {"table": table, "features": features})
    factory = factory_of(provider_class)
    return factory.create(factory.devices()[0], {"threads": 1})


STRICT = provider_of(OPERATORS)
FLUSHING = {name: flushing(function) for name, function in OPERATORS.items()}
NARROW = {"MatMul": half_matmul, "ReduceSum": half_sum}


@pytest.mark.parametrize("identifier", DENORMAL)
def test_flushed_denormals_count_only_where_that_is_declared(identifier):
    case = CASES[identifier]
    assert examine(case, STRICT) == (Outcome.PASS, "")
    outcome, reason = examine(case, provider_of(FLUSHING))
    assert outcome is Outcome.FAIL
    assert "values wrong" in reason
    assert examine(case, provider_of(FLUSHING, flushes_denormals=True)) == (Outcome.PASS, "")
    # Who may flush needn't.
    assert examine(case, provider_of(OPERATORS, flushes_denormals=True)) == (Outcome.PASS, "")
    # Narrow accumulation is something else.
    other = provider_of(FLUSHING, narrow_accumulation=True)
    assert examine(case, other)[0] is Outcome.FAIL


@pytest.mark.parametrize(
    "kernels",
    [
        {"Div": flushing(np.divide, read=unsigned)},
        {"Div": lambda a, b: np.divide(a, flushed(b))},
        {"Div": lambda a, b: flushed(np.divide(flushed(a), b))},
    ],
    ids=["sign lost", "second operand only", "first operand only"],
)
def test_any_operand_may_be_flushed_and_the_sign_of_its_zero_is_free(kernels):
    case = CASES["numerics/Div-14/float/denormal-operands"]
    assert examine(case, provider_of(kernels))[0] is Outcome.FAIL
    assert examine(case, provider_of(kernels, flushes_denormals=True)) == (Outcome.PASS, "")


def test_flushing_excuses_nothing_else():
    case = CASES["numerics/Mul-14/float/denormal-operands"]
    for wrong in (
        lambda a, b: np.zeros_like(a),
        lambda a, b: np.abs(flushed(a * b)),
        lambda a, b: (flushed(a) * flushed(b)) * np.float32(1 + 2**-22),
    ):
        outcome, _ = examine(case, provider_of({"Mul": wrong}, flushes_denormals=True))
        assert outcome is Outcome.FAIL


@pytest.mark.parametrize("identifier", LONG)
def test_narrow_sums_count_only_where_they_are_declared(identifier):
    case = CASES[identifier]
    outcome, reason = examine(case, provider_of(NARROW))
    assert outcome is Outcome.FAIL
    assert "c*sqrt(K)*eps" in reason
    assert examine(case, provider_of(NARROW, narrow_accumulation=True)) == (Outcome.PASS, "")
    other = provider_of(NARROW, flushes_denormals=True)
    assert examine(case, other)[0] is Outcome.FAIL


def test_narrow_accumulation_widens_nothing_but_sums_of_16_bit_floats():
    add = CASES["numerics/Add-14/float16/denormal-operands"]
    sloppy = {"Add": lambda a, b: ((a + b) * F16.type(1.001)).astype(a.dtype)}
    assert examine(add, provider_of(sloppy, narrow_accumulation=True))[0] is Outcome.FAIL
    narrow = dataclasses.replace(
        answer(single_sum()).context, numerics=Numerics(narrow_accumulation=True)
    )
    got = [np.array([[512 * (1 + 2**-12)]], np.float32)]
    assert judge(got, [np.array([[512]], np.float32)], narrow) is not None


def single_sum():
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"], ["y"])],
        "sum",
        [info("x", 1, [1, 1024])],
        [info("y", 1, [1, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Case("sum", model, {"x": np.full((1, 1024), 0.5, np.float32)})


def test_where_zeros_decide_on_the_shape_either_answer_is_right():
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "g",
        [info("x", 1, [3])],
        [info("y", 7, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    case = Case("nonzero", model, {"x": np.array([1, 1e-40, 2], np.float32)})
    strict = np.array([[0, 1, 2]])
    np.testing.assert_array_equal(answer(case).expected[0], strict)
    for got in (strict, np.array([[0, 2]])):
        np.testing.assert_array_equal(nearest_flushed(case, [got], [strict])[0], got)
    np.testing.assert_array_equal(nearest_flushed(case, [strict[:, :1]], [strict])[0], strict)


# ---------------------------------------------------------------- what is declared


class Odd(CorrectProvider):
    features = ProviderFeatures(numerics="all of it")


class OddFlag(CorrectProvider):
    features = ProviderFeatures(numerics=Numerics(narrow_accumulation="yes"))


class Fickle(CorrectProvider):
    """Declares something else each time."""

    opened = 0

    def __init__(self, *arguments):
        super().__init__(*arguments)
        Fickle.opened += 1
        self.features = ProviderFeatures(numerics=Numerics(Fickle.opened % 2 == 0))


@pytest.mark.parametrize(
    ("provider_class", "saying"),
    [
        (Odd, "'numerics' is no Numerics"),
        (OddFlag, "'narrow_accumulation' is no bool"),
        (Fickle, "differs when the device is opened again"),
    ],
)
def test_a_check_holds_the_declaration_to_its_type(provider_class, saying):
    factory = factory_of(provider_class)
    outcome, reason = all_checks()["life/identity"].judge(Bench(factory, factory.devices()[0]))
    assert outcome is Outcome.FAIL
    assert saying in reason


def test_a_wrong_declaration_loosens_nothing():
    with Bench(factory_of(Odd), factory_of(Odd).devices()[0]).open() as provider:
        assert declared_numerics(provider) == Numerics()
        assert judge_case(single_sum(), provider).outcome is Outcome.UNSUPPORTED
