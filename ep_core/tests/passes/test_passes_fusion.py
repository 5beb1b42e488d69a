"""The extended fusions: equal up to rounding, and the look-alikes that must not be fused."""

from __future__ import annotations

import numpy as np
import pytest
from pass_equivalence import apply, check_near, check_untouched, feeds_for, graph, run

BATCH_NORM = "ConvBNFusion"
SCALE = "ConvScaleFusion"
GEMM = "MatMulAddFusion"
PAD = "PadFusion"
GELU = "GeluFusion"
LAYER_NORM = "LayerNormFusion"
RMS_NORM = "RMSNormFusion"
SWISH = "SwishFusion"
RESHAPE = "ReshapeFusion"

random = np.random.default_rng(11)


def numbers(*shape, dtype=np.float32):
    return random.normal(size=shape).astype(dtype)


# ---------------------------------------------------------------- convolutions


def normalised(convolution, weights, *, line="b = BatchNormalization(a, s, o, m, v)", **more):
    channels = 6
    constants = {
        "w": weights,
        "s": numbers(channels),
        "o": numbers(channels),
        "m": numbers(channels),
        "v": np.abs(numbers(channels)),
        **more,
    }
    body = f"a = {convolution}\n{line}\ny = Relu(b)"
    used = {
        n: array for n, array in constants.items() if any(f"{x}{n}" in body for x in (" ", "("))
    }
    return graph("(float[2,4,5,5] x) => (float[R] y)", body, **used)


@pytest.mark.parametrize(
    ("convolution", "shape"),
    [
        ("Conv(x, w)", (6, 4, 3, 3)),
        ("Conv(x, w, c)", (6, 4, 3, 3)),
        ("Conv<group=2>(x, w, c)", (6, 2, 3, 3)),
        ("ConvTranspose(x, w, c)", (4, 6, 3, 3)),
    ],
)
def test_batch_normalisation_goes_into_the_weights(convolution, shape):
    before = normalised(convolution, numbers(*shape), c=numbers(6))
    check_near(BATCH_NORM, before, f"{convolution.split('<')[0].split('(')[0]} Relu", rtol=2e-5)


def test_channels_of_a_grouped_transposed_convolution_are_counted_group_by_group():
    # onnx.reference can't compute this one, so the weights are worked out by hand.
    before = normalised("ConvTranspose<group=2>(x, w)", numbers(4, 3, 3, 3))
    old = {name: item.numpy() for name, item in before.initializers.items()}
    after = apply(BATCH_NORM, before)
    (node, _) = after.nodes
    weights, bias = (after.initializers[name].numpy() for name in node.inputs[1:])
    for group in range(2):
        for channel in range(3):
            output = 3 * group + channel
            factor = old["s"][output] / np.sqrt(old["v"][output] + 1e-5)
            for source in (2 * group, 2 * group + 1):
                expected = old["w"][source, channel] * factor
                np.testing.assert_allclose(weights[source, channel], expected, rtol=1e-5)
            np.testing.assert_allclose(
                bias[output], old["o"][output] - old["m"][output] * factor, rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("b = BatchNormalization<training_mode=1>(a, s, o, m, v)", {}),
        ("b = BatchNormalization(a, x1, o, m, v)", {}),
        ("b = BatchNormalization(a, s, o, m, v)\nz = Relu(a)", {}),
        ("b = BatchNormalization(a, s, o, m, v)", {"v": np.full(6, -1, np.float32)}),
        ("b = BatchNormalization(a, s, o, m, v)", {"s": np.full(6, 3e38, np.float32)}),
    ],
    ids=["training", "fed scale", "read twice", "NaN", "overflow"],
)
def test_other_batch_normalisations_stay(line, values):
    if "x1" in line:
        before = graph(
            "(float[2,4,5,5] x, float[6] x1) => (float[R] y)",
            f"a = Conv(x, w)\n{line}\ny = Relu(b)",
            w=numbers(6, 4, 3, 3),
            **{name: np.abs(numbers(6)) for name in "omv"},
        )
    else:
        before = normalised("Conv(x, w)", 100 * numbers(6, 4, 3, 3), line=line, **values)
    check_untouched(BATCH_NORM, before)


