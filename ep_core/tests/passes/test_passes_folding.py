"""Constant folding and constant branches: exact values, and what must not be folded."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from pass_equivalence import (
    apply,
    assert_same_bits,
    check,
    check_untouched,
    evaluate,
    feeds_for,
    graph,
    operators,
    refuse,
)

from ep_core.loading.load import load_model
from ep_core.passes import GraphOptimizationLevel, optimize
from ep_core.passes._schema import _DRAWING_RANDOM

FOLD = "ConstantFolding"


def value_of(graph, name):
    return graph.initializers[name].numpy()


@pytest.mark.parametrize(
    ("expression", "constants", "expected"),
    [
        ("Add(a, b)", {"a": np.float32(-0.0), "b": np.float32(-0.0)}, np.float32(-0.0)),
        ("Add(a, b)", {"a": np.float32(-0.0), "b": np.float32(0.0)}, np.float32(0.0)),
        ("Mul(a, b)", {"a": np.float32(np.inf), "b": np.float32(0)}, np.float32(np.nan)),
        ("Add(a, b)", {"a": np.int8([127]), "b": np.int8([1])}, np.int8([-128])),
        ("Mul(a, b)", {"a": np.uint8([200]), "b": np.uint8([2])}, np.uint8([144])),
        ("Cast<to=10>(a)", {"a": np.float32([65520.0])}, np.float16([np.inf])),
        ("Cast<to=7>(a)", {"a": np.int32([-1])}, np.int64([-1])),
        ("Concat<axis=0>(a, b)", {"a": np.zeros((0, 2)), "b": np.ones((1, 2))}, np.ones((1, 2))),
        ("Concat<axis=0>(a, a)", {"a": np.array(["é"], object)}, np.array(["é", "é"], object)),
        ("ConstantOfShape(a)", {"a": np.int64([0, 3])}, np.zeros((0, 3), np.float32)),
        (
            "Range(a, b, c)",
            {"a": np.int64(1), "b": np.int64(7), "c": np.int64(3)},
            np.int64([1, 4]),
        ),
        ("NonZero(a)", {"a": np.array([0, 5, 0, 6], np.float32)}, np.int64([[1, 3]])),
    ],
)
def test_nodes_on_constants_become_constants_with_the_operators_own_result(
    expression, constants, expected
):
    before = graph("() => (float y)", f"z = {expression}\ny = Identity(z)", **constants)
    after = apply(FOLD, before)
    assert not after.nodes
    found = value_of(after, "y")
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype == object:
        assert found.tolist() == expected.tolist()
    else:
        np.testing.assert_array_equal(found, expected)
        zero = np.asarray(expected) == 0
        np.testing.assert_array_equal(
            np.signbit(found.astype(float))[zero], np.signbit(expected.astype(float))[zero]
        )


def test_folding_goes_through_chains_and_stops_where_a_feed_comes_in():
    before = graph(
        "(float[N] x) => (float[N] y)",
        "b = Neg(a)\nc = Exp(b)\nd = Add(c, x)\ny = Mul(d, b)",
        a=np.float32([0.5, 1.0, -0.0]),
    )
    after = check(FOLD, before, "Add Mul", lengths=(3, 1))
    assert set(after.initializers) == {"b", "c"}


def test_all_outputs_of_a_folded_node_stay_available():
    before = graph(
        "() => (float[1] p, float[2] q)",
        "p, q = Split<axis=0>(a, sizes)",
        a=np.float32([1, 2, 3]),
        sizes=np.int64([1, 2]),
    )
    after = check(FOLD, before, "")
    np.testing.assert_array_equal(value_of(after, "q"), np.float32([2, 3]))


@pytest.mark.parametrize(
    "line",
    [
        "y = RandomNormal<shape=[2]>()",
        "y = RandomUniformLike(a)",
        "y = Bernoulli(a)",
        "y = Multinomial(m)",
        "y, mask = Dropout(a, ratio, training)",
    ],
)
def test_operators_that_draw_random_numbers_are_never_folded(line):
    constants = {
        "a": np.float32([0.5, 0.5]),
        "m": np.float32([[0.5, 0.5]]),
        "ratio": np.float32(0.5),
        "training": np.array(True),
    }
    used = {name: value for name, value in constants.items() if name in line.replace("mask", "")}
    check_untouched(FOLD, graph("() => (float[2] y)", line, **used))


def test_the_list_of_random_operators_covers_what_onnx_says():
    # Nodes with bodies are left alone anyway. AffineGrid is called non-deterministic because its
    # expansion depends on its input; it computes the same every time.
    schemas = [s for s in onnx.defs.get_all_schemas() if s.domain == ""]
    unsure = onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
    named = {s.name for s in schemas if s.node_determinism == unsure}
    with_bodies = {
        s.name
        for s in schemas
        if any(a.type == onnx.defs.OpSchema.AttrType.GRAPH for a in s.attributes.values())
    }
    assert named - with_bodies - {"AffineGrid"} <= _DRAWING_RANDOM | {"SequenceMap"}


def test_operators_of_other_domains_may_have_state_and_stay():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "custom" : 1]> '
        "g () => (float[1] y) <float[1] a = {1}> { y = custom.Counter(a) }"
    )
    check_untouched(FOLD, load_model(model).graph)


def test_a_default_that_a_feed_may_override_is_no_constant():
    before = graph("(float[2] x, float[2] w) => (float[2] y)", "y = Neg(w)", w=np.float32([1, 2]))
    assert before.overridable == {"w"}
    check_untouched(FOLD, before)


def test_weights_stay_quantised():
    before = graph(
        "() => (float[2] y)",
        "y = DequantizeLinear(a, s)",
        opset=21,
        a=np.int8([1, 2]),
        s=np.float32(0.5),
    )
    check_untouched(FOLD, before)


@pytest.mark.parametrize(
    ("line", "constants"),
    [
        ("y = ConstantOfShape(a)", {"a": np.int64([1 << 40])}),
        ("y = Expand(c, a)", {"a": np.int64([1 << 20, 1 << 20]), "c": np.float32([1])}),
        ("y = Tile(c, a)", {"a": np.int64([1 << 30]), "c": np.float32([1])}),
        ("b = Mul(a, a)\ny = ConstantOfShape(b)", {"a": np.int64([1 << 20])}),
        ("y = Range(z, a, o)", {"a": np.int64(1 << 40), "z": np.int64(0), "o": np.int64(1)}),
        (
            "y = OneHot(i, d, v)",
            {"i": np.int64([1]), "d": np.int64(1 << 40), "v": np.int64([0, 1])},
        ),
    ],
)
def test_a_fold_never_makes_the_model_explode(line, constants):
    asked = []

    def watched(graph, node, inputs):
        asked.append(node.op_type)
        return evaluate(graph, node, inputs)

    after = apply(FOLD, graph("() => (float[N] y)", line, **constants), watched)
    assert len(after.nodes) == 1
    assert after.nodes[0].op_type not in asked


def test_growth_is_allowed_in_proportion_to_the_inputs():
    large = np.zeros((1 << 19) // 4, np.int8)
    before = graph(
        "() => (double[N] y)", "b = Tile(a, n)\ny = Cast<to=11>(b)", a=large, n=np.int64([8])
    )
    assert operators(apply(FOLD, before)) == {"Cast": 1}


@pytest.mark.parametrize(
    "answer",
    [
        lambda *_: None,
        lambda *_: [np.zeros(2, np.float64)],
        lambda *_: [np.zeros(3, np.float32)],
        lambda *_: [],
        lambda *_: [[np.zeros(2, np.float32)]],
        lambda *_: 1 // 0,
    ],
    ids=["refused", "wrong type", "wrong shape", "no output", "a list", "an exception"],
)
def test_what_the_evaluator_cannot_do_stays_in_the_graph(answer):
    before = graph("() => (float[2] y)", "y = Neg(a)", a=np.float32([1, 2]))
    assert apply(FOLD, before, answer) is before


def test_an_evaluator_is_asked_once_about_a_node_and_gets_a_graph_of_its_own():
    seen = []

    def refusing(graph, node, inputs):
        seen.append((node.op_type, graph.nodes, tuple(graph.initializers), len(inputs)))

    before = graph(
        "(float[2] x) => (float[2] y)",
        "b = Clip(a, , m)\ny = Add(b, x)",
        a=np.float32([1, 2]),
        m=np.float32(1),
    )
    optimize(before, GraphOptimizationLevel.ORT_ENABLE_ALL, evaluate=refusing)
    assert seen == [("Clip", (before.nodes[0],), ("a", "m"), 3)]


def test_a_result_that_is_a_view_of_reused_memory_is_copied():
    scratch = np.float32([5, 6])
    before = graph("() => (float[2] y)", "y = Neg(a)", a=np.float32([1, 2]))
    after = apply(FOLD, before, lambda *_: [scratch])
    scratch[:] = 0
    np.testing.assert_array_equal(value_of(after, "y"), np.float32([5, 6]))


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", [2, 3, 4]),
        ("<start=1>", [3, 4]),
        ("<start=-1>", [4]),
        ("<end=-1>", [2, 3]),
        ("<start=1,end=2>", [3]),
        ("<start=2,end=1>", []),
        ("<start=-9,end=9>", [2, 3, 4]),
    ],
)
def test_shape_of_a_static_value_is_constant(attributes, expected):
    before = graph("(float[2,3,4] x) => (int64[R] y)", f"y = Shape{attributes}(x)")
    after = apply(FOLD, before, refuse)
    assert not after.nodes
    assert value_of(after, "y").dtype == np.int64
    assert value_of(after, "y").tolist() == expected
    assert_same_bits(before, after, feeds_for(before))


def test_size_is_a_scalar_also_of_nothing():
    before = graph("(float[2,0,4] x, float s) => (int64 y, int64 z)", "y = Size(x)\nz = Size(s)")
    after = apply(FOLD, before, refuse)
    assert (value_of(after, "y").shape, value_of(after, "y").item()) == ((), 0)
    assert value_of(after, "z").item() == 1


def test_the_known_part_of_a_shape_is_constant():
    before = graph(
        "(float[N,3,4] x) => (int64 y, int64[1] z, int64[M] s)",
        "s = Shape<end=2>(x)\ny = Gather(s, i)\nz = Gather<axis=0>(s, j)",
        i=np.int64(1),
        j=np.int64([-1]),
    )
    after = check(FOLD, before, "Shape")
    assert value_of(after, "y").shape == ()
    assert value_of(after, "z").tolist() == [3]


@pytest.mark.parametrize(
    "line",
    [
        "y = Shape(x)",
        "y = Shape<start=0,end=1>(x)",
        "y = Size(x)",
        "s = Shape(x)\ny = Gather(s, i)",
        "s = Shape(x)\ny = Gather(s, far)",
    ],
)
def test_symbolic_lengths_are_not_constant(line):
    constants = {"i": np.int64([0]), "far": np.int64([7])}
    used = {name: value for name, value in constants.items() if f" {name})" in line}
    check_untouched(FOLD, graph("(float[N,3,4] x) => (int64[M] y)", line, **used))
