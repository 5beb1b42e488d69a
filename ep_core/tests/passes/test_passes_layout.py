"""Pushing transposes: fewer of them, the same bits, and no move that wouldn't pay."""

from __future__ import annotations

import numpy as np
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
)

from ep_core.passes import GraphOptimizationLevel, optimize

PUSH = "TransposeOptimizer"
SINK = "TransposeSinking"
IN = "Transpose<perm=[0,2,3,1]>"
OUT = "Transpose<perm=[0,3,1,2]>"


def layout(body, outputs="(float[R] y)", signature="(float[2,3,4,5] x)", **constants):
    return graph(f"{signature} => {outputs}", body, **constants)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("b = Relu(a)\ny = {out}(b)", "Relu"),
        ("b = Relu(a)\nc = Sigmoid(b)\nd = Clip(c, , m)\ny = {out}(d)", "Relu Sigmoid Clip"),
        ("b = Mul(a, k)\ny = {out}(b)", "Mul"),
        ("b = Add(s, a)\ny = {out}(b)", "Add"),
        ("b = Add(a, w)\ny = {out}(b)", "Add Transpose"),
        ("b = Relu(a)\ny = {in}(b)", "Relu Transpose"),
        ("b = Exp(x)\nc = {in}(b)\nd = Add(a, c)\ny = {out}(d)", "Exp Add"),
        ("b = Exp(x)\nc = {in}(b)\nd = Add(a, c)\ny = Flatten(d)", "Exp Add Transpose Flatten"),
        ("b = Concat<axis=3>(a, a)\ny = {out}(b)", "Concat"),
        ("b = Concat<axis=-1>(a, k4)\ny = {out}(b)", "Concat"),
        ("b = Pad(a, p)\ny = {out}(b)", "Pad"),
        (
            "b, c = Split<axis=1>(a, h)\nd = {out}(b)\ne = {out}(c)\ny = Concat<axis=2>(d, e)",
            "Split Concat",
        ),
        ("b = Neg(a)\nc = Exp(b)\nd = Add(b, c)\ny = {out}(d)", "Neg Exp Add"),
        ("b = IsNaN(a)\nc = Where(b, s, a)\ny = {out}(c)", "IsNaN Where"),
        (
            "b = Neg(a)\nc = Transpose<perm=[1,0,2,3]>(b)\nd = Abs(c)\n"
            "y = Transpose<perm=[2,3,1,0]>(d)",
            "Neg Abs Transpose",
        ),
    ],
)
def test_transposes_around_blind_operators_go(body, left):
    constants = {
        "k": np.float32([1, -0.0, np.nan]),
        "k4": np.ones((2, 4, 5, 1), np.float32),
        "s": np.float32(2),
        "m": np.float32(1),
        "p": np.int64([0, 1, 0, 2, 0, 0, 3, 0]),
        "h": np.int64([1, 3]),
    }
    body = f"a = {IN}(x)\n" + body.replace("{in}", IN).replace("{out}", OUT)
    words = body.replace("(", " ").replace(")", " ").replace(",", " ").split()
    used = {name: array for name, array in constants.items() if name in words}
    signature = "(float[2,3,4,5] x, float[2,4,5,3] w)"
    check(PUSH, layout(body, signature=signature, **used), left, lengths=(3,))


@pytest.mark.parametrize(
    "body",
    [
        f"a = {IN}(x)\ny = Relu(a)",
        f"a = {IN}(x)\nb = Flatten(a)\ny = Relu(b)",
        f"a = {IN}(x)\nb = Add(a, w)\ny = Flatten(b)",
        f"a = Sigmoid(w)\nb = Relu(a)\nc = {OUT}(b)\nd = Flatten(a)\ne = Flatten(c)\ny = Add(d, e)",
        f"a = {IN}(x)\nb = Softmax(a)\ny = {OUT}(b)",
        f"a = {IN}(x)\nb = MatMul(a, k)\ny = {OUT}(b)",
    ],
)
def test_moves_that_do_not_pay_are_not_made(body):
    used = {"k": np.ones((3, 3), np.float32)} if "MatMul" in body else {}
    signature = "(float[2,3,4,5] x, float[2,4,5,3] w)"
    check_untouched(PUSH, layout(body, signature=signature, **used))


def test_operators_of_unknown_rank_are_left_alone():
    body = f"s = Shape(v)\nr = Reshape(x, s)\na = {IN}(r)\nb = Relu(a)\ny = {OUT}(b)"
    before = layout(body, signature="(float[M] x, float[M] v)")
    after = apply(PUSH, before)
    assert operators(after)["Transpose"] in (0, 2)
    unknown = before.replace(values={})
    check_untouched(PUSH, unknown)


