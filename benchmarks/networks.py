"""Networks of known forms with random weights: what a runtime takes for them, not what they say.

ResNet-50 (He et al. 2015, version 1.5 with the stride in the 3x3 convolutions), MobileNetV2
(Sandler et al. 2018), the encoder of
BERT-base (Devlin et al. 2018) and a small multilayer perceptron, written as ONNX opset 17.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = [
    "Array",
    "bert_base",
    "digits",
    "lstm",
    "minilm",
    "mobilenet_v2",
    "perceptron",
    "resnet50",
]

Array = np.ndarray[Any, Any]


class _Writer:
    """Collects nodes and weights; every method returns the name of a result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def node(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def constant(self, value: Array) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def random(self, *shape: int) -> str:
        """Weights of variance 2 / (values that are summed), so that sizes stay the same."""
        summed = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        scale = np.sqrt(2 / summed)
        return self.constant((self._random.standard_normal(shape) * scale).astype(np.float32))

    def small(self, *shape: int) -> str:
        return self.constant((self._random.standard_normal(shape) * 0.02).astype(np.float32))

    def ones(self, *shape: int) -> str:
        return self.constant(np.ones(shape, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def convolution(
        self, x: str, ins: int, outs: int, side: int, stride: int = 1, group: int = 1
    ) -> str:
        inputs = [x, self.random(outs, ins // group, side, side), self.small(outs)]
        edge = side // 2
        return self.node("Conv", inputs, strides=[stride] * 2, pads=[edge] * 4, group=group)

    def dense(self, x: str, ins: int, outs: int) -> str:
        return self.node("Add", [self.node("MatMul", [x, self.small(ins, outs)]), self.small(outs)])

    def normalised(self, x: str, width: int) -> str:
        inputs = [x, self.ones(width), self.small(width)]
        return self.node("LayerNormalization", inputs, axis=-1, epsilon=1e-12)

    def model(self, name: str, inputs: Sequence[Any], output: str, shape: Sequence[int]) -> bytes:
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, name, inputs, [result], self.weights)
        opsets = [helper.make_opsetid("", 17)]
        model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return bytes(model.SerializeToString())


def resnet50(*, halves_sums: bool = True) -> tuple[bytes, dict[str, Array]]:
    """Return the model and a feed of one picture of 224 by 224 points.

    Args:
        halves_sums: nothing normalises, so sums of two would grow from block to block.
    """
    net = _Writer()
    x = net.node("Relu", [net.convolution("x", 3, 64, 7, 2)])
    x = net.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    ins = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = net.node("Relu", [net.convolution(x, ins, width, 1)])
            y = net.node("Relu", [net.convolution(y, width, width, 3, stride)])
            y = net.convolution(y, width, 4 * width, 1)
            if not block:
                x = net.convolution(x, ins, 4 * width, 1, stride)
            ins = 4 * width
            x = net.node("Add", [x, y])
            if halves_sums:
                x = net.node("Mul", [x, net.constant(np.array(0.5, np.float32))])
            x = net.node("Relu", [x])
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    y = net.dense(x, 2048, 1000)
    picture = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 224, 224])
    feed = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    return net.model("resnet50", [picture], y, [1, 1000]), {"x": feed}


def mobilenet_v2() -> tuple[bytes, dict[str, Array]]:
    """Return the model and a feed of one picture of 224 by 224 points."""
    net = _Writer()
    bounds = [net.constant(np.array(bound, np.float32)) for bound in (0, 6)]
    x = net.node("Clip", [net.convolution("x", 3, 32, 3, 2), *bounds])
    ins = 32
    # Expansion, channels, blocks, and the stride of the first of them.
    for factor, width, blocks, first_stride in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        for block in range(blocks):
            stride = 1 if block else first_stride
            wide = factor * ins
            y = x
            if factor > 1:
                y = net.node("Clip", [net.convolution(y, ins, wide, 1), *bounds])
            y = net.node("Clip", [net.convolution(y, wide, wide, 3, stride, wide), *bounds])
            y = net.convolution(y, wide, width, 1)
            x = net.node("Add", [x, y]) if block else y
            ins = width
    x = net.node("Clip", [net.convolution(x, ins, 1280, 1), *bounds])
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    y = net.dense(x, 1280, 1000)
    picture = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 224, 224])
    feed = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    return net.model("mobilenet_v2", [picture], y, [1, 1000]), {"x": feed}


