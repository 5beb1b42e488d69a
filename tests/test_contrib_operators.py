"""Fused, normalising and other operators of com.microsoft, held against ONNX Runtime's kernels.

Where ONNX Runtime has no kernel for the CPU, the tests of the provider compare with formulas.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnxruntime_oracle import Cases

RNG = np.random.default_rng(21)
EXACT = {"atol": 0}
HALF = {"rtol": 4e-3, "atol": 4e-3}
DOUBLE = {"rtol": 1e-9, "atol": 1e-9}
CASES = Cases()
add = CASES.add


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


# ---------------------------------------------------------------- convolutions and products


def convolutions():
    x, weight, bias = f32(2, 4, 7, 7), f32(6, 4, 3, 3), f32(6)
    activations = {
        "Relu": [], "Tanh": [], "Sigmoid": [], "HardSwish": [], "LeakyRelu": [0.2],
        "Clip": [-0.5, 0.7], "HardSigmoid": [0.3, 0.4],
    }  # fmt: skip
    for name, parameters in activations.items():
        given = {"activation": name}
        if parameters:
            given["activation_params"] = parameters
        constant = {"constants": (1, 2)}
        add(f"FusedConv {name}", [x, weight, bias], pads=[1, 1, 1, 1], model=constant, **given)
        add(f"FusedConv {name} residual", [x, weight, bias, f32(2, 6, 5, 5)], **given)
    add("FusedConv bare", [x, weight])
    add(
        "FusedConv strided residual", [x, weight, None, f32(2, 6, 3, 3)], strides=[2, 2],
        activation="Relu",
    )  # fmt: skip
    grouped = {"group": 2, "dilations": [2, 2], "pads": [2, 2, 2, 2], "activation": "Relu"}
    add("FusedConv grouped", [x, f32(6, 2, 3, 3), bias], **grouped)
    add("FusedConv one axis", [f32(2, 4, 9), f32(6, 4, 3), bias], activation="Relu")
    pads = np.array([1, 1, 0, 1])
    transposed = {"strides": [2, 2]}
    inputs = [f32(1, 3, 4, 4), f32(3, 2, 3, 3), pads]
    add("ConvTransposeWithDynamicPads bias", [*inputs, f32(2)], **transposed)
    add("ConvTransposeWithDynamicPads padded", inputs, output_padding=[1, 0], **transposed)


def products():
    for trans_a, trans_b, batch_a, batch_b in itertools.product([0, 1], repeat=4):

        def shape(rows, columns, last, batch):
            lengths = (3, 5, columns, rows) if last else (3, 5, rows, columns)
            return (lengths[2], *lengths[:2], lengths[3]) if batch else lengths

        add(
            f"FusedMatMul {trans_a}{trans_b}{batch_a}{batch_b}",
            [f32(*shape(2, 4, trans_a, batch_a)), f32(*shape(4, 6, trans_b, batch_b))],
            transA=trans_a, transB=trans_b, transBatchA=batch_a, transBatchB=batch_b, alpha=0.7,
        )  # fmt: skip
    add("FusedMatMul vector", [f32(4), f32(3, 4, 2)], transA=1)
    add("FusedMatMul broadcast", [f32(2, 3, 4), f32(5, 4)], transB=1)
    add("FusedMatMul double", [RNG.random((2, 3)), RNG.random((3, 4))], tolerance=DOUBLE)
    add("TransposeMatMul turned", [f32(2, 4, 3), f32(2, 4, 5)], transA=1, alpha=0.5)
    alpha, beta, gamma = (
        {f"activation_{name}": value}
        for name, value in (("alpha", 0.3), ("beta", 0.4), ("gamma", 1.1))
    )
    activations = {
        "Relu": {}, "Tanh": {}, "Sigmoid": {}, "Softplus": {}, "Softsign": {}, "LeakyRelu": alpha,
        "Elu": alpha, "Celu": alpha, "ThresholdedRelu": alpha, "HardSigmoid": {**alpha, **beta},
        "Selu": {**alpha, **gamma},
    }  # fmt: skip
    for name, parameters in activations.items():
        add(
            f"FusedGemm {name}", [f32(3, 4), f32(5, 4), f32(5)], transB=1, alpha=0.5, beta=2.0,
            activation=name, **parameters,
        )  # fmt: skip
    add("FusedGemm without C", [f32(4, 3), f32(4, 5)], transA=1, activation="Relu")


# ---------------------------------------------------------------- rows


def rows():
    for name in ("Gelu", "QuickGelu", "FastGelu"):
        add(f"{name} wide", [f32(3, 50) * 4])
    add("QuickGelu slope", [f32(3, 8)], alpha=1.0)
    add("FastGelu bias", [f32(3, 8), f32(8)])
    add("BiasGelu bias", [f32(2, 3, 8), f32(8)])
    for dtype, tolerance in ((np.float32, {}), (np.float16, HALF)):

        def x(*shape, dtype=dtype):
            return f32(*shape).astype(dtype)

        kind = np.dtype(dtype).name
        summed = {"tolerance": tolerance, "model": {"outputs": ("y0", "", "", "sum")}}
        plain = {"tolerance": tolerance}
        name = "SkipLayerNormalization"
        whole = [x(2, 3, 8), x(2, 3, 8), x(8), x(8), x(8)]
        add(f"{name} {kind}", whole, epsilon=1e-5, **summed)
        add(f"{name} {kind} no beta", [x(2, 3, 8), x(2, 3, 8), x(8)], **plain)
        add(f"{name} {kind} one skip", [x(2, 3, 8), x(1, 3, 8), x(8), x(8)], **plain)
        add(f"{name} {kind} flat skip", [x(2, 3, 8), x(3, 8), x(8), x(8)], **summed)
        name = "SkipSimplifiedLayerNormalization"
        add(f"{name} {kind}", [x(2, 3, 8), x(2, 3, 8), x(8), x(8)], **summed)
        add(f"{name} {kind} tokens", [x(3, 8), x(3, 8), x(8)], epsilon=1e-6, **plain)
        standard = {"tolerance": tolerance, "model": {"domain": ""}}
        name = "SimplifiedLayerNormalization"
        add(f"{name} {kind}", [x(2, 3, 8), x(8)], **standard)
        standard["model"] = {"domain": "", "outputs": ("y0", "y1")}
        add(f"{name} {kind} axis", [x(2, 3, 8), x(3, 8)], axis=1, epsilon=0.1, **standard)


def embeddings():
    ids = RNG.integers(0, 10, (2, 5)).astype(np.int32)
    kinds = RNG.integers(0, 2, (2, 5)).astype(np.int32)
    words, places, segments, gamma, beta = f32(10, 8), f32(6, 8), f32(2, 8), f32(8), f32(8)
    whole = [ids, kinds, words, places, segments, gamma, beta]
    three = {"outputs": ("y0", "y1", "y2")}
    for name, mask in {
        "ends": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]],
        "gaps": [[1, 0, 1, 0, 0], [0, 1, 1, 1, 1]],
    }.items():
        add(f"EmbedLayerNormalization {name}", [*whole, np.array(mask, np.int32)], model=three)
    two = {"outputs": ("y0", "y1")}
    add("EmbedLayerNormalization no mask", whole, epsilon=1e-5, model=two)
    bare = [ids, None, words, places, None, gamma, beta]
    add("EmbedLayerNormalization words", bare, model={"outputs": ("y0", "", "sum")})
    positions = RNG.integers(0, 6, (2, 5)).astype(np.int32)
    add("EmbedLayerNormalization positions", [*bare, None, positions], model=two)
    add("EmbedLayerNormalization one row", [*bare, None, positions[:1]], model=two)


# ---------------------------------------------------------------- tensors


def tensors():
    for upper, k in itertools.product((0, 1), (None, np.array(1), np.array(-2))):
        add(f"Trilu {upper} {k}", [f32(2, 4, 5), k], upper=upper, tolerance=EXACT)
    for dtype in (np.int32, np.int64):
        places = RNG.integers(0, 2, (5, 2)).astype(dtype)
        add(f"GatherND {np.dtype(dtype)}", [f32(2, 3, 4), places], tolerance=EXACT)
    for mode, padding, align in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        add(
            f"GridSample {mode} {padding} {align}", [f32(1, 2, 5, 6), f32(1, 3, 4, 2)], mode=mode,
            padding_mode=padding, align_corners=align, tolerance={"atol": 1e-4},
        )  # fmt: skip
    add("Range floats", [np.array(value, np.float32) for value in (1, 9.5, 2)])
    add("Range default", [np.array(1), np.array(9)], tolerance=EXACT)
    add("Range down", [np.array([9]), np.array([1]), np.array([-3])], tolerance=EXACT)
    add("Range short", [np.array(1, np.int16), np.array(9, np.int16)], tolerance=EXACT)
    for mode in ("constant", "reflect", "edge"):
        add(f"Pad {mode}", [f32(3, 4), np.array([1, 0, 0, 2])], mode=mode)
    add("Pad matrix", [f32(3, 4), np.array([[1, 0, 0, 2]]), np.array([7], np.float32)])
    add("Pad negative", [f32(3, 4), np.array([-1, 1, 0, 2])])
    numbers = RNG.integers(0, 5, 20).astype(np.float32)
    add("Unique numbers", [numbers], model={"outputs": ("y0", "y1", "y2")}, tolerance=EXACT)
    for axis in (-1, 0, 1):
        add(f"ExpandDims {axis}", [f32(2, 3), np.array(axis, np.int32)], tolerance=EXACT)
    well = f32(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
    add("Inverse floats", [well])
    add("Inverse half", [well.astype(np.float16)], tolerance=HALF)
    add("Inverse double", [well.astype(np.float64)], tolerance=DOUBLE)
    for metric in ("euclidean", "sqeuclidean"):
        add(f"CDist {metric}", [f32(4, 3), f32(5, 3)], metric=metric)
        doubles = [RNG.random((4, 3)), RNG.random((5, 3))]
        add(f"CDist {metric} double", doubles, metric=metric, tolerance=DOUBLE)
    boxes = (RNG.random((6, 4)) * 1.4 - 0.2).astype(np.float32)
    for mode, size in itertools.product(("bilinear", "nearest"), ((3, 4), (1, 1), (5, 1))):
        add(
            f"CropAndResize {mode} {size}",
            [f32(2, 3, 7, 8), boxes, i32(0, 1, 0, 1, 1, 0), i32(*size)],
            mode=mode, extrapolation_value=0.5,
        )  # fmt: skip
    values = {
        "uint32": np.array([3, 5, 2**31], np.uint32),
        "int64": np.array([3, 5, -(2**40)], np.int64),
        "float32": f32(5),
        "float64": RNG.random(4),
        "string": np.array(["", "a", "abc", "abcd", "hello world", "\u00e9"], object),
    }
    for (kind, x), positive, seed in itertools.product(values.items(), (0, 1), (0, 42)):
        add(
            f"MurmurHash3 {kind} {positive} {seed}", [x], positive=positive, seed=seed,
            tolerance=EXACT,
        )  # fmt: skip


for build in (convolutions, products, rows, embeddings, tensors):
    build()


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_onnxruntime(name):
    CASES[name].check()
