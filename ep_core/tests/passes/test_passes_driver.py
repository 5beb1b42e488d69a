"""`optimize`: levels, names of passes, postconditions, bodies, cost."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto, helper
from pass_equivalence import assert_same_bits, evaluate, feeds_for, graph, operators

import ep_core.passes as passes
from ep_core.errors import EpError, OptionError
from ep_core.loading.load import load_model
from ep_core.passes import PASSES, GraphOptimizationLevel, Pass, PassError, optimize
from ep_core.passes._driver import PassContext, run_pass
from ep_core.passes._scope import Names

NONE = GraphOptimizationLevel.ORT_DISABLE_ALL
BASIC = GraphOptimizationLevel.ORT_ENABLE_BASIC
EXTENDED = GraphOptimizationLevel.ORT_ENABLE_EXTENDED
LAYOUT = GraphOptimizationLevel.ORT_ENABLE_LAYOUT
ALL = GraphOptimizationLevel.ORT_ENABLE_ALL


def sample():
    """Something to do for each level: an Identity, a Conv with a factor, transposes to cancel."""
    body = """a = Identity(x)
        b = Conv(a, w)
        c = Mul(b, k)
        d = Transpose<perm=[0,2,1]>(c)
        e = Relu(d)
        y = Transpose<perm=[0,2,1]>(e)"""
    weights = np.ones((4, 2, 3), np.float32)
    return graph("(float[N,2,5] x) => (float[R] y)", body, w=weights, k=np.float32(2))


@pytest.mark.parametrize(
    ("level", "left"),
    [
        (NONE, "Identity Conv Mul Transpose Relu Transpose"),
        (BASIC, "Conv Mul Transpose Relu Transpose"),
        (EXTENDED, "Conv Transpose Relu Transpose"),
        (LAYOUT, "Conv Relu"),
        (ALL, "Conv Relu"),
    ],
)
def test_each_level_includes_the_ones_before(level, left):
    before = sample()
    after = optimize(before, level, evaluate=evaluate)
    assert operators(after) == operators_named(left)
    assert after.input_names == before.input_names
    assert after.output_names == before.output_names
    assert_same_bits(before, after, {"x": np.ones((1, 2, 5), np.float32)})
    assert optimize(after, level, evaluate=evaluate) is after


def operators_named(text):
    from collections import Counter

    return Counter(text.split())


def test_levels_are_those_of_onnx_runtime():
    assert {level.name: level.value for level in GraphOptimizationLevel} == {
        "ORT_DISABLE_ALL": 0,
        "ORT_ENABLE_BASIC": 1,
        "ORT_ENABLE_EXTENDED": 2,
        "ORT_ENABLE_LAYOUT": 3,
        "ORT_ENABLE_ALL": 99,
    }


def test_what_is_public():
    assert sorted(passes.__all__) == [
        "Evaluate",
        "GraphOptimizationLevel",
        "PASSES",
        "Pass",
        "PassError",
        "Watch",
        "optimize",
    ]


def test_names_of_passes_are_unique():
    names = [name for step in PASSES for name in (step.name, *step.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.name)
def test_a_disabled_pass_is_not_run(step, monkeypatch):
    def fail(editor, context):
        raise AssertionError(step.name)

    broken = tuple(Pass(s.name, s.level, fail, s.aliases) if s is step else s for s in PASSES)
    monkeypatch.setattr(passes, "PASSES", broken)
    for name in (step.name, *step.aliases):
        optimize(sample(), ALL, evaluate=evaluate, disabled=[name])
    with pytest.raises(AssertionError, match=step.name):
        optimize(sample(), ALL, evaluate=evaluate)


def test_names_of_onnx_runtime_work_where_the_idea_is_the_same():
    disabled = ["EliminateIdentity", "ConvMulFusion", "TransposeOptimizer"]
    after = optimize(sample(), ALL, evaluate=evaluate, disabled=disabled)
    assert after.nodes == sample().nodes or operators(after) == operators(sample())


def test_an_unknown_name_is_an_error_that_offers_the_right_one():
    with pytest.raises(OptionError, match="Did you mean 'ConstantFolding'"):
        optimize(sample(), BASIC, evaluate=evaluate, disabled=["ConstantFoldin"])
    with pytest.raises(OptionError, match="unknown optimizer"):
        optimize(sample(), NONE, evaluate=evaluate, disabled=["Nonsense"])


# ---------------------------------------------------------------- postconditions


def broken_pass(rewrite):
    return Pass("Broken", BASIC, lambda editor, context: rewrite(editor))


def drop_producer(editor):
    ((key, _), *_) = editor.find("Identity")
    editor.remove(key)


def swap_cycle(editor):
    (first, conv), (_, mul) = *editor.find("Conv"), *editor.find("Mul")
    editor.replace(first, conv.replace(inputs=(mul.outputs[0], *conv.inputs[1:])))


def double_definition(editor):
    editor.add(editor.make_node("Neg", ("x",), ("c",)))


def double_name(editor):
    (_, first) = next(editor.find())
    editor.add(editor.make_node("Neg", ("x",), ("fresh",)).replace(name=first.name))


def lose_output(editor):
    (*_, (key, node)) = editor.find()
    editor.replace(key, node.replace(outputs=("other",)))


@pytest.mark.parametrize(
    ("rewrite", "message"),
    [
        (drop_producer, "reads 'a' before anything produces it"),
        (swap_cycle, "before anything produces it"),
        (double_definition, "produces 'c', which exists already"),
        (double_name, "shares its name"),
        (lose_output, "nothing produces output 'y'"),
    ],
)
def test_a_pass_that_breaks_the_graph_is_named(rewrite, message):
    before = sample()
    with pytest.raises(PassError, match=message) as caught:
        run_pass(broken_pass(rewrite), before, PassContext(evaluate, Names(before)))
    assert "Broken" in str(caught.value)
    assert isinstance(caught.value, EpError)


def test_a_pass_may_not_change_the_signature_of_a_body(monkeypatch):
    before = graph(
        "(float[N] x, bool c) => (float[N] y)",
        """y = If(c) <
            then_branch = t () => (float[N] p) { p = Neg(x) },
            else_branch = e () => (float[N] q) { q = Abs(x) }
        >""",
    )

    def rename(editor):
        for key, node in editor.find("Neg"):
            editor.replace(key, node.replace(outputs=("r",)))
            outputs = tuple(type(info)("r", info.type) for info in editor.graph.outputs)
            editor.graph = editor.graph.replace(outputs=outputs)

    with pytest.raises(PassError, match="changed output_names of graph 't'"):
        run_pass(broken_pass(rename), before, PassContext(evaluate, Names(before)))


# ---------------------------------------------------------------- strange graphs and cost


@pytest.mark.parametrize("level", [BASIC, ALL])
def test_graphs_without_nodes_inputs_or_outputs_are_fine(level):
    empty = graph("(float[N] x) => (float[N] x)", "")
    assert optimize(empty, level, evaluate=evaluate) is empty
    constant = graph("() => (float[1] k)", "", k=np.float32([1]))
    assert optimize(constant, level, evaluate=evaluate) is constant


def test_loops_keep_their_meaning_at_every_level():
    before = graph(
        "(float[N] x, int64 n) => (float[N] y, float[M,N] z)",
        """o = Identity(k)
        t = Neg(x)
        s = Neg(x)
        y, z = Loop(n, go, x) <
            body = b (int64 i, bool c, float[N] v) => (bool d, float[N] w, float[N] h)
            {
                d = Identity(c)
                f = Mul(o, o)
                a = Mul(v, f)
                q = Add(t, s)
                p = Identity(q)
                w = Add(a, p)
                h = Identity(w)
                dead = Exp(a)
            }
        >""",
        k=np.float32(0.5),
        go=np.array(True),
    )
    for level in (BASIC, ALL):
        after = optimize(before, level, evaluate=evaluate)
        assert operators(after) == operators_named("Neg Loop Identity Mul Add Add Identity")
        feeds = {**feeds_for(before, 2), "n": np.array(3, np.int64)}
        assert_same_bits(before, after, feeds)


def large_model(count):
    """A chain with something for most basic passes at each step."""
    nodes = []
    previous = "x"
    for i in range(count // 5):
        nodes += [
            helper.make_node("Identity", [previous], [f"i{i}"], name=f"i{i}"),
            helper.make_node("Exp", [f"i{i}"], [f"a{i}"], name=f"a{i}"),
            helper.make_node("Exp", [f"i{i}"], [f"b{i}"], name=f"b{i}"),
            helper.make_node("Add", [f"a{i}", f"b{i}"], [f"c{i}"], name=f"c{i}"),
            helper.make_node("Neg", [f"a{i}"], [f"d{i}"], name=f"d{i}"),
        ]
        previous = f"c{i}"
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, ["N"])]
    outputs = [value(previous, TensorProto.FLOAT, ["N"])]
    made = helper.make_graph(nodes, "chain", inputs, outputs)
    opsets = [helper.make_opsetid("", 17)]
    return load_model(helper.make_model(made, opset_imports=opsets, ir_version=8)).graph


def test_the_time_grows_with_the_number_of_nodes_and_not_faster():
    def seconds(count):
        model = large_model(count)
        start = time.process_time()
        after = optimize(model, ALL, evaluate=evaluate)
        spent = time.process_time() - start
        assert len(after.nodes) == 2 * (count // 5)
        return spent

    small = min(seconds(500) for _ in range(2))
    assert seconds(4000) < 8 * 4 * small
