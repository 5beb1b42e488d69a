"""Identities, no-ops, casts, duplicates and dead code: bit by bit, and the tempting wrong cases."""

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

IDENTITY = "IdentityElimination"
NOOP = "NoopElimination"
SHAPE = "ShapeNoopElimination"
CAST = "CastElimination"
TRANSPOSE = "TransposeElimination"
SHARING = "ConstantSharing"
CSE = "CommonSubexpressionElimination"
DEAD = "DeadCodeElimination"
NEGATIVE_ZERO = np.float32(-0.0)


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
    one = np.ones(shape, _numpy(dtype))
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
    zero = np.full((), neutral, _numpy(dtype))
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


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    ("line", "constants"),
    [
        ("Reshape(x, s)", {"s": [2, 3, 4]}),
        ("Reshape(x, s)", {"s": [0, -1, 4]}),
        ("Reshape(v, s)", {"s": [0, 3]}),
        ("Reshape(v, s)", {"s": [-1, 3]}),
        ("Expand(x, s)", {"s": [1, 1]}),
        ("Expand(x, s)", {"s": [2, 1, 4]}),
        ("Expand(v, s)", {"s": [3]}),
        ("Flatten(v)", {}),
        ("Flatten<axis=-1>(v)", {}),
        ("Tile(x, r)", {"r": [1, 1, 1]}),
        ("Pad(x, p)", {"p": [0, 0, 0, 0, 0, 0]}),
        ('Pad<mode="reflect">(x, p)', {"p": [0, 0, 0, 0, 0, 0]}),
        ("Slice(x, i, j)", {"i": [0, 0], "j": [2, 9]}),
        ("Slice(x, i, j, k, l)", {"i": [-9], "j": [3], "k": [1], "l": [1]}),
        ("Slice(v, i, j)", {"i": [0], "j": [2**31 - 1]}),
        ("Concat<axis=1>(x)", {}),
        ("Max(x)", {}),
        ("Min(x)", {}),
    ],
)
def test_moves_of_nothing_go(line, constants):
    arrays = {name: np.int64(value) for name, value in constants.items()}
    before = graph(
        "(float[2,3,4] x, float[N,3] v) => (float[R] y)", f"a = {line}\ny = Neg(a)", **arrays
    )
    # onnx.reference can't flatten arrays of no elements.
    check(SHAPE, before, "Neg", lengths=(3, 1) if "Flatten" in line else (3, 1, 0))


@pytest.mark.parametrize(
    ("line", "constants"),
    [
        ("Reshape(x, s)", {"s": [2, 4, 3]}),
        ("Reshape(x, s)", {"s": [6, 4]}),
        ("Reshape(v, s)", {"s": [4, -1]}),
        ("Reshape<allowzero=1>(v, s)", {"s": [0, 3]}),
        ("Expand(v, s)", {"s": [2, 3]}),
        ("Expand(v, s)", {"s": [1, 1, 3]}),
        ("Flatten(x)", {}),
        ("Flatten<axis=0>(v)", {}),
        ("Tile(x, r)", {"r": [1, 2, 1]}),
        ("Pad(x, p)", {"p": [0, 0, 0, 0, 1, 0]}),
        ("Pad(x, p)", {"p": [0, 0, -1, 0, 0, 1]}),
        ("Slice(x, i, j, k, l)", {"i": [-1], "j": [-9], "k": [1], "l": [-1]}),
        ("Slice(x, i, j)", {"i": [1], "j": [2]}),
        ("Slice(v, i, j)", {"i": [0], "j": [100]}),
        ("Slice(v, i, j)", {"i": [1], "j": [2**31 - 1]}),
        ("Concat<axis=1>(x, x)", {}),
        ("Max(x, x)", {}),
        ("Sum(x)", {}),
        ("Mean(x)", {}),
    ],
)
def test_moves_of_something_stay(line, constants):
    arrays = {name: np.int64(value) for name, value in constants.items()}
    body = f"a = {line}\ny = Neg(a)"
    check_untouched(SHAPE, graph("(float[2,3,4] x, float[N,3] v) => (float[R] y)", body, **arrays))


def test_lengths_that_only_share_a_symbol_are_not_taken_for_equal():
    before = graph(
        "(float[N] x, float[N] w) => (float[M] y)",
        "s = Shape(w)\na = Expand(x, s)\ny = Neg(a)",
    )
    check_untouched(SHAPE, before)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Unsqueeze(x, i)\nb = Squeeze(a, i)\ny = Neg(b)", "Unsqueeze Neg"),
        ("a = Unsqueeze(x, i)\nb = Squeeze(a, j)\ny = Neg(b)", "Unsqueeze Neg"),
        ("a = Squeeze(x, i)\nb = Unsqueeze(a, i)\ny = Neg(b)", "Squeeze Neg"),
    ],
)
def test_squeeze_and_unsqueeze_undo_each_other(body, left):
    axes = {"i": np.int64([1]), "j": np.int64([-3])}
    used = {name: value for name, value in axes.items() if f" {name})" in body}
    before = graph("(float[2,1,3] x) => (float[R] y)", body, **used)
    # The axis j counts from the end of the four that are there between.
    after = check(SHAPE, before, left)
    assert operators(apply(DEAD, after)) == {"Neg": 1}


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("(float[2,1,3] x)", "a = Unsqueeze(x, i)\nb = Squeeze(a, j)\ny = Neg(b)"),
        ("(float[2,1,3] x)", "a = Unsqueeze(x, i)\nb = Squeeze(a)\ny = Neg(b)"),
        ("(float[2,N,3] x)", "a = Squeeze(x, i)\nb = Unsqueeze(a, i)\ny = Neg(b)"),
        ("(float[2,1,3] x)", "a = Squeeze(x, i)\nb = Unsqueeze(a, k)\ny = Neg(b)"),
    ],
)
def test_other_pairs_of_squeeze_and_unsqueeze_stay(signature, body):
    axes = {"i": np.int64([1]), "j": np.int64([2]), "k": np.int64([0])}
    used = {name: value for name, value in axes.items() if f" {name})" in body}
    check_untouched(SHAPE, graph(f"{signature} => (float[R] y)", body, **used))


