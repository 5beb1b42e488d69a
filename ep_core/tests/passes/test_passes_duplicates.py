"""Duplicates and dead code: what is merged or dropped, and what has a meaning of its own."""

from __future__ import annotations

import numpy as np
import pytest
from pass_equivalence import (
    apply,
    assert_same_bits,
    check,
    check_untouched,
    feeds_for,
    graph,
    operators,
)

from ep_core.graph import Initializer

SHARING = "ConstantSharing"
CSE = "CommonSubexpressionElimination"
DEAD = "DeadCodeElimination"


# ---------------------------------------------------------------- duplicates


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Exp(x)\nb = Exp(x)\ny = Add(a, b)", "Exp Add"),
        ("a = Exp(x)\nb = Neg(a)\ny = Exp(x)\nc = Neg(y)\nz = Add(b, c)", "Exp Neg Add"),
        ("a = Exp(x)\nb = Exp(x)\nc = Neg(a)\nd = Neg(b)\ny = Add(c, d)", "Exp Neg Add"),
        ("a = Exp(x)\ny = Exp(x)\nb = Neg(a)\nc = Neg(y)\nz = Add(b, c)", "Exp Neg Add"),
        (
            "a = LeakyRelu<alpha=0.5>(x)\nb = LeakyRelu<alpha=0.5>(x)\ny = Add(a, b)",
            "LeakyRelu Add",
        ),
    ],
)
def test_equal_nodes_become_one(body, left):
    outputs = "(float[N] y, float[N] z)" if "z =" in body else "(float[N] y)"
    check(CSE, graph(f"(float[N] x) => {outputs}", body), left)


@pytest.mark.parametrize(
    "body",
    [
        "a = Exp(x)\nb = Exp(w)\ny = Add(a, b)",
        "a = Sub(x, w)\nb = Sub(w, x)\ny = Add(a, b)",
        "a = LeakyRelu<alpha=0.5>(x)\nb = LeakyRelu<alpha=0.25>(x)\ny = Add(a, b)",
        "a = LeakyRelu<alpha=0.0>(x)\nb = LeakyRelu<alpha=-0.0>(x)\ny = Add(a, b)",
        "a = RandomNormalLike(x)\nb = RandomNormalLike(x)\ny = Add(a, b)",
        "a = Bernoulli(x)\nb = Bernoulli(x)\ny = Add(a, b)",
        "y = Identity(x)\nz = Identity(x)",
    ],
)
def test_unequal_nodes_stay(body):
    outputs = "(float[N] y, float[N] z)" if "z =" in body else "(float[N] y)"
    check_untouched(CSE, graph(f"(float[N] x, float[N] w) => {outputs}", body))


def test_two_outputs_of_the_graph_stay_two():
    before = graph("(float[N] x) => (float[N] y, float[N] z)", "y = Exp(x)\nz = Exp(x)")
    after = check(CSE, before, "Exp Identity")
    assert after.output_names == ("y", "z")


def test_nodes_with_different_outputs_asked_for_stay():
    body = "a = MaxPool<kernel_shape=[2]>(x)\nb, i = MaxPool<kernel_shape=[2]>(x)\ny = Add(a, b)"
    check_untouched(CSE, graph("(float[1,1,8] x) => (float[R] y, int64[R] i)", body))
    body = """p, q = Split<axis=0>(x)
        r, s, t = Split<axis=0>(x)
        y = Concat<axis=0>(p, q, r, s, t)"""
    check_untouched(CSE, graph("(float[6] x) => (float[R] y)", body, opset=13))


def test_all_outputs_of_equal_nodes_are_merged():
    body = """p, q = Split<axis=0>(x)
        r, s = Split<axis=0>(x)
        a = Add(p, s)
        y = Mul(a, q)
        z = Neg(r)"""
    before = graph("(float[4] x) => (float[2] y, float[2] z)", body, opset=13)
    check(CSE, before, "Split Add Mul Neg")


def test_equal_nodes_in_two_bodies_stay_in_their_bodies():
    before = graph(
        "(float[N] x, bool c) => (float[N] y)",
        """y = If(c) <
            then_branch = t () => (float[N] p) { a = Exp(x)  b = Exp(x)  p = Add(a, b) },
            else_branch = e () => (float[N] p) { p = Exp(x) }
        >""",
    )
    after = apply(CSE, before)
    assert operators(after) == {"If": 1, "Exp": 2, "Add": 1}
    assert_same_bits(before, after, {**feeds_for(before), "c": np.array(True)})


def test_initializers_are_merged_only_bit_by_bit():
    nan = np.uint32(0x7FC00000).view(np.float32)
    other_nan = np.uint32(0x7FC00001).view(np.float32)
    arrays = {
        "a": np.float32([0.0, 1]),
        "b": np.float32([0.0, 1]),
        "c": np.float32([-0.0, 1]),
        "d": np.float32([[0.0, 1]]),
        "e": np.float64([0.0, 1]).astype(np.float32).view(np.int32),
        "f": np.array([nan, 1], np.float32),
        "g": np.array([nan, 1], np.float32),
        "h": np.array([other_nan, 1], np.float32),
    }
    body = """z = Cast<to=1>(e)
        y = Sum(a, b, c, d, z, f, g, h, x)"""
    before = graph("(float[2] x) => (float[1,2] y)", body, **arrays)
    after = check(SHARING, before, "Cast Sum")
    assert set(after.initializers) == set(arrays) - {"b", "g"}