def test_weights_that_others_read_keep_their_values():
    body = """a = Conv(x, w)
        b = BatchNormalization(a, s, o, m, v)
        d = Conv(x, w)
        y = Add(b, d)"""
    constants = {name: np.abs(numbers(4)) for name in "somv"}
    before = graph("(float[1,2,5] x) => (float[R] y)", body, w=numbers(4, 2, 3), **constants)
    check_near(BATCH_NORM, before, "Conv Conv Add")


@pytest.mark.parametrize("convolution", ["Conv(x, w)", "Conv(x, w, c)"])
@pytest.mark.parametrize("operation", ["Mul(a, k)", "Mul(k, a)", "Add(a, k)"])
@pytest.mark.parametrize("shape", [(), (1,), (6, 1, 1), (1, 6, 1, 1), (1, 1, 1, 1)])
def test_a_constant_per_channel_goes_into_the_weights(convolution, operation, shape):
    body = f"a = {convolution}\nb = {operation}\ny = Relu(b)"
    constants = {"w": numbers(6, 4, 3, 3), "k": numbers(*shape), "c": numbers(6)}
    used = {name: array for name, array in constants.items() if name != "c" or ", c)" in body}
    check_near(SCALE, graph("(float[2,4,5,5] x) => (float[R] y)", body, **used), "Conv Relu")


def test_a_product_without_bias_gets_none():
    before = graph(
        "(float[1,2,5] x) => (float[R] y)",
        "a = Conv(x, w)\ny = Mul(a, k)",
        w=numbers(4, 2, 3),
        k=np.float32(2),
    )
    assert len(check_near(SCALE, before, "Conv").nodes[0].inputs) == 2


@pytest.mark.parametrize("shape", [(3,), (6,), (3, 3), (1, 6, 3, 3), (2, 1, 1, 1), (1, 1, 1, 1, 1)])
def test_constants_that_vary_within_a_channel_stay(shape):
    body = "a = Conv(x, w)\nb = Mul(a, k)\ny = Relu(b)"
    shapes = {"x": "2,4,5,5" if shape != (6,) else "2,4,5,8"}
    before = graph(
        f"(float[{shapes['x']}] x) => (float[R] y)", body, w=numbers(6, 4, 3, 3), k=numbers(*shape)
    )
    check_untouched(SCALE, before)


def test_a_convolution_that_is_an_output_or_captured_stays():
    body = "y = Conv(x, w)\nz = Mul(y, k)"
    arrays = {"w": numbers(4, 2, 3), "k": np.float32(2)}
    check_untouched(SCALE, graph("(float[1,2,5] x) => (float[R] y, float[R] z)", body, **arrays))
    captured = """a = Conv(x, w)
        b = Mul(a, k)
        y = If(c) <
            then_branch = t () => (float[R] p) { p = Neg(a) },
            else_branch = e () => (float[R] p) { p = Neg(b) }
        >"""
    check_untouched(SCALE, graph("(float[1,2,5] x, bool c) => (float[R] y)", captured, **arrays))


# ---------------------------------------------------------------- matrices


