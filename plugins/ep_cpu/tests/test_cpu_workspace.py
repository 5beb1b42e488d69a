"""Planned host memory against what numpy takes, as tracemalloc sees it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest

from ep_core import InferenceSession, OrtValue, SessionOptions

HEAD = '<ir_version: 8, opset_import: ["" : 20]> '
NEWER = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> '
SMALL = 1 << 18
"""Bytes that planning doesn't look at: slack of kernels, and Python's own objects."""

UNARY = """
    Abs Acos Asinh BitwiseNot Ceil Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish Hardmax
    IsNaN LeakyRelu Log LogSoftmax LpNormalization Mish Neg Not Reciprocal Relu Round Selu Shrink
    Sigmoid Sign Sinh Softmax Softplus Softsign Sqrt Tan Tanh Trilu
"""
BINARY = """
    Add And BitShift BitwiseAnd Div Equal Greater Less MatMul Max Mean Min Mod Mul Or PRelu Pow Sub
    Sum Xor
"""
COMPARING = ("Equal", "Greater", "Less", "And", "Or", "Xor", "Not", "IsNaN")
TYPES = {"float": "f4", "float16": "f2", "double": "f8", "int32": "i4", "uint8": "u1", "bool": "?"}
FED = TYPES | {"int8": "i1"}

GRAPHS = {
    "gelu": "g (float[256,256] x) => (float[256,256] y) { half = Constant<value_float=0.5>()"
    " one = Constant<value_float=1.0>() a = Mul(x, half) b = Erf(x) c = Add(b, one)"
    " y = Mul(a, c) }",
    "attention": "g (float[8,64,32] q, float[8,32,64] k, float[8,64,32] v) => (float[8,64,32] y)"
    " { a = MatMul(q, k) b = Softmax(a) y = MatMul(b, v) }",
    "normalized": "g (float[256,512] x, float[512] s) => (float[256,512] y)"
    " { a = LayerNormalization(x, s) b = Relu(a) y = Add(b, x) }",
    "convolved": "g (float[1,32,56,56] x, float[32,32,3,3] w, float[64,32,3,3] v)"
    " => (float[1,64,28,28] y) { a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Add(b, x)"
    " y = Conv<pads=[1,1,1,1], strides=[2,2]>(c, v) }",
    "depthwise": "g (float[1,64,56,56] x, float[64,1,3,3] w) => (float[1,64,56,56] y)"
    " { y = Conv<pads=[1,1,1,1], group=64>(x, w) }",
    "seven": "g (float[1,3,128,128] x, float[64,3,7,7] w) => (float[1,64,64,64] y)"
    " { y = Conv<pads=[3,3,3,3], strides=[2,2]>(x, w) }",
    "transposed": "g (float[1,64,28,28] x, float[64,32,3,3] w) => (float[1,32,30,30] y)"
    " { y = ConvTranspose(x, w) }",
    "pooled": "g (float[1,64,112,112] x) => (float[1,64,1,1] y)"
    " { a = MaxPool<kernel_shape=[3,3], strides=[2,2]>(x)"
    " b = AveragePool<kernel_shape=[2,2]>(a) y = GlobalAveragePool(b) }",
    "batched": "g (float[8,64,32,32] x, float[64] s, float[64] b, float[64] m, float[64] v)"
    " => (float[8,64,32,32] y) { a = BatchNormalization(x, s, b, m, v)"
    " y = InstanceNormalization(a, s, b) }",
    "resized": "g (float[1,32,28,28] x) => (float[1,32,56,56] y, float[1,32,56,56] z)"
    ' { s = Constant<value_floats=[1.0,1.0,2.0,2.0]>() y = Resize<mode="linear">(x, , s)'
    " z = Resize(x, , s) }",
    "reduced": "g (float16[256,512] x) => (float16[256,1] y, float16[1,512] z)"
    " { a = Constant<value_ints=[1]>() b = Constant<value_ints=[0]>() y = ReduceL2(x, a)"
    " z = ReduceLogSumExp(x, b) }",
    "quantized": "g (float[256,512] x, float s, uint8 z) => (float[256,512] y)"
    " { a = QuantizeLinear(x, s, z) y = DequantizeLinear(a, s, z) }",
    "integers": "g (uint8[128,256] x, uint8[256,128] w) => (int32[128,128] y)"
    " { y = MatMulInteger(x, w) }",
    "halves": "g (float16[128,256] x, float16[256,128] w) => (float16[128,128] y)"
    " { y = MatMul(x, w) }",
    "recurrent": "g (float[50,8,64] x, float[1,512,64] w, float[1,512,128] r)"
    " => (float[50,1,8,128] y) { y = LSTM<hidden_size=128>(x, w, r) }",
    "moved": "g (float[64,512] x, int64[32] i) => (float[512,64] t, float[32,512] g, float[128,512]"
    " c) { t = Transpose(x) g = Gather(x, i) c = Concat<axis=0>(x, x) }",
    "views": "g (float[256,512] x) => (float[512,256] y, float[256,512] z)"
    " { s = Constant<value_ints=[512,256]>() a = Relu(x) y = Reshape(a, s) z = Identity(x) }",
    "local": "g (float[1,64,56,56] x) => (float[1,64,56,56] y) { y = LRN<size=5>(x) }",
    "best": "g (float[256,1024] x, int64[1] k) => (float[256,N] y, int64[256,N] i)"
    " { y, i = TopK(x, k) }",
}


# With inputs so small that what lies between them and the results decides.
STEPS = {
    "long": "g (float[1000,4,8] x, float[1,256,8] w, float[1,256,64] r) => (float[1,4,64] y)"
    " { _, y = LSTM<hidden_size=64>(x, w, r) }",
    "both ways": "g (float16[1000,4,8] x, float16[2,256,8] w, float16[2,256,64] r)"
    ' => (float16[2,4,64] y) { _, y = LSTM<hidden_size=64, direction="bidirectional">(x, w, r) }',
    "gated": "g (double[1000,4,8] x, double[1,192,8] w, double[1,192,64] r)"
    " => (double[1,4,64] y) { _, y = GRU<hidden_size=64>(x, w, r) }",
    "simple": "g (float[2000,4,8] x, float[2,64,8] w, float[2,64,64] r) => (float[2,4,64] y)"
    ' { _, y = RNN<hidden_size=64, direction="bidirectional">(x, w, r) }',
    "quantized": "g (float[500,4,8] x, int8[2,8,256] w, int8[2,64,256] r, float[2] s, int8[2] z)"
    " => (float[2,4,64] y) { _, y = com.microsoft.DynamicQuantizeLSTM"
    '<hidden_size=64, direction="bidirectional">(x, w, r, , , , , , s, z, s, z) }',
}
PACKED = (
    "g ({0}[1,400,64] q, {0}[1,400,64] k, {0}[1,400,64] v{1}) => ({0}[1,400,64] y) {{ y = {2} }}"
)
ATTENTIONS = {
    "causal": ("", "Attention<q_num_heads=4, kv_num_heads=4, is_causal=1>(q, k, v)"),
    "one head": ("", "Attention<q_num_heads=1, kv_num_heads=1, is_causal=1>(q, k, v)"),
    "masked": (
        ", bool[400,400] m",
        "Attention<q_num_heads=2, kv_num_heads=2, softcap=3.0>(q, k, v, m)",
    ),
    "microsoft's": (
        ", {0}[192] b",
        "com.microsoft.MultiHeadAttention<num_heads=4, unidirectional=1>(q, k, v, b)",
    ),
}
GROUPED = (
    "g (float[1,1,1024] q, float[1,1,64] k, float[1,1,64] v, float[1,1,511,64] p,"
    " float[1,1,511,64] o) => (float[1,1,1024] y, float[1,1,512,64] n, float[1,1,512,64] m)"
    " { y, n, m = Attention<q_num_heads=16, kv_num_heads=1>(q, k, v, , p, o) }"
)
FUSED = {
    "FastGelu": "{0}[256,256] x, {0}[256] b",
    "BiasGelu": "{0}[256,256] x, {0}[256] b",
    "FusedMatMul": "{0}[512,256] x, {0}[256,256] w",
    "SkipLayerNormalization": "{0}[2,128,256] x, {0}[2,128,256] s, {0}[256] g, {0}[256] b",
    "SkipSimplifiedLayerNormalization": "{0}[2,128,256] x, {0}[2,128,256] s, {0}[256] g",
}


@pytest.fixture
def session():
    opened = []

    def make(text, head=HEAD):
        settings = SessionOptions()
        settings.certificate_policy = "off"
        model = onnx.parser.parse_model(head + text).SerializeToString()
        opened.append(InferenceSession(model, settings, ["cpu"]))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def feeds_of(session):
    generator = np.random.default_rng(1)
    feeds = {}
    for item in session.get_inputs():
        dtype = FED.get(item.type[7:-1], "i8")
        feeds[item.name] = np.array(generator.random(item.shape) * 3 + 1, dtype)
    return feeds


def traced(work):
    """The most bytes that Python and numpy took beside what was there."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


