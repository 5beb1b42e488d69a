"""Random graphs: valid, the same everywhere, answered, and judged by what roundings may do."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.chains import chain_cases
from ep_compliance.cases.random_graphs import COUNTS, random_case, random_cases
from ep_compliance.cases.random_graphs.draws import Draws
from ep_compliance.cases.random_graphs.families import FAMILIES
from ep_compliance.cases.random_graphs.steps import all_steps
from ep_compliance.oracle.answers import answer
from ep_compliance.oracle.evaluate import Evaluator
from ep_compliance.oracle.precision import is_float, narrow
from ep_compliance.oracle.tolerance import EXACT, judge
from ep_compliance.running.jobs import jobs_hash
from ep_core.contracts import Numerics
from ep_core.loading.load import load_model

HASH = "sha256:edc8030ab55d0b72a58110144420749c5a90a88424da01e20161f744b5b181db"
FIRST = [random_case(number) for number in range(300)]
JUMPING = {
    *("ArgMax", "ArgMin", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less"),
    *("LessOrEqual", "Mod", "Round", "Sign", "TopK"),
}


@functools.cache
def evaluated(number):
    """The evaluator of one of the first graphs, and its values."""
    evaluator = Evaluator(FIRST[number].model)
    return evaluator, evaluator.run(FIRST[number].inputs)


def dims(info):
    return tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)


# ---------------------------------------------------------------- what is made


def test_graphs_are_valid_and_have_the_shapes_that_they_declare():
    for number, case in enumerate(FIRST):
        onnx.checker.check_model(case.model, full_check=True)
        assert len(load_model(case.model).graph.nodes) == len(case.model.graph.node)
        _, values = evaluated(number)
        for info in case.model.graph.output:
            assert values[info.name].shape == dims(info), case.id
        for info in case.model.graph.input:
            value = case.inputs[info.name]
            assert isinstance(value, np.ndarray)
            assert value.shape == dims(info)
            assert value.dtype == helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)


def test_numbers_make_the_same_graphs_on_every_machine():
    # A change of the generator changes every certificate's set of cases: change this on purpose.
    assert jobs_hash(FIRST[:100]) == HASH
    assert jobs_hash([random_case(number) for number in range(100)]) == HASH


def test_choices_are_those_of_a_pinned_generator():
    draws = Draws(1)
    assert [draws.below(1000) for _ in range(5)] == [476, 333, 35, 37, 646]
    assert draws.integers((2, 2), -3, 3).tolist() == [[-2, 0], [3, -3]]


def test_levels_have_their_numbers_of_graphs_and_ids_are_unique():
    assert list(COUNTS.values()) == [12, 200, 2000]
    usual = list(random_cases(Level.FULL))
    assert [sum(c.level is level for c in usual) for level in Level] == [12, 200, 0]
    assert len({case.id for case in usual}) == 212
    quick = list(random_cases(Level.MUSTPASS))
    assert [c.id for c in quick] == [c.id for c in usual[:12]]
    assert {c.id.split("/")[1] for c in quick} == set(FAMILIES)


def test_every_operator_and_every_oddity_occurs():
    models = [case.model.graph for case in FIRST]
    wanted = {name for family in FAMILIES.values() for name in (*family.basic, *family.others)}
    assert wanted == set(all_steps())
    many = [*models, *(random_case(number).model.graph for number in range(300, 900))]
    assert wanted == {node.op_type for graph in many for node in graph.node}
    found = {
        "a value that one node reads twice": any(
            len(set(n.input)) < len(n.input) for g in models for n in g.node
        ),
        "an output that is read": any(
            info.name in node.input for g in models for info in g.output for node in g.node
        ),
        "an input that is an output": any(
            info.name == other.name for g in models for info in g.input for other in g.output
        ),
        "a constant that is an output": any(
            info.name == tensor.name
            for g in models
            for info in g.output
            for tensor in g.initializer
        ),
        "something empty": any(0 in dims(info) for g in models for info in g.output),
        "a scalar": any(dims(info) == () for g in models for info in g.output),
        "an output that nobody reads": any(
            _is_unread(g, name) for g in models for n in g.node for name in n.output
        ),
        "several outputs": any(len(g.output) > 2 for g in models),
    }
    assert [what for what, there in found.items() if not there] == []


def _is_unread(graph, name):
    read = {other for node in graph.node for other in node.input}
    return name not in read | {info.name for info in graph.output}


# ---------------------------------------------------------------- tame


def test_values_stay_finite_and_within_bounds():
    for number, case in enumerate(FIRST):
        for name, value in evaluated(number)[1].items():
            if name and value.dtype.kind == "f":
                assert np.isfinite(value).all(), (case.id, name)
                assert np.max(np.abs(value), initial=0) <= 65536, (case.id, name)


def test_what_jumps_gets_only_what_roundings_have_no_say_in():
    tried = 0
    for number, case in enumerate(FIRST):
        evaluator, wide = evaluated(number)
        if not JUMPING & {node.op_type for node in case.model.graph.node}:
            continue
        rounded = evaluator.run(case.inputs, wide=False)
        for node in case.model.graph.node:
            if node.op_type in JUMPING:
                tried += 1
                for name in node.input:
                    np.testing.assert_array_equal(wide[name], rounded[name], err_msg=case.id)
    assert tried > 80


def test_every_graph_is_answered_and_other_roundings_pass():
    """Rounding every intermediate result to its type is what most providers do."""
    for number, case in enumerate(FIRST[:100]):
        right = answer(case, cross_check=False)
        assert right.quarantine_reason is None, case.id
        evaluator, _ = evaluated(number)
        stepwise = evaluator.rounded(evaluator.run(case.inputs, wide=False))
        assert judge(stepwise, right.expected, right.context) is None, case.id


# ---------------------------------------------------------------- what is allowed


def model_of(nodes, inputs, outputs, dtype=np.float32, constants=()):
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, elem, v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info(n, elem, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def case_of(nodes, inputs, outputs, dtype=np.float32, constants=()):
    return Case("test/graph", model_of(nodes, inputs, outputs, dtype, constants), inputs)


def test_whole_numbers_in_floats_are_judged_exactly():
    x = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    w = np.arange(8, dtype=np.float32).reshape(4, 2)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["a"], ["y"], keepdims=0),
    ]
    right = answer(case_of(nodes, {"x": x, "w": w}, ["y"]), cross_check=False)
    assert right.expected == [np.float32((x @ w).sum())]
    off = [np.nextafter(right.expected[0], np.float32(1e9))]
    assert judge(off, right.expected, right.context) is not None


def test_the_terms_of_a_gemm_add_up_whatever_the_signs_of_its_factors():
    a, b = np.ones((1, 3), np.float32), np.full((3, 1), 2, np.float32)
    c = np.full((1, 1), 6, np.float32)
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], alpha=-1.0, beta=0.5)
    right = answer(case_of([node], {"a": a, "b": b, "c": c}, ["y"]), cross_check=False)
    assert right.expected[0].tolist() == [[-3.0]]
    assert np.asarray(right.context.allowance(0).scale).tolist() == [[9.0]]


def test_an_error_counts_as_much_as_the_graph_makes_of_it():
    # d/dx of 1000 * (x - 1) is 1000: an eps of the difference's operands becomes 1000 of them.
    x = np.array([1.0001, 1.5, 3.0], np.float32)
    one, thousand = np.array(1.0, np.float32), np.array(1000.0, np.float32)
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Sub", ["s", "one"], ["d"]),
        helper.make_node("Mul", ["d", "thousand"], ["y"]),
    ]
    constants = (("one", one), ("thousand", thousand))
    right = answer(case_of(nodes, {"x": x}, ["y"], constants=constants), cross_check=False)
    eps = 2.0**-23
    for units, allowed in ((3, True), (200, False)):
        moved = [right.expected[0] + np.float32(1000 * units * eps)]
        assert (judge(moved, right.expected, right.context) is None) is allowed, units


def test_sums_of_sixteen_bits_have_room_only_where_that_is_declared():
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(np.float16) for shape in ((4, 48), (48, 3)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    right = answer(case_of(nodes, {"x": x, "w": w}, ["y"], np.float16), cross_check=False)
    total = np.zeros((4, 3), np.float16)
    for k in range(48):
        total = total + x[:, k : k + 1] * w[k]
    narrowly = [np.maximum(total, np.float16(0))]
    declared = dataclasses.replace(right.context, numerics=Numerics(narrow_accumulation=True))
    assert judge(narrowly, right.expected, declared) is None
    sloppy = [narrowly[0] + np.float16(0.25)]
    assert judge(sloppy, right.expected, declared) is not None


def test_a_quantized_value_beside_a_tie_may_take_either_step():
    # exp(x) / scale is 0.5 within a rounding for the first, far from a tie for the second.
    x = np.array([np.log(0.5 * 0.1), 0.0], np.float32)
    scale, zero = np.array(0.1, np.float32), np.array(0, np.int8)
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    constants = (("scale", scale), ("zero", zero))
    right = answer(case_of(nodes, {"x": x}, ["y"], constants=constants), cross_check=False)
    tenth = np.float32(0.1)
    for first in (np.float32(0), tenth):
        got = [np.array([first, right.expected[0][1]])]
        assert judge(got, right.expected, right.context) is None
    got = [right.expected[0] + np.array([0, tenth])]
    assert judge(got, right.expected, right.context) is not None


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_node_is_seen(family):
    """Negating what one node gives out must not pass as a rounding."""
    numbers = [n for n, case in enumerate(FIRST) if case.id.split("/")[1] == family][:6]
    seen = tried = 0
    for case, number in ((FIRST[number], number) for number in numbers):
        right = answer(case, cross_check=False)
        evaluator, values = evaluated(number)
        for node in case.model.graph.node:
            name = node.output[0]
            if not is_float(evaluator.declared(name)) or not np.any(np.abs(values[name]) > 0.1):
                continue
            noise = {name: -2.0 * values[name]}
            wrong = evaluator.rounded(evaluator.run(case.inputs, noise=noise))
            # Some wrong values never reach an output: Relu, Max and the like hide them.
            if all(map(np.array_equal, wrong, right.expected)):
                continue
            tried += 1
            seen += judge(wrong, right.expected, right.context) is not None
    assert seen >= 0.97 * tried
    assert tried >= 5 or family == "whole"


def test_chains_with_roundings_to_other_types_have_room_for_them():
    case = next(c for c in chain_cases() if c.id == "chain/float/cast-narrow-cast")
    right = answer(case, cross_check=False)
    assert judge(right.expected, right.expected, right.context) is None
    assert right.context.allowance(0) is not EXACT
    assert narrow(right.expected[0].astype(np.float64), np.dtype(np.float32)).dtype == np.float32
