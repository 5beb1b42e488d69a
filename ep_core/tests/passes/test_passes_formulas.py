"""Fusions of formulas into one operator: equal up to rounding; look-alikes stay."""

from __future__ import annotations

import numpy as np
import pytest
from pass_equivalence import apply, check_near, check_untouched, feeds_for, graph, numbers, run

GELU = "GeluFusion"
LAYER_NORM = "LayerNormFusion"
RMS_NORM = "RMSNormFusion"
SWISH = "SwishFusion"
RESHAPE = "ReshapeFusion"


# ---------------------------------------------------------------- activations

ERF = "s = Div(x, r)\ne = Erf(s)\np = Add(e, one)\n"
ERF_ENDINGS = [
    "m = Mul(x, p)\ny = Mul(m, half)",
    "m = Mul(x, half)\ny = Mul(m, p)",
    "m = Mul(half, p)\ny = Mul(m, x)",
    "m = Mul(p, x)\ny = Div(m, two)",
]
TANH_INNER = [
    "q = Pow(x, three)\nc = Mul(q, k)\nd = Add(x, c)\ng = Mul(d, t)\n",
    "q = Mul(x, x)\nu = Mul(q, x)\nc = Mul(k, u)\nd = Add(c, x)\ng = Mul(t, d)\n",
    "q = Mul(x, x)\nc = Mul(q, k)\nd = Add(one, c)\nf = Mul(x, d)\ng = Mul(f, t)\n",
    "f = Mul(x, t)\nq = Pow(x, two)\nc = Mul(k, q)\nd = Add(c, one)\ng = Mul(f, d)\n",
]


def activation(body, *, dtype="float", opset=20, **changed):
    numpy_type = {"float": np.float32, "double": np.float64, "float16": np.float16}[dtype]
    constants = {
        "r": 2**0.5,
        "i": 0.5**0.5,
        "one": 1.0,
        "two": 2.0,
        "three": 3.0,
        "half": 0.5,
        "t": (2 / np.pi) ** 0.5,
        "k": 0.044715,
        **changed,
    }
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {n: np.array(v, numpy_type) for n, v in constants.items() if n in words}
    return graph(f"({dtype}[N,3] x) => ({dtype}[N,3] y)", body, opset=opset, **used)


@pytest.mark.parametrize("ending", ERF_ENDINGS)
@pytest.mark.parametrize("start", [ERF, ERF.replace("Div(x, r)", "Mul(i, x)")])
def test_the_exact_formula_becomes_gelu(start, ending):
    after = check_near(GELU, activation(start + ending), "Gelu")
    assert after.nodes[0].attributes["approximate"] == "none"


@pytest.mark.parametrize("ending", ERF_ENDINGS)
@pytest.mark.parametrize("start", TANH_INNER)
def test_the_approximate_formula_becomes_gelu(start, ending):
    before = activation(start + "e = Tanh(g)\np = Add(e, one)\n" + ending)
    after = check_near(GELU, before, "Gelu")
    assert after.nodes[0].attributes["approximate"] == "tanh"


@pytest.mark.parametrize(("dtype", "rtol"), [("double", 1e-12), ("float16", 5e-3)])
def test_gelu_in_other_types(dtype, rtol):
    check_near(GELU, activation(ERF + ERF_ENDINGS[0], dtype=dtype), "Gelu", rtol=rtol)


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (ERF + ERF_ENDINGS[0], {"r": 1.41}),
        (ERF + ERF_ENDINGS[0], {"half": 0.51}),
        (ERF + ERF_ENDINGS[0], {"one": 1.001}),
        (ERF + ERF_ENDINGS[0], {"half": [[[0.5]]]}),
        (ERF + ERF_ENDINGS[0], {"half": [0.5, 0.5, 0.5]}),
        (ERF + "m = Mul(s, p)\ny = Mul(m, half)", {}),
        (ERF + "m = Mul(x, p)\ny = Add(m, half)", {}),
        (ERF + "m = Mul(x, p)\nn = Mul(m, half)\ny = Add(n, p)", {}),
        (TANH_INNER[0] + "e = Tanh(g)\np = Add(e, one)\n" + ERF_ENDINGS[0], {"k": 0.0447}),
        (TANH_INNER[0] + "e = Tanh(g)\np = Add(e, one)\n" + ERF_ENDINGS[0], {"three": 2.0}),
        (TANH_INNER[0] + "e = Erf(g)\np = Add(e, one)\n" + ERF_ENDINGS[0], {}),
    ],
)
def test_look_alikes_of_gelu_stay(body, changed):
    check_untouched(GELU, activation(body, **changed))


