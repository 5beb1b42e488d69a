"""Moves of nothing, transposes in a row, lossless casts; what only looks like them stays."""

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

SHAPE = "ShapeNoopElimination"
CAST = "CastElimination"
TRANSPOSE = "TransposeElimination"
DEAD = "DeadCodeElimination"


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
    assert kept["Cast"] == (0 if type_named(source) == target else 1)
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
