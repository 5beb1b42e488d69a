"""Known wrong answers of OpenVINO's are refused, each beside its harmless neighbour."""

from __future__ import annotations

import numpy as np
import pytest
from openvino_harness import graph_of

from ep_core.graph import Initializer
from ep_openvino.holes import hole


def told(text: str, place: int = -1, opset: int = 20, **constants: object) -> str:
    graph = graph_of(text, opset)
    made = {name: Initializer.from_array(name, np.asarray(v)) for name, v in constants.items()}
    graph = graph.replace(initializers={**graph.initializers, **made})
    return hole(graph, graph.nodes[place])


QUANTIZED = "g (uint8[4,6] x, float[{0}] s, uint8[{0}] z, float[4,4] a, float[6,2] b)"


@pytest.mark.parametrize(
    ("wrong", "right", "reason"),
    [
        (
            "g (float[0,3] x) => (float[3] y) { y = ReduceSum <keepdims = 0> (x) }",
            "g (float[n,3] x) => (float[a,b] y) { y = ReduceSum (x) }",
            "no elements",
        ),
        (
            "g (float[4] x, int64[0] i) => (float[0] y) { y = Gather (x, i) }",
            "g (float[4] x, int64[n] i) => (float[n] y) { y = Gather (x, i) }",
            "no elements",
        ),
        (
            "g (int8[2] x) => (int8[2] y) { y = Add (x, x) }",
            "g (int8[2] x) => (int8[4] y) { y = Concat <axis = 0> (x, x) }",
            "saturates",
        ),
        (
            "g (float[n] x) => (uint8[n] y, float s, uint8 z)"
            " { y, s, z = DynamicQuantizeLinear (x) }",
            "g (float[n] x, float s, uint8 z) => (uint8[n] y) { y = QuantizeLinear (x, s, z) }",
            "exact halves",
        ),
        (
            "g (uint32[2] x) => (uint32[2] y) { y = Max (x, x) }",
            "g (int32[2] x) => (int32[2] y) { y = Max (x, x) }",
            "uint32 is signed",
        ),
        (
            "g (int32[2] x) => (int32[2] y) { y = Div (x, x) }",
            "g (int32[2] x) => (int32[2] y) { y = Mul (x, x) }",
            "passes through 32-bit floats in OpenVINO's Div",
        ),
        (
            "g (float[1,1,4,4] x, float r, float[4] s) => (float[a,b,c,d] y)"
            ' { y = Resize <mode = "linear", antialias = 1> (x, r, s) }',
            "g (float[1,1,4,4] x, float r, float[4] s) => (float[a,b,c,d] y)"
            ' { y = Resize <mode = "linear"> (x, r, s) }',
            "antialiasing",
        ),
        (
            "g (float[1,1,4,4] x, float r, float[4] s) => (float[a,b,c,d] y)"
            ' { y = Resize <coordinate_transformation_mode = "align_corners"> (x, r, s) }',
            "g (float[1,1,4,4] x, int64[4] s) => (float[a,b,c,d] y)"
            ' { y = Resize <coordinate_transformation_mode = "align_corners"> (x, "", "", s) }',
            "aligns corners",
        ),
        (
            "g (float[2,3] x, int64[2] r) => (float[a,b] y) { y = Tile (x, r) }",
            "g (float[2,3] x) => (float[a,b] y) <int64[2] r = {2, 1}> { y = Tile (x, r) }",
            "'repeats' is a constant",
        ),
        (
            QUANTIZED.format(4)
            + " => (float[4,6] y) { d = DequantizeLinear <axis = 0> (x, s, z)  y = MatMul (a, d) }",
            QUANTIZED.format(6)
            + " => (float[4,6] y) { d = DequantizeLinear <axis = 1> (x, s, z)  y = MatMul (a, d) }",
            "along the summed axis",
        ),
        (
            QUANTIZED.format(6)
            + " => (float[4,2] y) { d = DequantizeLinear <axis = 1> (x, s, z)  y = MatMul (d, b) }",
            QUANTIZED.format(6) + " => (float[4,6] y) { d = DequantizeLinear <axis = 1> (x, s, z)"
            "  y = Gemm (a, d) }",
            "along the summed axis",
        ),
    ],
)
def test_a_hole_and_the_ground_beside_it(wrong: str, right: str, reason: str) -> None:
    assert reason in (told(wrong, 0) or told(wrong))
    assert told(right, 0) == told(right) == ""


def test_peepholes() -> None:
    text = """g (float[1,2,4] x, float[1,12,4] w, float[1,12,3] r, float[1,9] p)
        => (float[1,1,2,3] y) { y = LSTM <hidden_size = 3> (x, w, r, "", "", "", "", P) }"""
    assert "peepholes" in told(text.replace("P)", "p)"))
    assert told(text.replace(', "", "", "", "", P)', ")")) == ""


