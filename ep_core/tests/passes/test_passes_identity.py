"""Identities and neutral arithmetic: bit by bit, and the tempting wrong cases."""

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
    type_named,
)

IDENTITY = "IdentityElimination"
NOOP = "NoopElimination"


# ---------------------------------------------------------------- identities


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Identity(x)\ny = Neg(a)", "Neg"),
        ("a = Neg(x)\ny = Identity(a)", "Neg"),
        ("a = Identity(x)\nb = Identity(a)\nc = Identity(b)\ny = Neg(c)", "Neg"),
        ("a = Neg(x)\nb = Identity(a)\nc = Exp(a)\ny = Add(b, c)", "Neg Exp Add"),
        ("a = Neg(x)\ny = Identity(a)\nb = Exp(a)", "Neg Exp"),
        ("a = Dropout(x)\ny = Neg(a)", "Neg"),
        ("a, mask = Dropout(x, r)\ny = Neg(a)", "Neg"),
        ("a, mask = Dropout(x, r, no)\ny = Neg(a)", "Neg"),
    ],
)
def test_identities_go(body, left):
    constants = {"r": np.float32(0.5), "no": np.array(False)}
    used = {name: value for name, value in constants.items() if f" {name}" in body}
    check(IDENTITY, graph("(float[N] x) => (float[N] y)", body, **used), left)


@pytest.mark.parametrize(
    "body",
    [
        "y = Identity(x)",
        "y = Dropout(x)",
        "y = Neg(x)\nz = Identity(y)",
        "a, mask = Dropout(x)\ny = Neg(a)\nz = Cast<to=1>(mask)",
        "a, mask = Dropout(x, r, yes)\ny = Neg(a)",
        "a, mask = Dropout(x, r, t)\ny = Neg(a)",
    ],
)
def test_identities_that_are_needed_stay(body):
    constants = {"r": np.float32(0.5), "yes": np.array(True)}
    used = {name: value for name, value in constants.items() if f" {name}" in body}
    outputs = "(float[N] y, float[N] z)" if "z =" in body else "(float[N] y)"
    check_untouched(IDENTITY, graph(f"(float[N] x, bool t) => {outputs}", body, **used))


def test_a_dropout_from_before_opset_7_drops_unless_told_that_it_is_a_test():
    body = "a = Dropout{}(x)\ny = Neg(a)"
    signature = "(float[N] x) => (float[N] y)"
    check_untouched(IDENTITY, graph(signature, body.format(""), opset=6))
    after = apply(IDENTITY, graph(signature, body.format("<is_test=1>"), opset=6))
    assert operators(after) == {"Neg": 1}


def test_an_identity_of_a_constant_leaves_a_constant_output():
    before = graph("() => (float[2] y)", "y = Identity(k)", k=np.float32([1, -0.0]))
    after = check(IDENTITY, before, "")
    assert after.output_names == ("y",)


def test_an_identity_of_an_overridable_default_stays():
    before = graph("(float[2] k) => (float[2] y)", "y = Identity(k)", k=np.float32([1, 2]))
    check_untouched(IDENTITY, before)


def test_renaming_reaches_into_bodies_and_captured_values_are_kept():
    before = graph(
        "(float[N] x, bool c) => (float[N] y, float[N] z)",
        """a = Neg(x)
        b = Identity(a)
        z = Identity(b)
        y = If(c) <
            then_branch = t () => (float[N] p) { p = Add(a, b) },
            else_branch = e () => (float[N] p) {
                p = If(c) <
                    then_branch = tt () => (float[N] r) { r = Mul(b, a) },
                    else_branch = ee () => (float[N] r) { r = Identity(b) }
                >
            }
        >""",
    )
    after = apply(IDENTITY, before)
    assert operators(after) == {"Neg": 1, "If": 2, "Add": 1, "Mul": 1, "Identity": 1}
    for flag in (True, False):
        assert_same_bits(before, after, {**feeds_for(before), "c": np.array(flag)})


def test_a_loop_keeps_the_identity_between_its_input_and_output():
    before = graph(
        "(float[N] x, int64 n) => (float[N] y)",
        """y = Loop(n, , x) <
            body = b (int64 i, bool c, float[N] v) => (bool d, float[N] w)
            { d = Identity(c)  w = Identity(v) }
        >""",
    )
    check_untouched(IDENTITY, before)


# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("dtype", ["float", "double", "float16", "bfloat16", "int8", "uint64"])
@pytest.mark.parametrize("body", ["Mul(x, k)", "Mul(k, x)", "Div(x, k)"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 3), (3,)])
def test_multiplying_with_one_does_nothing(dtype, body, shape):
    one = np.ones(shape, type_named(dtype).numpy)
    before = graph(
        f"({dtype}[2,3] x) => ({dtype}[2,3] y)",
        f"a = {body}\ny = Reshape(a, s)",
        s=np.int64([6]),
        k=one,
    )
    check(NOOP, before, "Reshape")


@pytest.mark.parametrize("dtype", ["float", "double", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("body", "neutral"), [("Add(x, k)", -0.0), ("Add(k, x)", -0.0), ("Sub(x, k)", 0.0)]
)
def test_adding_the_right_zero_does_nothing(dtype, body, neutral):
    signature = f"({dtype}[2,3] x) => ({dtype}[2,3] y)"
    body = f"a = {body}\ny = Reshape(a, s)"
    shape = np.int64([6])
    zero = np.full((), neutral, type_named(dtype).numpy)
    check(NOOP, graph(signature, body, s=shape, k=zero), "Reshape")
    check_untouched(NOOP, graph(signature, body, s=shape, k=-zero))


@pytest.mark.parametrize("body", ["Add(x, k)", "Add(k, x)", "Sub(x, k)"])
def test_integers_have_one_zero(body):
    signature = "(int32[N] x) => (int32[N] y)"
    before = graph(signature, f"a = {body}\ny = Neg(a)", k=np.int32(0))
    check(NOOP, before, "Neg")


@pytest.mark.parametrize(
    ("body", "constant"),
    [
        ("Sub(k, x)", 0.0),
        ("Div(k, x)", 1.0),
        ("Mul(x, k)", 1.0000001),
        ("Mul(x, k)", -1.0),
        ("Mul(x, k)", 0.0),
        ("Add(x, k)", 0.0),
        ("Mul(x, k)", np.ones((1, 1, 1))),
        ("Mul(x, k)", np.ones((4, 3))),
        ("Mul(x, k)", np.ones((0, 3))),
        ("Mul(x, k)", [1.0, 1.0, 2.0]),
        ("Sub(x, k)", [0.0, 0.0, -0.0]),
    ],
)
def test_other_arithmetic_stays(body, constant):
    before = graph(
        "(float[1,3] x) => (float[R,3] y)",
        f"a = {body}\ny = Neg(a)",
        k=np.array(constant, np.float32),
    )
    check_untouched(NOOP, before)


def test_a_constant_that_could_lengthen_an_unknown_dimension_stays():
    before = graph(
        "(float[N] x) => (float[M] y)", "a = Mul(x, k)\ny = Neg(a)", k=np.ones(3, np.float32)
    )
    check_untouched(NOOP, before)


def test_products_with_an_axis_attribute_are_left_alone():
    before = graph(
        "(float[2,3] x) => (float[2,3] y)",
        "a = Mul<broadcast=1,axis=0>(x, k)\ny = Neg(a)",
        opset=6,
        k=np.ones(2, np.float32),
    )
    check_untouched(NOOP, before)
