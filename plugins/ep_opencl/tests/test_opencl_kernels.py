"""Kernels against the reference evaluator of the onnx package, on shapes that don't fit tiles."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from opencl_harness import chosen, floats, needs_device, one_node, session

from ep_opencl.device import open_device

pytestmark = needs_device

RANDOM = np.random.default_rng(7)
X = floats(2, 6, 13, 15)
SMALL = floats(3, 5, 7, 9)
BYTES = RANDOM.integers(0, 255, (2, 6, 9, 9), dtype=np.uint8)


def ints(*values):
    return np.array(values, np.int64)


def zero(value):
    return np.array(value, np.uint8)


def scale(value):
    return np.array(value, np.float32)


CASES = {
    "matmul": ("MatMul", [floats(17, 31), floats(31, 19)]),
    "matmul of stacks that broadcast": ("MatMul", [floats(3, 1, 9, 8), floats(1, 5, 8, 33)]),
    "matmul of vectors": ("MatMul", [floats(7), floats(7)]),
    "matmul of a stack and one matrix": ("MatMul", [floats(2, 30, 40), floats(40, 50)]),
    "gemm": (
        "Gemm",
        [floats(33, 20), floats(45, 33), floats(45)],
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    "matmul of bytes": (
        "MatMulInteger",
        [BYTES[0, 0], BYTES[0, 1].astype(np.int8), zero(7), np.array(-3, np.int8)],
    ),
    "conv": ("Conv", [X, floats(10, 6, 3, 3), floats(10)], {"pads": [1, 1, 1, 1]}),
    "conv with steps": (
        "Conv",
        [X, floats(10, 6, 3, 3)],
        {"pads": [1, 0, 1, 2], "strides": [2, 2], "dilations": [1, 2]},
    ),
    "conv of 1 x 1": ("Conv", [X, floats(32, 6, 1, 1), floats(32)]),
    "conv in groups": ("Conv", [floats(3, 32, 9, 9), floats(20, 16, 3, 3)], {"group": 2}),
    "depthwise conv": (
        "Conv",
        [X, floats(6, 1, 3, 3), floats(6)],
        {"group": 6, "auto_pad": "SAME_UPPER"},
    ),
    "conv in 1 dimension": ("Conv", [floats(2, 8, 30), floats(16, 8, 5)], {"strides": [3]}),
    "conv in 3 dimensions": (
        "Conv",
        [floats(1, 8, 7, 8, 9), floats(16, 8, 2, 3, 2)],
        {"strides": [1, 2, 1]},
    ),
    "transposed conv": (
        "ConvTranspose",
        [X, floats(6, 5, 3, 3), floats(5)],
        {"strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 0]},
    ),
    "max pool": (
        "MaxPool",
        [X],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "average pool": (
        "AveragePool",
        [X],
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "mean of a middle axis": ("ReduceMean", [SMALL, ints(1)], {"keepdims": 0}),
    "sum of axes apart": ("ReduceSum", [SMALL, ints(0, 2)], {"keepdims": 1}),
    "sum of everything": ("ReduceSum", [SMALL]),
    "log of a sum of exponentials": ("ReduceLogSumExp", [SMALL, ints(2)]),
    "largest": ("ReduceMax", [SMALL, ints(-1)]),
    "position": ("ArgMax", [np.round(SMALL)], {"axis": 2, "select_last_index": 1}),
    "softmax of rows": ("Softmax", [SMALL * 50]),
    "softmax of columns": ("Softmax", [SMALL], {"axis": 1}),
    "log softmax": ("LogSoftmax", [SMALL], {"axis": 2}),
    "layer norm": ("LayerNormalization", [SMALL, floats(7, 9), floats(7, 9)], {"axis": 2}),
    "instance norm": ("InstanceNormalization", [SMALL, floats(5), floats(5)]),
    "group norm": (
        "GroupNormalization",
        [floats(2, 6, 4, 5), floats(6), floats(6)],
        {"num_groups": 3},
    ),
    "batch norm": (
        "BatchNormalization",
        [SMALL, floats(5), floats(5), floats(5), np.abs(floats(5))],
    ),
    "transpose": ("Transpose", [SMALL], {"perm": [2, 0, 3, 1]}),
    "large transpose": ("Transpose", [floats(3, 70, 129)], {"perm": [0, 2, 1]}),
    "concat": ("Concat", [SMALL, SMALL[:, :2], SMALL], {"axis": 1}),
    "slice backwards": ("Slice", [SMALL, ints(1, -1), ints(4, -9), ints(0, 3), ints(2, -3)]),
    "expand": ("Expand", [floats(3, 1, 4), ints(2, 1, 5, 1)]),
    "tile": ("Tile", [floats(3, 4), ints(2, 3)]),
    "pad": ("Pad", [SMALL, ints(0, 1, 2, 0, 0, 0, 1, 3), scale(7)]),
    "pad by reflection": ("Pad", [floats(5, 6), ints(4, 2, 0, 3)], {"mode": "reflect"}),
    "depth to space": ("DepthToSpace", [floats(2, 12, 3, 4)], {"blocksize": 2, "mode": "CRD"}),
    "space to depth": ("SpaceToDepth", [floats(2, 3, 4, 6)], {"blocksize": 2}),
    "triangle": ("Trilu", [floats(4, 6), np.array(-1)], {"upper": 0}),
    "gather": ("Gather", [SMALL, ints(0, -1, 3)], {"axis": 2}),
    "gather elements": (
        "GatherElements",
        [SMALL, RANDOM.integers(-5, 5, (3, 8, 7, 9))],
        {"axis": 1},
    ),
    "gather tuples": ("GatherND", [SMALL, RANDOM.integers(0, 3, (4, 2, 2))]),
    "scatter elements": (
        "ScatterElements",
        [SMALL, RANDOM.integers(0, 5, (2, 3, 7, 9)), floats(2, 3, 7, 9)],
        {"axis": 1, "reduction": "add"},
    ),
    "scatter slices": ("ScatterND", [SMALL, ints(0, 2)[:, None], floats(2, 5, 7, 9)]),
    "top k": ("TopK", [SMALL, ints(4)], {"axis": 2}),
    "cumulative sum": ("CumSum", [SMALL, np.array(1)], {"reverse": 1}),
    "one hot": ("OneHot", [RANDOM.integers(-3, 4, (3, 4)), np.array(5), floats(2)], {"axis": 1}),
    "resize nearest": ("Resize", [SMALL, None, np.array([1, 1, 2.3, 0.6], np.float32)]),
    "resize cubic": (
        "Resize",
        [SMALL, None, np.array([1, 1, 1.5, 2], np.float32)],
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
    ),
    "quantize": ("QuantizeLinear", [SMALL * 100, scale(0.7), np.array(3, np.int8)]),
    "dequantize an axis": (
        "DequantizeLinear",
        [BYTES, np.abs(floats(6)), RANDOM.integers(0, 9, 6, dtype=np.uint8)],
        {"axis": 1},
    ),
    "quantize by the data": ("DynamicQuantizeLinear", [floats(7, 9)]),
    "range": ("Range", [scale(1), scale(200), scale(1.5)]),
    "positions of maxima": (
        "MaxPool",
        [floats(2, 3, 7, 9)],
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 0, 0]},
    ),
    "attention": (
        "Attention",
        [floats(2, 4, 10, 16), floats(2, 2, 13, 16), floats(2, 2, 13, 8), floats(10, 13)],
        {"is_causal": 1, "softcap": 2.0},
    ),
    "attention with heads inside": (
        "Attention",
        [floats(2, 10, 64), floats(2, 13, 32), floats(2, 13, 32)],
        {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.3},
    ),
}
OUTPUTS = {"top k": 2, "quantize by the data": 3, "positions of maxima": 2}


@pytest.mark.parametrize("name", CASES)
def test_like_the_reference(name):
    op_type, inputs, *rest = CASES[name]
    attributes = rest[0] if rest else {}
    opset = 23 if op_type == "Attention" else 21
    model, feeds = one_node(op_type, inputs, attributes, opset=opset, outputs=OUTPUTS.get(name, 1))
    with session(model) as running:
        found = running.run(None, feeds)
    expected = ReferenceEvaluator(model).run(None, feeds)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["matmul", "gemm", "matmul of a stack and one matrix"])
def test_a_constant_weight_is_packed_and_gives_the_same(name):
    op_type, inputs, *rest = CASES[name]
    found = []
    for constant in ((), (1,)):
        model, feeds = one_node(op_type, inputs, rest[0] if rest else {}, constant=constant)
        with session(model) as running:
            found.append(running.run(None, feeds)[0])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-6)


GPU_CASES = [
    name
    for name, (op_type, *_) in CASES.items()
    if op_type in ("MatMul", "Gemm", "MatMulInteger", "Conv", "Attention")
]


@pytest.mark.parametrize("name", [*GPU_CASES, "large"])
def test_the_kernels_for_gpus_give_the_same(name, monkeypatch):
    """They go through local memory, which every device has."""
    monkeypatch.setattr(open_device(chosen().id), "is_cpu", False)
    op_type, inputs, *rest = CASES.get(name) or ("MatMul", [floats(2, 70, 133), floats(133, 99)])
    opset = 23 if op_type == "Attention" else 21
    model, feeds = one_node(op_type, inputs, rest[0] if rest else {}, opset=opset)
    with session(model) as running:
        (found,) = running.run(None, feeds)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=5e-5)


def test_an_int8_convolution_is_within_one_step_of_the_real_one():
    weight = RANDOM.integers(-128, 127, (8, 6, 3, 3)).astype(np.int8)
    scales = np.abs(floats(8)) + np.float32(0.01)
    bias = RANDOM.integers(-99, 99, 8).astype(np.int32)
    inputs = [
        BYTES,
        scale(0.1),
        zero(3),
        weight,
        scales,
        np.zeros(8, np.int8),
        scale(30),
        zero(7),
        bias,
    ]
    model, feeds = one_node("QLinearConv", inputs, {"pads": [1, 1, 1, 1]})
    with session(model) as running:
        (found,) = running.run(None, feeds)
    padded = np.pad((BYTES.astype(np.float64) - 3), ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = np.zeros((2, 8, 9, 9))
    for row in range(3):
        for column in range(3):
            part = padded[:, :, row : row + 9, column : column + 9]
            total += np.einsum("nchw,oc->nohw", part, weight[:, :, row, column].astype(np.float64))
    total += bias.reshape(1, 8, 1, 1)
    real = total * 0.1 * scales.reshape(1, 8, 1, 1) / 30 + 7
    np.testing.assert_allclose(found, np.clip(np.rint(real), 0, 255), atol=1)


INTEGERS = np.array([-(2**31), -7, -1, 0, 1, 7, 2**31 - 1], np.int32)


def test_integers_divide_towards_zero_and_never_trap():
    (left, right) = np.meshgrid(INTEGERS, INTEGERS)
    model, feeds = one_node("Div", [left, right])
    with session(model) as running:
        (found,) = running.run(None, feeds)
    for a, b, got in zip(left.ravel(), right.ravel(), found.ravel(), strict=True):
        exact = 0 if b == 0 else abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)
        assert got == np.array(exact & 0xFFFFFFFF, np.uint32).view(np.int32)


@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_have_the_sign_that_the_attribute_says(fmod):
    left = np.array([-7, 7, -7, 7, 6], np.int8)
    right = np.array([3, -3, -3, 3, 3], np.int8)
    model, feeds = one_node("Mod", [left, right], {"fmod": fmod})
    with session(model) as running:
        (found,) = running.run(None, feeds)
    assert found.tolist() == ([-1, 1, -1, 1, 0] if fmod else [2, -2, -1, 1, 0])


@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_nan_passes_through(op_type):
    nan = np.float32(np.nan)
    inputs = [np.array([nan, 1, 2], np.float32), np.array([1, nan, 3], np.float32)]
    model, feeds = one_node(op_type, inputs)
    with session(model) as running:
        (found,) = running.run(None, feeds)
    assert np.isnan(found[:2]).all()


def test_halves_are_rounded_to_even_once():
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    wide = finite.astype(np.float32) * np.float32(1.0001)
    model, feeds = one_node("Cast", [wide], {"to": 10})
    with session(model) as running:
        (found,) = running.run(None, feeds)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            found.view(np.uint16), wide.astype(np.float16).view(np.uint16)
        )


def test_denormals_are_numbers():
    small = np.array([1e-40, -1e-42], np.float32)
    model, feeds = one_node("Add", [small, small])
    with session(model) as running:
        (found,) = running.run(None, feeds)
    np.testing.assert_array_equal(found, small + small)