@pytest.mark.parametrize(
    "bias", [("k", ()), ("k", (1,)), ("k", (5,)), ("k", (1, 5)), ("k", (1, 1)), ("b", None)]
)
@pytest.mark.parametrize("swap", [False, True])
def test_a_matrix_product_and_a_bias_become_gemm(bias, swap):
    name, shape = bias
    constants = {"w": numbers(3, 5)} | ({"k": numbers(*shape)} if shape is not None else {})
    inputs = f"{name}, a" if swap else f"a, {name}"
    before = graph(
        "(float[N,3] x, float[5] b) => (float[R] y)",
        f"a = MatMul(x, w)\ny = Add({inputs})",
        **constants,
    )
    check_near(GEMM, before, "Gemm")


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("(float[2,4,3] x, float[3,5] w, float[5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[3] x, float[3,5] w, float[5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[4,3] x, float[3,5] w, float[2,4,5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[1,3] x, float[3,5] w, float[4,5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[4,3] x, float[3,5] w, float[N] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[N,3] x, float[3,5] w, float[N,5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(int32[4,3] x, int32[3,5] w, int32[5] b)", "a = MatMul(x, w)\ny = Add(a, b)"),
        ("(float[4,3] x, float[3,5] w, float[5] b)", "a = MatMul(x, w)\ny = Add(a, b)\nz = Neg(a)"),
        ("(float[4,3] x, float[3,4] w, float[5] b)", "a = MatMul(x, w)\ny = Add(a, a)"),
    ],
)
def test_other_sums_of_products_stay(signature, body):
    check_untouched(GEMM, graph(f"{signature} => (float[R] y)", body))


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize(
    ("pad", "node", "constants"),
    [
        ("Pad(x, p)", "Conv(a, w)", {"p": [0, 0, 1, 2, 0, 0, 3, 0]}),
        ("Pad(x, p, z)", "Conv<pads=[1,0,0,2]>(a, w)", {"p": [0, 0, 1, 2, 0, 0, 3, 0], "z": 0.0}),
        ("Pad(x, p)", 'Conv<auto_pad="VALID">(a, w)', {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p, , e)", "Conv(a, w)", {"p": [1, 2, 3, 0], "e": [-1, 2]}),
        ("Pad(x, p)", "AveragePool<kernel_shape=[3,3]>(a)", {"p": [0, 0, 1, 2, 0, 0, 2, 0]}),
        (
            "Pad(x, p)",
            "AveragePool<kernel_shape=[3,3],strides=[2,1],count_include_pad=1>(a)",
            {"p": [0, 0, 1, 1, 0, 0, 1, 1]},
        ),
    ],
)
def test_zeros_around_the_input_become_pads(pad, node, constants):
    arrays = {n: np.float32(v) if n == "z" else np.int64(v) for n, v in constants.items()}
    if "w)" in node:
        arrays["w"] = numbers(3, 2, 3, 3)
    before = graph(
        "(float[1,2,5,5] x) => (float[R] y)", f"a = {pad}\ny = {node}", opset=18, **arrays
    )
    check_near(PAD, before, node.split("<")[0].split("(")[0])


@pytest.mark.parametrize(
    ("pad", "node", "constants"),
    [
        ('Pad<mode="reflect">(x, p)', "Conv(a, w)", {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p, z)", "Conv(a, w)", {"p": [0, 0, 1, 1, 0, 0, 1, 1], "z": 1.0}),
        ("Pad(x, p)", "Conv(a, w)", {"p": [0, 1, 1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p)", "Conv(a, w)", {"p": [0, 0, -1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p)", 'Conv<auto_pad="SAME_UPPER">(a, w)', {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        ("Pad(x, p)", "MaxPool<kernel_shape=[3,3]>(a)", {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
        (
            "Pad(x, p)",
            "AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(a)",
            {"p": [0, 0, 1, 1, 0, 0, 1, 1]},
        ),
        (
            "Pad(x, p)",
            "AveragePool<kernel_shape=[3,3],ceil_mode=1>(a)",
            {"p": [0, 0, 1, 1, 0, 0, 1, 1]},
        ),
        ("Pad(x, p)", "AveragePool<kernel_shape=[2,2]>(a)", {"p": [0, 0, 2, 2, 0, 0, 2, 2]}),
    ],
)
def test_other_padding_stays(pad, node, constants):
    arrays = {n: np.float32(v) if n == "z" else np.int64(v) for n, v in constants.items()}
    if "w)" in node:
        arrays["w"] = numbers(3, 3 if arrays["p"][1] else 2, 3, 3)
    before = graph(
        "(float[1,2,5,5] x) => (float[R] y)", f"a = {pad}\ny = {node}", opset=18, **arrays
    )
    check_untouched(PAD, before)


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
    ending, *, square="Pow(d, two)", axes=(-1,), opset=17, extra="", centered=True, **changed
):
    as_input = opset >= 18
    parts = {
        "axes": "" if as_input else f"<axes=[{','.join(map(str, axes))}]>",
        "input": ", axes" if as_input else "",
        "square": square,
    }
    body = ((CENTERED if centered else "") + DEVIATION).format(**parts) + ending + extra
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
    return graph("(float[N,3,4] x) => (float[N,3,4] y)", body, opset=opset, **used)


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
    before = normalisation(ending, square="Mul(x, x)", opset=23, centered=False)
    left = "RMSNormalization Add" if "Add" in ending else "RMSNormalization"
    check_near(RMS_NORM, before, left, rtol=1e-4)


@pytest.mark.parametrize(
    "options", [{"opset": 22}, {"axes": (1,), "g": numbers(4)}, {"g": numbers(3, 1)}]
)
def test_look_alikes_of_rms_normalisation_stay(options):
    options = {"opset": 23, **options}
    ending = "n = Div(x, r)\ny = Mul(n, g)"
    before = normalisation(ending, square="Mul(x, x)", centered=False, **options)
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