def test_modes() -> None:
    roi = """g (float[1,1,8,8] x, float[1,4] r, int64[1] i) => (float[1,1,1,1] y)
        { y = RoiAlign <mode = "MODE"> (x, r, i) }"""
    assert "'max'" in told(roi.replace("MODE", "max"))
    assert told(roi.replace("MODE", "avg")) == ""


@pytest.mark.parametrize("attribute", ["left_window_size", "right_window_size"])
def test_windows_of_attention(attribute: str) -> None:
    text = f"""g (float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v) => (float[1,2,4,8] y)
        {{ y = Attention <{attribute} = 2> (q, k, v) }}"""
    assert "window" in told(text, opset=25)
    assert told(text.replace("= 2", "= -1"), opset=25) == ""


def test_a_clip_between_quantized_values() -> None:
    text = """g (uint8[4] x, float s, float low) => (float[4] y) {
        d = DequantizeLinear (x, s)
        c = Clip (d, low)
        q = QuantizeLinear (c, s)
        y = DequantizeLinear (q, s)
    }"""
    assert "range of a Clip" in told(text, 1)
    assert told(text.replace("Clip (d, low)", "Relu (d)"), 1) == ""


def test_a_convolution_of_constants() -> None:
    text = """g (float[1] b, float[1,1,4] d) => (float[1,1,4] y)
        <float[1,1,4] x = {1, 2, 3, 4}, float[1,1,1] w = {3}> {
        z = Neg (SOURCE)
        y = Conv (z, w, b)
    }"""
    assert "the run before" in told(text.replace("SOURCE", "x"))
    assert told(text.replace("SOURCE", "d")) == ""


@pytest.mark.parametrize(
    ("wrong", "right", "opset"),
    [
        ("y = Mod <fmod = 1> (x, x)", "y = Div (x, x)", 20),
        ("y = LRN <size = 2> (x)", "y = LRN <size = 3> (x)", 20),
        (
            "y = LpPool <kernel_shape = [2, 2], ceil_mode = 1> (x)",
            "y = LpPool <kernel_shape = [2, 2]> (x)",
            20,
        ),
        (
            "y, i = MaxPool <kernel_shape = [1, 1], storage_order = 1> (x)",
            "y, i = MaxPool <kernel_shape = [1, 1]> (x)",
            20,
        ),
        ("y = Unique <axis = 1> (x)", "y = Unique (x)", 20),
    ],
)
def test_attributes_and_versions(wrong: str, right: str, opset: int) -> None:
    text = "g (float[1,2,3,4] x) => (float[1,2,3,4] y) {{ {} }}"
    assert told(text.format(wrong), opset=opset)
    assert told(text.format(right), opset=opset) == ""


def test_joined_parts_of_several_scales() -> None:
    text = """g (uint8[2] a, uint8[2] b, float s, float t) => (uint8[4] y) {
        x = DequantizeLinear (a, s)
        z = DequantizeLinear (b, t)
        j = Concat <axis = 0> (x, z)
        y = QuantizeLinear (j, s)
    }"""
    assert "rounds once" in told(text, 2)
    assert told(text, 2, s=0.5, t=0.5) == ""
    assert "rounds once" in told(text, 2, s=0.5, t=0.25)
    assert (
        told(
            text.replace("QuantizeLinear (j, s)", "Identity (j)").replace(
                "uint8[4] y", "float[4] y"
            ),
            2,
        )
        == ""
    )


MICROSOFT = [
    (
        "g (float[2,3] x, float[3,4] w) => (float[2,4] y)"
        " {{ y = com.microsoft.FusedGemm <activation = {!r}> (x, w) }}",
        ("Tanh", "Relu"),
        "activation",
    ),
    (
        "g (float[2,3,4] x, float[2,4,3] w) => (float[a,b,c] y)"
        " {{ y = com.microsoft.FusedMatMul <transBatchA = {}> (x, w) }}",
        (1, 0),
        "unturned",
    ),
    (
        "g (float[2,3,8] q, int32[{}] m) => (float[2,3,8] y)"
        " {{ y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, q, q, , m) }}",
        ("2", "2,3"),
        "mask",
    ),
    (
        "g (float[2,3,8] q, float[2,2,4,4] k, float[24] b) => (float[2,3,8] y)"
        " {{ y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, k{}) }}",
        (", b", ""),
        "bias",
    ),
    (
        "g (bool[2] c, uint8[2] a, float s, uint8 z) => (uint8[2] y)"
        " {{ y = com.microsoft.QLinear{}a, s, z, a, s, z, s, z) }}",
        ("Add (", "Where (c, "),
        "ONNX Runtime's",
    ),
]


@pytest.mark.parametrize(("text", "choices", "reason"), MICROSOFT)
def test_operators_of_onnx_runtime(text: str, choices: tuple[object, object], reason: str) -> None:
    wrong, right = (text.format(choice).replace("'", '"') for choice in choices)
    assert reason in told(wrong)
    assert told(right) == ""