def planned(session):
    peak = session.get_placement().peak_bytes["cpu/host"]
    assert peak.unknown == ""
    return peak.run_bytes


def check(session, *, at_most):
    """The first run and later ones stay below the plan, which isn't much more than they take."""
    feeds = feeds_of(session)
    peaks = [traced(lambda: session.run(None, feeds)) for _ in range(3)]
    assert max(peaks) <= planned(session) + SMALL
    assert planned(session) <= at_most * max(peaks) + SMALL


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(session, name):
    one = session(GRAPHS[name])
    if name == "best":
        assert "isn't known" in one.get_placement().peak_bytes["cpu/host"].unknown
        return
    check(one, at_most=6)


@pytest.mark.parametrize("name", STEPS)
def test_gates_and_states_of_all_steps_count(session, name):
    check(session(STEPS[name], NEWER), at_most=4)


@pytest.mark.parametrize("type_name", ["float", "float16"])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_queries_against_keys_count(session, name, type_name):
    more, call = ATTENTIONS[name]
    check(session(PACKED.format(type_name, more.format(type_name), call), NEWER), at_most=6)


def test_keys_that_are_repeated_count(session):
    check(session(GROUPED, NEWER), at_most=12)


@pytest.mark.parametrize("type_name", ["float", "float16"])
@pytest.mark.parametrize("operator", FUSED)
def test_fused_operators(session, operator, type_name):
    inputs = FUSED[operator].format(type_name)
    shape = inputs[inputs.index("[") : inputs.index("]") + 1]
    names = ", ".join(item.split()[1] for item in inputs.split(", "))
    text = f"g ({inputs}) => ({type_name}{shape} y) {{ y = com.microsoft.{operator}({names}) }}"
    check(session(text, NEWER), at_most=10)