def bert_base(length: int = 128) -> tuple[bytes, dict[str, Array]]:
    """Return the encoder and a feed of one sentence of `length` words."""
    return _encoder("bert_base", length, width=768, heads=12, layers=12)


def minilm(length: int = 128) -> tuple[bytes, dict[str, Array]]:
    """Return a small encoder (Wang et al. 2020: 6 layers of 384) and a feed of `length` words."""
    return _encoder("minilm", length, width=384, heads=12, layers=6)


def _encoder(
    name: str, length: int, *, width: int, heads: int, layers: int, words: int = 30522
) -> tuple[bytes, dict[str, Array]]:
    net = _Writer()
    x = net.node("Gather", [net.small(words, width), "ids"])
    x = net.normalised(net.node("Add", [x, net.small(1, length, width)]), width)
    split = net.integers(1, length, heads, width // heads)
    joined = net.integers(1, length, width)
    scale = net.constant(np.array(1 / np.sqrt(width // heads), np.float32))
    for _ in range(layers):
        q, k, v = (net.node("Reshape", [net.dense(x, width, width), split]) for _ in range(3))
        q, v = (net.node("Transpose", [part], perm=[0, 2, 1, 3]) for part in (q, v))
        k = net.node("Transpose", [k], perm=[0, 2, 3, 1])
        scores = net.node("Mul", [net.node("MatMul", [q, k]), scale])
        y = net.node("MatMul", [net.node("Softmax", [scores], axis=-1), v])
        y = net.node("Reshape", [net.node("Transpose", [y], perm=[0, 2, 1, 3]), joined])
        x = net.normalised(net.node("Add", [x, net.dense(y, width, width)]), width)
        y = _gelu(net, net.dense(x, width, 4 * width))
        x = net.normalised(net.node("Add", [x, net.dense(y, 4 * width, width)]), width)
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, length])
    feed = np.random.default_rng(1).integers(0, words, (1, length))
    return net.model(name, [ids], x, [1, length, width]), {"ids": feed}


def _gelu(net: _Writer, x: str) -> str:
    """Half of x (1 + erf(x / sqrt 2)), in the nodes that exporters write."""
    root = net.constant(np.array(np.sqrt(2), np.float32))
    one, half = (net.constant(np.array(value, np.float32)) for value in (1, 0.5))
    y = net.node("Add", [net.node("Erf", [net.node("Div", [x, root])]), one])
    return net.node("Mul", [net.node("Mul", [x, y]), half])


def digits(pictures: int = 1) -> tuple[bytes, dict[str, Array]]:
    """Return a perceptron of 784, 256 and 10 values, and a feed of some pictures of digits."""
    net = _Writer()
    x = net.node("Relu", [net.dense("x", 784, 256)])
    y = net.dense(x, 256, 10)
    feed = np.random.default_rng(1).standard_normal((pictures, 784)).astype(np.float32)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [pictures, 784])
    return net.model("digits", [info], y, [pictures, 10]), {"x": feed}


def lstm(steps: int = 50) -> tuple[bytes, dict[str, Array]]:
    """Return an LSTM of 64 values and 128 states, and a feed of one sequence."""
    net = _Writer()
    weights = [net.small(1, 512, 64), net.small(1, 512, 128), net.small(1, 1024)]
    y = net.node("LSTM", ["x", *weights], hidden_size=128)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 1, 64])
    feed = np.random.default_rng(1).standard_normal((steps, 1, 64)).astype(np.float32)
    return net.model("lstm", [info], y, [steps, 1, 1, 128]), {"x": feed}


def perceptron() -> tuple[bytes, dict[str, Array]]:
    """Return a net of 16, 16 and 4 values, and a feed; it is over before anything else begins."""
    net = _Writer()
    x = net.node("Relu", [net.dense("x", 16, 16)])
    y = net.dense(x, 16, 4)
    feed = np.random.default_rng(1).standard_normal((1, 16)).astype(np.float32)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])
    return net.model("perceptron", [info], y, [1, 4]), {"x": feed}