def test_old_opsets_have_axes_starts_and_shapes_as_attributes():
    body = """a = Unsqueeze<axes=[0]>(x)
        b = Squeeze<axes=[0]>(a)
        c = Slice<starts=[0],ends=[9]>(b)
        d = Pad<pads=[0,0,0,0]>(c)
        y = Neg(d)"""
    after = apply(SHAPE, graph("(float[2,3] x) => (float[2,3] y)", body, opset=9))
    assert operators(apply(DEAD, after)) == {"Neg": 1}


# ---------------------------------------------------------------- transposes


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Transpose<perm=[0,1,2]>(x)\ny = Neg(a)", "Neg"),
        ("a = Transpose(x)\nb = Transpose(a)\ny = Neg(b)", "Neg"),
        ("a = Transpose<perm=[2,0,1]>(x)\nb = Transpose<perm=[1,2,0]>(a)\ny = Neg(b)", "Neg"),
        ("a = Transpose<perm=[1,0,2]>(x)\ny = Transpose<perm=[0,2,1]>(a)", "Transpose"),
        ("a = Transpose(x)\nb = Transpose(a)\nc = Transpose(b)\ny = Transpose(c)", "Transpose"),
        ("a = Transpose(x)\nb = Exp(a)\ny = Transpose(b)", "Transpose Exp Transpose"),
        ("a = Transpose(x)\nz = Transpose(a)\ny = Exp(a)", "Transpose Exp"),
    ],
)
def test_transposes_in_a_row_become_one_or_none(body, left):
    check(TRANSPOSE, graph("(float[2,3,4] x) => (float[R] y)", body), left)


# ---------------------------------------------------------------- casts

LOSSLESS = [
    ("bool", 1, 6),
    ("uint8", 5, 7),
    ("int8", 6, 3),
    ("int8", 1, 3),
    ("int8", 1, 11),
    ("uint8", 16, 2),
    ("int16", 6, 2),
    ("uint16", 7, 3),
    ("int32", 7, 10),
    ("float16", 1, 10),
    ("float16", 11, 1),
    ("bfloat16", 1, 16),
    ("float", 11, 10),
    ("float", 11, 16),
    ("float", 11, 9),
    ("int32", 11, 9),
]
LOSSY = [
    ("int32", 1, 6),  # 2^24 + 1 isn't a float32
    ("int64", 11, 7),  # 2^53 + 1 isn't a float64
    ("int16", 10, 5),
    ("uint8", 3, 6),  # wraps
    ("int8", 2, 6),
    ("uint32", 6, 7),
    ("float", 10, 1),
    ("float16", 16, 1),  # fewer bits of significand
    ("bfloat16", 10, 1),  # smaller exponents
    ("float", 7, 1),
    ("float", 9, 1),
    ("uint8", 1, 3),  # 200.0 doesn't fit int8, while 200 wraps
    ("int32", 11, 10),  # the direct way may round twice
    ("float", 11, 6),  # what doesn't fit is undefined, and differs by type
    ("float16", 1, 8),  # prints more digits
]


@pytest.mark.parametrize(("source", "middle", "target"), LOSSLESS)
def test_lossless_casts_are_skipped(source, middle, target):
    body = f"a = Cast<to={middle}>(x)\nb = Cast<to={target}>(a)\ny = Reshape(b, s)"
    before = graph(f"({source}[N] x) => (float[N] y)", body, s=np.int64([-1]))
    after = apply(CAST, before)
    kept = operators(apply(DEAD, after))
    assert kept["Cast"] == (0 if _number(source) == target else 1)
    assert_same_bits(before, after, feeds_for(before, 10))


@pytest.mark.parametrize(("source", "middle", "target"), LOSSY)
def test_casts_that_could_differ_stay(source, middle, target):
    body = f"a = Cast<to={middle}>(x)\nb = Cast<to={target}>(a)\ny = Reshape(b, s)"
    check_untouched(CAST, graph(f"({source}[N] x) => (float[N] y)", body, s=np.int64([-1])))


def test_a_cast_to_the_own_type_goes():
    check(CAST, graph("(float[N] x) => (float[N] y)", "a = Cast<to=1>(x)\ny = Neg(a)"), "Neg")
    body = "a = CastLike(x, w)\ny = Neg(a)"
    before = graph("(float[N] x, float[M] w) => (float[N] y)", body)
    check(CAST, before, "Neg")
    check_untouched(CAST, graph("(float[N] x) => (float[N] y)", "y = Cast<to=1>(x)"))


# ---------------------------------------------------------------- duplicates


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Exp(x)\nb = Exp(x)\ny = Add(a, b)", "Exp Add"),
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


def _number(name):
    import onnx

    return onnx.TensorProto.DataType.Value(name.upper())


def _numpy(name):
    from ep_core.types import DataType

    return DataType(_number(name)).numpy