def test_rotated_positions(session):
    text = "g ({0}[2,128,256] x, {0}[128,32] c, {0}[128,32] s) => ({0}[2,128,256] y)"
    text += " {{ y = RotaryEmbedding<num_heads=4>(x, c, s, p) }}"
    places = "<int64[2,128] p = {{{}}}>".format(", ".join(map(str, [*range(128)] * 2)))
    for kind in ("float", "float16"):
        one = text.format(kind).replace(" {", f" {places} {{", 1)
        check(session(one, NEWER), at_most=6)


def test_marked(session):
    text = "g (int64[256,8] i, float[2] v) => (float[256,8,128] y)"
    text += " { d = Constant<value_int=128>() y = OneHot(i, d, v) }"
    check(session(text), at_most=6)


def typed(operators):
    """Operators with the types that their schemas allow."""
    return [
        (operator, name)
        for operator in operators.split()
        for name in TYPES
        if f"tensor({name})" in onnx.defs.get_schema(operator, 20).inputs[0].types
    ]


def check_operator(session, operator, type_name, inputs):
    shape = "[256,256]"
    result = "bool" if operator in COMPARING else type_name
    taken = ", ".join(f"{type_name}{shape} {name}" for name in inputs)
    attributes = {"BitShift": '<direction="LEFT">', "Mod": "<fmod=1>"}.get(operator, "")
    call = f"{operator}{attributes}({', '.join(inputs)})"
    # Whole arrays of a wider type are much for a narrow one; that many are seldom needed.
    at_most = 8 if type_name in ("float", "double") else 64
    check(session(f"g ({taken}) => ({result}{shape} y) {{ y = {call} }}"), at_most=at_most)


@pytest.mark.parametrize(("operator", "type_name"), typed(UNARY))
def test_operators_of_one_input(session, operator, type_name):
    check_operator(session, operator, type_name, ["x"])


@pytest.mark.parametrize(("operator", "type_name"), typed(BINARY))
def test_operators_of_two_inputs(session, operator, type_name):
    check_operator(session, operator, type_name, ["x", "b"])


def test_chains_use_memory_again(session):
    """The plan of a long chain is that of a short one."""
    text = "g (float[256,256] x) => (float[256,256] y) {{ {} y = Neg(a{}) }}"

    def chain(length):
        steps = "a0 = Exp(x) " + " ".join(f"a{i + 1} = Tanh(a{i})" for i in range(length))
        return session(text.format(steps, length))

    short, long = chain(3), chain(30)
    assert planned(short) == planned(long)
    check(long, at_most=2)


# ---------------------------------------------------------------- nothing new after the first run


LONG = "g (float[256,256] x) => (float[256,256] y) { a = Exp(x) b = Add(a, x) y = Mul(a, b) }"


def test_a_bound_run_into_given_memory_takes_nothing_new(session):
    one = session(LONG)
    x = np.ones((256, 256), np.float32)
    y = np.zeros_like(x)
    binding = one.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(y))
    for _ in range(2):
        one.run_with_iobinding(binding)
    assert traced(lambda: one.run_with_iobinding(binding)) < x.nbytes // 8
    assert y.any()


def test_a_run_takes_its_results_and_nothing_else(session):
    one = session(LONG)
    feeds = {"x": np.ones((256, 256), np.float32)}
    for _ in range(2):
        one.run(None, feeds)
    assert traced(lambda: one.run(None, feeds)) < feeds["x"].nbytes * 9 // 8
