"""Shrinking: a failing graph becomes the few nodes that are to blame, and fails as it did."""

from __future__ import annotations

import functools
import time

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from zoo_base import CorrectProvider, factory_of, table_with

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.random_graphs import random_cases
from ep_compliance.driving.bench import Bench
from ep_compliance.running.jobs import Target
from ep_compliance.running.judging import judge_case
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.shrink import Budget, manner, shrink, shrinks
from ep_compliance.running.trials import trials


def judge_of(provider_class, seen=None):
    factory = factory_of(provider_class)
    bench = Bench(factory, factory.devices()[0])

    def judge(case):
        if seen is not None:
            seen.append(case)
        with bench.open() as provider:
            judgement = judge_case(case, provider)
        return Verdict(case.id, judgement.outcome, judgement.reason)

    return judge


def wrong_relu(x):
    return np.abs(x)


def wrong_broadcast(a, b):
    """Right for equal shapes and scalars; else the second operand's first value is used."""
    if a.ndim > b.ndim > 0:
        b = np.broadcast_to(b.ravel()[:1].reshape([1] * b.ndim), b.shape)
    return np.add(a, b)


def imprecise(a, b):
    return (a.astype(np.float16) @ b.astype(np.float16)).astype(a.dtype)


class WrongRelu(CorrectProvider):
    table = table_with(Relu=wrong_relu)


class WrongBroadcast(CorrectProvider):
    table = table_with(Add=wrong_broadcast)


class Imprecise(CorrectProvider):
    table = table_with(MatMul=imprecise)


class FusesBlindly(CorrectProvider):
    """Computes Mul with the factor that the Add behind it would need; right without one."""

    def compile(self, subgraph):
        nodes = subgraph.nodes
        products = {node.outputs[0] for node in nodes if node.op_type == "Mul"}
        fused = any(node.op_type == "Add" and set(node.inputs) & products for node in nodes)
        self.table = _TWICE if fused else CorrectProvider.table
        return super().compile(subgraph)


_TWICE = table_with(Mul=lambda a, b: np.multiply(a, b) * a.dtype.type(2))


@functools.cache
def usual_cases():
    return tuple(random_cases(Level.FULL))


@pytest.mark.parametrize(
    ("provider_class", "most_nodes", "to_blame"),
    [
        (WrongRelu, 1, {"Relu"}),
        (WrongBroadcast, 1, {"Add"}),
        (Imprecise, 1, {"MatMul"}),
        (FusesBlindly, 2, {"Mul", "Add"}),
    ],
)
def test_a_defect_is_caught_by_a_random_graph_and_cut_down(provider_class, most_nodes, to_blame):
    judge = judge_of(provider_class)
    found = ((case, judge(case)) for case in usual_cases())
    failing = [(c, v) for c, v in found if v.outcome is Outcome.FAIL and shrinks(c)]
    assert failing
    for case, verdict in failing[:3]:
        shrunk = shrink(case, verdict, judge)
        nodes = shrunk.case.model.graph.node
        assert len(nodes) <= most_nodes
        assert {node.op_type for node in nodes} == to_blame
        assert shrunk.repeated
        assert manner(shrunk.verdict) == manner(verdict)
        onnx.checker.check_model(shrunk.case.model, full_check=True)
        again = judge(shrunk.case)
        assert (again.outcome, again.reason) == (Outcome.FAIL, shrunk.verdict.reason)


def graph_case(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, 1, v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info(n, 1, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in constants],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return Case("test/graph", model, inputs)


def test_outputs_lengths_digits_and_what_is_left_out_go_too():
    x = np.linspace(-3.3, 3.2, 4 * 6, dtype=np.float32).reshape(4, 6)
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
        helper.make_node("Mul", ["a", "b"], ["z"]),
    ]
    case = graph_case(nodes, {"x": x}, ["y", "z", "a"], [("b", x[0])])
    judge = judge_of(WrongRelu)
    smallest = shrink(case, judge(case), judge).case
    (node,) = smallest.model.graph.node
    assert node.op_type == "Relu"
    assert [info.name for info in smallest.model.graph.output] == ["y"]
    assert not smallest.model.graph.initializer
    (value,) = smallest.inputs.values()
    assert value.size == 1
    assert value == np.rint(value)
    assert value < 0


def test_attributes_and_optional_inputs_that_do_not_matter_go():
    def fails_with_a_gemm(case):
        gemms = [node for node in case.model.graph.node if node.op_type == "Gemm"]
        outcome = Outcome.FAIL if gemms else Outcome.PASS
        return Verdict(case.id, outcome, "wrong" if gemms else "")

    square = np.eye(3, dtype=np.float32)
    gemm = helper.make_node("Gemm", ["x", "w", "c"], ["g"], alpha=2.0, transA=1, transB=1)
    nodes = [gemm, helper.make_node("Relu", ["g"], ["y"])]
    case = graph_case(nodes, {"x": square}, ["y"], [("w", square), ("c", square[0])])
    (node,) = shrink(case, fails_with_a_gemm(case), fails_with_a_gemm).case.model.graph.node
    assert (node.op_type, len(node.input), len(node.attribute)) == ("Gemm", 2, 0)


