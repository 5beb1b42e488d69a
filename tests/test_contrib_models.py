"""Models full of com.microsoft, as ONNX Runtime's optimiser and quantiser write them.

The networks have the shape of well-known ones and random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime_oracle import assert_same, reference_session

from ep_core import InferenceSession

Array = np.ndarray[Any, Any]
VOCABULARY, WIDTH, HEADS, HIDDEN, LENGTH = 50, 32, 4, 64, 8


class Builder:
    """Collects nodes and weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, values: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        values = self.rng.standard_normal(shape) * scale
        return self.constant(values.astype(np.float32))

    def __call__(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node; returns its first output, or all of them separated by blanks."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=name, **attributes))
        return " ".join(names)

    def fused(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        return self(op_type, *inputs, domain="com.microsoft", **attributes)

    def model(self, inputs: Sequence[onnx.ValueInfoProto], result: str) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], ["y"], name="last"))
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", inputs, [output], self.weights)
        imports = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


# ---------------------------------------------------------------- an encoder of sentences


def encoder(fused: bool) -> onnx.ModelProto:
    """Two layers in the operators of an exporter, or in those that an optimiser makes of them."""
    build = Builder(seed=31)
    element = TensorProto.INT32 if fused else TensorProto.INT64
    inputs = [
        helper.make_tensor_value_info(name, element, ["B", LENGTH])
        for name in ("ids", "kinds", "mask")
    ]
    return build.model(inputs, (_fused_encoder if fused else _plain_encoder)(build))


def _fused_encoder(build: Builder) -> str:
    tables = [build.weight(rows, WIDTH, scale=1) for rows in (VOCABULARY, 16, 2)]
    gamma, beta = build.weight(WIDTH), build.weight(WIDTH)
    x, counted = build.fused(
        "EmbedLayerNormalization", "ids", "kinds", *tables, gamma, beta, "mask", outputs=2
    ).split()
    for _ in range(2):
        weights = build.weight(WIDTH, 3 * WIDTH), build.weight(3 * WIDTH)
        mixed = build.fused("Attention", x, *weights, counted, num_heads=HEADS)
        for inner in (False, True):
            if inner:
                mixed = build("MatMul", x, build.weight(WIDTH, HIDDEN))
                mixed = build.fused("FastGelu", mixed, build.weight(HIDDEN))
            rows = HIDDEN if inner else WIDTH
            mixed = build("MatMul", mixed, build.weight(rows, WIDTH, scale=rows**-0.5))
            vectors = [build.weight(WIDTH) for _ in range(3)]
            x = build.fused("SkipLayerNormalization", mixed, x, *vectors, epsilon=1e-5)
    return x