def test_gelu_waits_for_its_opset():
    check_untouched(GELU, activation(ERF + ERF_ENDINGS[0], opset=19))


@pytest.mark.parametrize("body", ["Mul(x, s)", "Mul(s, x)"])
def test_x_times_its_sigmoid_becomes_swish(body):
    before = graph("(float[N] x) => (float[N] y)", f"s = Sigmoid(x)\ny = {body}", opset=24)
    check_near(SWISH, before, "Swish")


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ("s = Sigmoid(x)\ny = Mul(x, s)", 23),
        ("s = Sigmoid(x)\ny = Mul(s, s)", 24),
        ("s = Sigmoid(x)\nn = Neg(x)\ny = Mul(n, s)", 24),
        ("s = Sigmoid(x)\nm = Mul(x, s)\ny = Add(m, s)", 24),
    ],
)
def test_look_alikes_of_swish_stay(body, opset):
    check_untouched(SWISH, graph("(float[N] x) => (float[N] y)", body, opset=opset))


# ---------------------------------------------------------------- normalisation

CENTERED = "m = ReduceMean{axes}(x{input})\nd = Sub(x, m)\n"
DEVIATION = "q = {square}\nv = ReduceMean{axes}(q{input})\nu = Add(v, eps)\nr = Sqrt(u)\n"
AFFINE = [
    "n = Div(d, r)\ns = Mul(n, g)\ny = Add(s, b)",
    "n = Div(d, r)\ns = Mul(g, n)\ny = Add(b, s)",
    "i = Reciprocal(r)\nn = Mul(d, i)\ns = Mul(n, g)\ny = Add(s, b)",
    "i = Div(one, r)\nf = Mul(i, g)\ns = Mul(d, f)\ny = Add(s, b)",
    "n = Div(d, r)\ny = Mul(n, g)",
    "i = Reciprocal(r)\nf = Mul(i, g)\np = Mul(x, f)\nk = Mul(m, f)\nh = Sub(b, k)\ny = Add(p, h)",
]


def normalisation(
    ending, *, square="Pow(d, two)", axes=(-1,), opset=17, extra="", center=CENTERED, **changed
):
    as_input = opset >= 18
    parts = {
        "axes": "" if as_input else f"<axes=[{','.join(map(str, axes))}]>",
        "input": ", axes" if as_input else "",
        "square": square,
    }
    body = (center + DEVIATION).format(**parts) + ending + extra
    shape = (4,) if len(axes) == 1 else (3, 4)
    constants = {
        "g": numbers(*shape),
        "b": numbers(*shape),
        "eps": np.float32(1e-5),
        "two": np.float32(2),
        "one": np.float32([1]),
        "axes": np.int64(axes),
        **changed,
    }
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: array for name, array in constants.items() if name in words}
    return graph("(float[N,3,4] x, float[N,3,4] w) => (float[R] y)", body, opset=opset, **used)