def test_another_way_to_fail_does_not_count():
    def judge(case):
        # With fewer nodes it fails, but for another reason.
        reason = "output y: 3 of 4 values wrong; worst at [0]: got 1"
        if len(case.model.graph.node) < 4:
            reason = "claimed, but compile fails: CompileError: too small"
        return Verdict(case.id, Outcome.FAIL, reason)

    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(4)]
    case = graph_case(nodes, {"v0": np.ones(1, np.float32)}, ["v4"])
    assert len(shrink(case, judge(case), judge).case.model.graph.node) == 4


def test_ways_to_fail_are_told_apart():
    def of(reason, outcome=Outcome.FAIL):
        return manner(Verdict("x", outcome, reason))

    wrong = of(
        "output v7: 1 of 2 values wrong; worst at [0, 1]: got -2.0, expected 0.0; allowed: x"
    )
    assert wrong == of(
        "output y: 30 of 40 values wrong; worst at [3]: got 1, expected 2; allowed: y"
    )
    assert wrong != of("output y: shape (2,) expected, got (3,)")
    assert of("claimed, but compile fails: CompileError: node 'n1'") == of(
        "claimed, but compile fails: CompileError: node 'n22' of another"
    )
    assert of("claimed, but compile fails: CompileError: x") != of(
        "claimed, but compile fails: TypeError: x"
    )
    assert of("no answer within 60 s", Outcome.TIMEOUT) == of(
        "no answer within 10 s", Outcome.TIMEOUT
    )
    first = "claimed and compiled, but the first run fails: "
    assert of(f"{first}RunError: node 'n1'") != of(f"{first}TypeError: node 'n1'")
    assert of("output a: shape (2, 3) expected, got ()") == of(
        "output b: shape () expected, got (1,)"
    )
    assert of("", Outcome.CRASH) != of("", Outcome.FAIL)


def test_a_failure_that_does_not_come_again_is_left_as_it_is():
    case = next(c for c in usual_cases() if shrinks(c))
    shrunk = shrink(case, Verdict(case.id, Outcome.FAIL, "once"), judge_of(CorrectProvider))
    assert not shrunk.repeated
    assert shrunk.case is case


def test_tries_and_seconds_are_bounded():
    seen = []
    case = next(c for c in usual_cases() if len(c.model.graph.node) > 9)
    always = judge_of(CorrectProvider)
    verdict = Verdict(case.id, Outcome.FAIL, "wrong")

    def fails_as_a_whole(tried):
        seen.append(tried)
        whole = len(tried.model.graph.node) == len(case.model.graph.node)
        return verdict if whole else always(tried)

    shrunk = shrink(case, verdict, fails_as_a_whole, Budget(tries=7))
    assert len(seen) == shrunk.tries == 7

    def slow(tried):
        time.sleep(0.05)
        return verdict

    began = time.monotonic()
    shrink(case, verdict, slow, Budget(seconds=0.2))
    assert time.monotonic() - began < 2


def test_what_has_bodies_or_one_node_is_not_cut():
    one = graph_case([helper.make_node("Relu", ["x"], ["y"])], {"x": np.ones(1, "f4")}, ["y"])
    assert not shrinks(one)
    assert shrinks(usual_cases()[0])


# ---------------------------------------------------------------- in worker processes


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("provider", "outcome"), [("crashes", Outcome.CRASH), ("hangs", Outcome.TIMEOUT)]
)
def test_crashes_and_hangs_are_cut_down_too(provider, outcome):
    # Both are about a Mul of two shapes.
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "b"], ["m"]),
        helper.make_node("Add", ["m", "x"], ["y"]),
    ]
    x = np.ones((2, 3), np.float32)
    case = graph_case(nodes, {"x": x}, ["y"], [("b", x[0])])
    with trials(Target(provider), 1.0) as judge:
        shrunk = shrink(case, judge(case), judge, Budget(tries=5, seconds=30))
    assert shrunk.verdict.outcome is outcome
    assert [node.op_type for node in shrunk.case.model.graph.node] == ["Mul"]


@pytest.mark.usefixtures("site")
def test_a_provider_that_cant_be_opened_ends_the_trials():
    with trials(Target("cant_open"), 5.0) as judge:
        case = usual_cases()[0]
        assert judge(case).outcome is Outcome.NOT_RUN
        assert judge(case).outcome is Outcome.NOT_RUN