def _plain_encoder(build: Builder) -> str:
    def normalized(x: str) -> str:
        centred = build("Sub", x, build("ReduceMean", x, axes=[-1]))
        square = build("Pow", centred, build.constant(np.float32(2)))
        variance = build("ReduceMean", square, axes=[-1])
        root = build("Sqrt", build("Add", variance, build.constant(np.float32(1e-5))))
        scaled = build("Mul", build("Div", centred, root), build.weight(WIDTH))
        return build("Add", scaled, build.weight(WIDTH))

    def linear(x: str, rows: int, columns: int) -> str:
        product = build("MatMul", x, build.weight(rows, columns, scale=rows**-0.5))
        return build("Add", product, build.weight(columns))

    def heads(x: str, order: list[int]) -> str:
        shape = build.constant(np.array([0, 0, HEADS, WIDTH // HEADS]))
        return build("Transpose", build("Reshape", linear(x, WIDTH, WIDTH), shape), perm=order)

    words = build("Gather", build.weight(VOCABULARY, WIDTH, scale=1), "ids")
    places = build("Gather", build.weight(16, WIDTH), build.constant(np.arange(LENGTH)[None]))
    kinds = build("Gather", build.weight(2, WIDTH), "kinds")
    x = normalized(build("Add", build("Add", words, places), kinds))
    mask = build("Unsqueeze", "mask", build.constant(np.array([1, 2])))
    open_keys = build("Cast", mask, to=TensorProto.FLOAT)
    closed = build("Sub", build.constant(np.float32(1)), open_keys)
    bias = build("Mul", closed, build.constant(np.float32(-10000)))
    for _ in range(2):
        query, value = heads(x, [0, 2, 1, 3]), heads(x, [0, 2, 1, 3])
        scores = build("MatMul", query, heads(x, [0, 2, 3, 1]))
        scores = build("Div", scores, build.constant(np.float32((WIDTH / HEADS) ** 0.5)))
        weights = build("Softmax", build("Add", scores, bias), axis=-1)
        mixed = build("Transpose", build("MatMul", weights, value), perm=[0, 2, 1, 3])
        mixed = build("Reshape", mixed, build.constant(np.array([0, 0, WIDTH])))
        x = normalized(build("Add", linear(mixed, WIDTH, WIDTH), x))
        inner = linear(x, WIDTH, HIDDEN)
        error = build("Erf", build("Div", inner, build.constant(np.float32(2**0.5))))
        gate = build("Add", error, build.constant(np.float32(1)))
        inner = build("Mul", build("Mul", inner, gate), build.constant(np.float32(0.5)))
        x = normalized(build("Add", linear(inner, HIDDEN, WIDTH), x))
    return x


def encoder_feeds(fused: bool, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    kind = np.int32 if fused else np.int64
    mask = np.ones((2, LENGTH), kind)
    mask[0, 5:] = 0
    return {
        "ids": rng.integers(0, VOCABULARY, (2, LENGTH)).astype(kind),
        "kinds": rng.integers(0, 2, (2, LENGTH)).astype(kind),
        "mask": mask,
    }


# ---------------------------------------------------------------- a residual network


def residual_network() -> onnx.ModelProto:
    build = Builder(seed=32)

    def conv(x: str, given: int, made: int, size: int = 3, stride: int = 1, group: int = 1) -> str:
        fan = given // group * size * size
        weight = build.weight(made, given // group, size, size, scale=(2 / fan) ** 0.5)
        attributes = {"pads": [size // 2] * 4, "strides": [stride, stride], "group": group}
        return build("Conv", x, weight, build.weight(made, scale=0.1), **attributes)

    x = build("Relu", conv("x", 3, 8))
    x = build("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inner = conv(build("Relu", conv(x, 8, 8)), 8, 8)
    x = build("Relu", build("Add", x, inner))
    inner = build("LeakyRelu", conv(x, 8, 16, stride=2), alpha=0.1)
    x = build("Add", conv(x, 8, 16, size=1, stride=2), conv(inner, 16, 16, group=16))
    gate = build("Sigmoid", conv(build("GlobalAveragePool", x), 16, 16, size=1))
    x = build("Mul", x, gate)
    blurred = build("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4)
    x = build("Flatten", build("GlobalAveragePool", build("Concat", x, blurred, axis=1)))
    x = build("Gemm", x, build.weight(10, 32), build.weight(10), transB=1)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 32, 32])]
    return build.model(inputs, build("Softmax", x, axis=-1))


def picture(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((2, 3, 32, 32)).astype(np.float32)}


class Pictures(CalibrationDataReader):
    """Four batches to calibrate with."""

    def __init__(self) -> None:
        self._rest = [picture(seed) for seed in range(4)]

    def get_next(self) -> dict[str, Array] | None:
        return self._rest.pop() if self._rest else None


# ---------------------------------------------------------------- what is written, and compared


def optimized(source: Path, target: Path) -> Path:
    """Let ONNX Runtime fuse what it can, and write that down."""
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return target


def fused_operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node if node.domain == "com.microsoft"}


def quantized(source: Path, target: Path) -> Path:
    extra = {"DefaultTensorType": TensorProto.FLOAT}
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, extra_options=extra)
    return target


@pytest.mark.parametrize("quantize", [False, True])
def test_encoder_as_the_optimiser_writes_it(tmp_path, quantize):
    source = tmp_path / "plain.onnx"
    onnx.save(encoder(fused=False), source)
    if quantize:
        source = quantized(source, tmp_path / "quantised.onnx")
    path = optimized(source, tmp_path / "fused.onnx")
    expected = {"SkipLayerNormalization", "FusedMatMul"}
    if quantize:
        expected = {"SkipLayerNormalization", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"}
    assert expected <= fused_operators(path)
    assert_same(str(path), encoder_feeds(fused=False))


@pytest.mark.parametrize("quantize", [False, True])
def test_encoder_in_fused_operators(tmp_path, quantize):
    path = tmp_path / "fused.onnx"
    onnx.save(encoder(fused=True), path)
    if quantize:
        path = quantized(path, tmp_path / "quantised.onnx")
        assert {"QAttention", "QEmbedLayerNormalization"} <= fused_operators(path)
    assert_same(str(path), encoder_feeds(fused=True))


@pytest.mark.parametrize("kind", [QuantType.QUInt8, QuantType.QInt8])
@pytest.mark.parametrize("per_channel", [False, True])
def test_residual_network_in_quantised_operators(tmp_path, kind, per_channel):
    source, path = tmp_path / "plain.onnx", tmp_path / "quantised.onnx"
    onnx.save(residual_network(), source)
    quantize_static(
        source, path, Pictures(), quant_format=QuantFormat.QOperator, activation_type=kind,
        weight_type=QuantType.QInt8, per_channel=per_channel,
    )  # fmt: skip
    assert {
        "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat",
        "QLinearAveragePool", "QLinearGlobalAveragePool", "QGemm", "QLinearSoftmax",
    } == fused_operators(path)  # fmt: skip
    # One step of the last scale, 1/256: a code may be the other neighbour of a half.
    assert_same(str(path), picture(77), atol=0.004)


# ---------------------------------------------------------------- a decoder with its cache


def decoder() -> onnx.ModelProto:
    """Two layers as language models with 4-bit weights have them; caches go in and out."""
    build = Builder(seed=33)
    heads, key_heads, size, width = 4, 2, 16, 64
    angles = np.outer(np.arange(32), 10000.0 ** -(np.arange(8) / 8)).astype(np.float32)
    cos, sin = build.constant(np.cos(angles)), build.constant(np.sin(angles))

    def product(x: str, rows: int, columns: int) -> str:
        codes = build.rng.integers(0, 256, (columns, rows // 16, 8), dtype=np.uint8)
        scales = np.full((columns, rows // 16), 0.2 * rows**-0.5, np.float32)
        attributes = {"K": rows, "N": columns, "bits": 4, "block_size": 16}
        inputs = build.constant(codes), build.constant(scales)
        return build.fused("MatMulNBits", x, *inputs, **attributes)

    codes = build.constant(build.rng.integers(0, 256, (50, width // 2), dtype=np.uint8))
    scales = build.constant(np.full((50, width // 16), 0.2, np.float32))
    x = build.fused("GatherBlockQuantized", codes, "ids", scales, bits=4, block_size=16)
    normal = build("SimplifiedLayerNormalization", x, build.weight(width), epsilon=1e-6)
    caches = []
    for layer in range(2):
        packed = product(normal, width, (heads + 2 * key_heads) * size)
        found = build.fused(
            "GroupQueryAttention", packed, "", "", f"key{layer}", f"value{layer}", "lengths",
            "longest", cos, sin, outputs=3, num_heads=heads, kv_num_heads=key_heads, do_rotary=1,
        )  # fmt: skip
        mixed, *cache = found.split()
        caches += cache
        for inner in (False, True):
            if inner:
                gate, up = product(normal, width, 128), product(normal, width, 128)
                mixed = build("Mul", build.fused("QuickGelu", gate, alpha=1.0), up)
            mixed = product(mixed, 128 if inner else width, width)
            normal, mean, inverse, x = build.fused(
                "SkipSimplifiedLayerNormalization", x, mixed, build.weight(width), outputs=4
            ).split()
            kept = ["" if name in (mean, inverse) else name for name in build.nodes[-1].output]
            build.nodes[-1].output[:] = kept
    integer = TensorProto.INT32
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["B", "S"]),
        helper.make_tensor_value_info("lengths", integer, ["B"]),
        helper.make_tensor_value_info("longest", integer, [1]),
    ]
    inputs += [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", key_heads, "P", size])
        for name in ("key0", "value0", "key1", "value1")
    ]
    model = build.model(inputs, product(normal, width, 50))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in caches)
    return model


def test_decoder_writes_the_same_words_as_onnxruntime():
    model = decoder()
    with InferenceSession(model, providers=["cpu"]) as session:
        ours = _generate(session.run)
    theirs = _generate(reference_session(model).run)
    for mine, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, their, rtol=1e-3, atol=1e-4)


def _generate(run: Callable[..., list[Array]]) -> list[Array]:
    """Scores of a prompt and of six greedy steps behind it."""
    ids = np.array([[3, 14, 15, 9, 2]])
    cache = [np.zeros((1, 2, 0, 16), np.float32)] * 4
    total, scores = 0, []
    for _ in range(7):
        total += ids.shape[1]
        names = ("key0", "value0", "key1", "value1")
        feeds = {"ids": ids, "lengths": np.array([total - 1], np.int32)}
        feeds["longest"] = np.array([total], np.int32)
        found, *cache = run(None, {**feeds, **dict(zip(names, cache, strict=True))})
        scores.append(found)
        ids = found[:, -1:].argmax(axis=-1)
    return scores