@pytest.mark.parametrize("ending", AFFINE)
@pytest.mark.parametrize("square", ["Pow(d, two)", "Mul(d, d)"])
@pytest.mark.parametrize(("axes", "opset"), [((-1,), 17), ((2,), 18), ((1, 2), 17), ((-2, -1), 18)])
def test_layer_normalisation(ending, square, axes, opset):
    before = normalisation(ending, square=square, axes=axes, opset=opset)
    after = check_near(LAYER_NORM, before, "LayerNormalization", rtol=1e-4)
    (node,) = after.nodes
    assert node.attributes["axis"] == -len(axes)
    assert node.attributes["epsilon"] == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        (AFFINE[0], {"opset": 16}),
        (AFFINE[0], {"axes": (1,), "g": numbers(4), "b": numbers(4)}),
        (AFFINE[0], {"axes": (0, 2)}),
        (AFFINE[0], {"g": numbers(3, 4)}),
        (AFFINE[0], {"g": numbers(1)}),
        (AFFINE[0], {"eps": np.full(4, 1e-5, np.float32)}),
        (AFFINE[0], {"two": np.float32(3)}),
        (AFFINE[0], {"square": "Mul(d, x)"}),
        (AFFINE[0], {"extra": "\nz = Neg(d)"}),
        (AFFINE[0], {"extra": "\nz = Neg(m)"}),
        (AFFINE[0], {"center": CENTERED.replace("(x{input}", "(w{input}")}),
        (AFFINE[0], {"center": CENTERED.replace("{axes}", "<axes=[-2,-1]>")}),
        (AFFINE[0].replace("Div(d, r)", "Div(x, r)"), {}),
        (AFFINE[0].replace("Div(d, r)", "Div(r, d)"), {}),
        (AFFINE[5].replace("Sub(b, k)", "Sub(k, b)"), {}),
        (AFFINE[5].replace("Mul(m, f)", "Mul(d, f)"), {}),
    ],
)
def test_look_alikes_of_layer_normalisation_stay(ending, options):
    check_untouched(LAYER_NORM, normalisation(ending, **options))


def test_a_bias_of_another_shape_stays_outside():
    before = normalisation(AFFINE[0], b=numbers(1))
    check_near(LAYER_NORM, before, "LayerNormalization Add", rtol=1e-4)


@pytest.mark.parametrize("ending", AFFINE[:5])
def test_rms_normalisation(ending):
    ending = ending.replace("d,", "x,").replace("(d", "(x")
    before = normalisation(ending, square="Mul(x, x)", opset=23, center="")
    left = "RMSNormalization Add" if "Add" in ending else "RMSNormalization"
    check_near(RMS_NORM, before, left, rtol=1e-4)


@pytest.mark.parametrize(
    "options", [{"opset": 22}, {"axes": (1,), "g": numbers(4)}, {"g": numbers(3, 1)}]
)
def test_look_alikes_of_rms_normalisation_stay(options):
    options = {"opset": 23, **options}
    ending = "n = Div(x, r)\ny = Mul(n, g)"
    before = normalisation(ending, square="Mul(x, x)", center="", **options)
    check_untouched(RMS_NORM, before)


# ---------------------------------------------------------------- reshapes


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Reshape(x, s)\ny = Reshape(a, t)", "Reshape"),
        ("a = Flatten(x)\nb = Unsqueeze(a, i)\nc = Squeeze(b, i)\ny = Reshape(c, t)", "Reshape"),
        ("a = Reshape(x, s)\nb = Neg(a)\ny = Reshape(b, t)", "Reshape Neg Reshape"),
        ("a = Reshape(x, s)\ny = Reshape(a, z)", "Reshape Reshape"),
        ("a = Reshape(x, s)\nu = Neg(a)\ny = Reshape(a, t)", "Reshape Neg Reshape"),
    ],
)
def test_reshapes_in_a_row_become_one(body, left):
    targets = {"s": [6, -1], "t": [4, -1], "i": [0], "z": [0, 2, -1]}
    used = {n: np.int64(v) for n, v in targets.items() if f" {n})" in body}
    before = graph("(float[2,3,4] x) => (float[R] y)", body, **used)
    after = check_near(RESHAPE, before, left)
    (left_result,) = run(before, feeds_for(before))
    (right_result,) = run(after, feeds_for(before))
    assert left_result.tobytes() == right_result.tobytes()


def test_reshapes_of_two_readers_both_read_past():
    body = (
        "a = Reshape(x, s)\nu = Reshape(a, t)\nv = Reshape(a, s)\nw = Reshape(v, t)\ny = Add(u, w)"
    )
    before = graph("(float[2,3,4] x) => (float[R] y)", body, s=np.int64([6, 4]), t=np.int64([-1]))
    check_near(RESHAPE, before, "Reshape Reshape Add")
    assert apply(RESHAPE, before).nodes[0].inputs[0] == "x"