def test_every_output_of_the_graph_keeps_its_name_and_layout():
    body = f"a = {IN}(x)\ny = Relu(a)\nz = {OUT}(y)\nw = {OUT}(y)\nb = Neg(a)\nv = {OUT}(b)"
    outputs = "(float[R] y, float[R] z, float[R] w, float[R] v)"
    before = layout(body, outputs)
    after = apply(PUSH, before)
    assert after.output_names == ("y", "z", "w", "v")
    assert operators(after)["Transpose"] <= operators(before)["Transpose"]
    assert_same_bits(before, after, feeds_for(before))


def test_values_that_bodies_capture_keep_their_layout():
    body = f"""a = {IN}(x)
        b = Relu(a)
        c = Exp(b)
        d = {OUT}(c)
        e = {OUT}(b)
        y = If(f) <
            then_branch = t () => (float[R] p) {{
                q = {IN}(b)  r = Neg(q)  s = {OUT}(r)  p = Flatten(s)
            }},
            else_branch = g () => (float[R] p) {{ q = Add(d, e)  p = Flatten(q) }}
        >"""
    before = layout(body, signature="(float[2,3,4,5] x, bool f)")
    after = apply(PUSH, before)
    assert operators(after)["Transpose"] < operators(before)["Transpose"]
    for flag in (True, False):
        assert_same_bits(before, after, {**feeds_for(before), "f": np.array(flag)})


@pytest.mark.parametrize(
    ("body", "constants", "left"),
    [
        (f"a = {IN}(x)\ny = Squeeze(a, i)", {"i": [1]}, "Squeeze Transpose"),
        (f"a = {IN}(x)\ny = Squeeze(a, i)", {"i": [-3]}, "Squeeze Transpose"),
        (f"a = {IN}(x)\ny = Reshape(a, i)", {"i": [2, 5, -1]}, "Squeeze Transpose"),
        (f"a = {IN}(x)\ny = Reshape(a, i)", {"i": [2, 5, 3]}, "Squeeze Transpose"),
        (f"a = {IN}(x)\ny = Unsqueeze(a, i)", {"i": [0, 3]}, "Unsqueeze Transpose"),
        (f"a = {IN}(x)\ny = Unsqueeze(a, i)", {"i": [-1]}, "Unsqueeze Transpose"),
    ],
)
def test_transposes_sink_below_squeeze(body, constants, left):
    arrays = {name: np.int64(value) for name, value in constants.items()}
    before = layout(body, signature="(float[2,3,1,5] x)", **arrays)
    after = check(SINK, before, left, lengths=(3,))
    assert after.nodes[-1].op_type == "Transpose"


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        (f"a = {IN}(x)\ny = Squeeze(a)", {}),
        (f"a = {IN}(x)\ny = Reshape(a, i)", {"i": [2, 3, 5]}),
        (f"a = {IN}(x)\ny = Reshape(a, i)", {"i": [2, 15]}),
        (f"a = {IN}(e)\ny = Reshape(a, i)", {"i": [2, -1, 3]}),
        (f"a = {IN}(x)\ny = Reshape(a, i)", {"i": [2, 1, 5, 3]}),
        (f"a = {IN}(x)\ny = Reshape(a, i)", {"i": [0, 5, 3]}),
        (f"a = {IN}(x)\nb = Neg(a)\ny = Squeeze(a, i)", {"i": [1]}),
    ],
)
def test_transposes_stay_where_sinking_would_be_wrong_or_useless(body, constants):
    arrays = {name: np.int64(value) for name, value in constants.items()}
    signature = "(float[2,3,1,5] x, float[2,3,1,0] e)"
    check_untouched(SINK, layout(body, signature=signature, **arrays))


def test_sunk_transposes_meet_and_vanish():
    body = f"""a = {IN}(x)
        b = Squeeze(a, i)
        c = {IN}(w)
        d = Reshape(c, t)
        e = Concat<axis=2>(b, d)
        y = Unsqueeze(e, i)"""
    before = layout(
        body,
        signature="(float[2,3,1,5] x, float[2,4,1,5] w)",
        i=np.int64([1]),
        t=np.int64([-1, 5, 4]),
    )
    after = optimize(before, GraphOptimizationLevel.ORT_ENABLE_ALL, evaluate=evaluate)
    assert operators(after)["Transpose"] == 1
    assert_same_bits(before, after, feeds_for(before))
