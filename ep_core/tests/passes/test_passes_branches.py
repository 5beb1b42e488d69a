"""Constant conditions and folding inside bodies: the right branch, the right names."""

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

FOLD = "ConstantFolding"
IF = "ConstantIfElimination"

BRANCHES = """
    y = If(c) <
        then_branch = t () => (float[N] p) { q = Neg(x)  p = Mul(q, k) },
        else_branch = e () => (float[N] p) { q = Abs(x)  p = Add(q, k) }
    >
"""


@pytest.mark.parametrize(("condition", "left"), [(True, "Neg Mul Exp"), (False, "Abs Add Exp")])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_constant_condition_chooses_the_branch(condition, left, shape):
    before = graph(
        "(float[N] x) => (float[N] y, float[N] z)",
        BRANCHES + "z = Exp(y)",
        c=np.full(shape, condition),
        k=np.float32(2),
    )
    after = check(IF, before, left)
    assert "q" not in after.producers  # both branches may call a value so


def test_values_that_a_branch_only_passes_on_get_their_names():
    before = graph(
        "(float[2] x) => (float[2] a, float[2] b, float[2] d, float[2] e)",
        """n = Neg(x)
        a, b, d, e = If(c) <
            then_branch = t () => (float[2] p, float[2] p2, float[2] k, float[2] n)
              <float[2] k = {1, 2}> { p = Abs(n)  p2 = Identity(p) },
            else_branch = u () => (float[2] r, float[2] s, float[2] t, float[2] v)
              { r = Exp(x)  s = Exp(x)  t = Exp(x)  v = Exp(x) }
        >""",
        c=np.array(True),
    )
    after = apply(IF, before)
    assert "If" not in operators(after)
    assert_same_bits(before, after, feeds_for(before))


def test_a_condition_that_is_fed_or_overridable_stays():
    for inputs in ("(float[N] x, bool c)", "(float[N] x, bool c)"):
        constants = {"k": np.float32(2)}
        check_untouched(IF, graph(f"{inputs} => (float[N] y)", BRANCHES, **constants))
    overridable = graph(
        "(float[N] x, bool c) => (float[N] y)", BRANCHES, c=np.array(True), k=np.float32(2)
    )
    check_untouched(IF, overridable)


def test_folding_works_in_bodies_on_constants_of_the_graph_around():
    before = graph(
        "(float[N] x, bool c) => (float[N] y)",
        """y = If(c) <
            then_branch = t () => (float[N] p) { q = Neg(k)  p = Mul(x, q) },
            else_branch = e () => (float[N] p) {
                p = If(c) <
                  then_branch = tt () => (float[N] r) { r = Mul(x, k) },
                  else_branch = ee () => (float[N] r) { s = Exp(k)  r = Mul(x, s) }
                >
            }
        >""",
        k=np.float32(2),
    )
    after = apply(FOLD, before)
    assert operators(after) == {"If": 2, "Mul": 3}
    for flag in (True, False):
        assert_same_bits(before, after, {**feeds_for(before), "c": np.array(flag)})


def test_branches_inside_branches_go_too():
    before = graph(
        "(float[2] x, bool d) => (float[2] y)",
        """y = If(d) <
            then_branch = t () => (float[2] p) {
                p = If(c) <
                  then_branch = tt () => (float[2] r) { s = Neg(x)  r = Exp(s) },
                  else_branch = ee () => (float[2] r) { s = Abs(x)  r = Exp(s) }
                >
            },
            else_branch = e () => (float[2] p) { s = Sign(x)  p = Exp(s) }
        >""",
        c=np.array(False),
    )
    after = check(IF, before, "If Abs Exp Sign Exp")
    assert after.output_names == ("y",)