def test_strings_and_packed_integers_are_compared_by_value():
    import ml_dtypes

    before = graph(
        "() => (string[N] y, int4[N] z)",
        "y = Concat<axis=0>(a, b, c)\nz = Concat<axis=0>(p, q, r)",
        opset=21,
        a=np.array(["ab", "c"], object),
        b=np.array(["ab", "c"], object),
        c=np.array(["a", "bc"], object),
        p=np.array([-1, 2], ml_dtypes.int4),
        q=np.array([-1, 2], ml_dtypes.int4),
        r=np.array([-1, 3], ml_dtypes.int4),
    )
    assert set(apply(SHARING, before).initializers) == {"a", "c", "p", "r"}


def test_outputs_and_defaults_keep_their_own_initializers():
    one = np.float32([1])
    before = graph(
        "(float[1] x, float[1] d) => (float[1] y, float[1] a, float[1] b)",
        "y = Sum(x, a, b, c, d)",
        a=one,
        b=one,
        c=one,
        d=one,
    )
    after = apply(SHARING, before)
    assert set(after.initializers) == {"a", "b", "d"}
    assert_same_bits(before, after, {"x": one, "d": np.float32([5])})


def test_giants_are_not_read_to_find_duplicates():
    def explode():
        raise AssertionError("read")

    before = graph(
        "(float[1] x) => (float[M,N] y)",
        "z = Add(x, a)\ny = Add(z, b)",
        a=np.float32([1]),
        b=np.float32([1]),
    )
    giants = {
        n: Initializer(n, before.initializers[n].dtype, (1 << 20, 1 << 20), explode) for n in "ab"
    }
    check_untouched(SHARING, before.replace(initializers=giants))


# ---------------------------------------------------------------- dead code


def test_what_nobody_uses_goes():
    before = graph(
        "(float[N] x, float[N] unused) => (float[N] y)",
        "a = Exp(x)\nb = Mul(a, k)\nc = Neg(b)\ny = Abs(x)",
        k=np.float32(2),
    )
    after = check(DEAD, before, "Abs")
    assert not after.initializers
    assert set(after.values) == {"x", "unused", "y"}


def test_unused_initializers_go_and_defaults_of_inputs_stay():
    before = graph(
        "(float[N] x, float[1] d) => (float[N] y)", "y = Abs(x)", k=np.float32(2), d=np.float32([1])
    )
    after = apply(DEAD, before)
    assert set(after.initializers) == {"d"}
    assert after.input_names == ("x", "d")
    assert after.overridable == {"d"}


def test_what_a_body_captures_is_used():
    before = graph(
        "(float[N] x, bool c) => (float[N] y)",
        """a = Exp(x)
        b = Mul(x, k)
        d = Neg(x)
        y = If(c) <
            then_branch = t () => (float[N] p) { dead = Exp(d)  p = Neg(a) },
            else_branch = e () => (float[N] p) {
                p = If(c) <
                    then_branch = tt () => (float[N] r) { r = Neg(b) },
                    else_branch = ee () => (float[N] r) { r = Abs(x) }
                >
            }
        >""",
        k=np.float32(3),
    )
    after = apply(DEAD, before)
    assert operators(after) == {"Exp": 1, "Mul": 1, "If": 2, "Neg": 2, "Abs": 1}
    for flag in (True, False):
        assert_same_bits(before, after, {**feeds_for(before), "c": np.array(flag)})


@pytest.mark.parametrize(
    ("line", "outputs"),
    [
        ("y, i = MaxPool<kernel_shape=[2]>(x)", ("y",)),
        ("y, m, d = LayerNormalization(x, k)", ("y",)),
        ("a, y, c = LSTM<hidden_size=8>(x, w, r)", ("", "y")),
    ],
)
def test_optional_outputs_nobody_uses_are_left_out(line, outputs):
    constants = {
        "k": np.ones(8, np.float32),
        "w": np.ones((1, 32, 8), np.float32),
        "r": np.ones((1, 32, 8), np.float32),
    }
    used = {name: value for name, value in constants.items() if f" {name}" in line}
    after = apply(DEAD, graph("(float[1,1,8] x) => (float[R] y)", line, **used))
    assert after.nodes[0].outputs == outputs


def test_outputs_whose_number_has_a_meaning_stay():
    split = graph("(float[6] x) => (float[2] y)", "y, a, b = Split<axis=0>(x)", opset=13)
    check_untouched(DEAD, split)
    topk = graph("(float[6] x) => (float[2] y)", "y, i = TopK(x, k)", k=np.int64([2]))
    check_untouched(DEAD, topk)
    statistics = {name: np.ones(3, np.float32) for name in "sbmv"}
    training = graph(
        "(float[1,3,2] x) => (float[R] y)",
        "y, p, q, r, t = BatchNormalization(x, s, b, m, v)",
        opset=9,
        **statistics,
    )
    check_untouched(DEAD, training)
