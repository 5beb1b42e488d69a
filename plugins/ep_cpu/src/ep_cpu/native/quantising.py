"""Operators on 8-bit integers: to and from float32, and exact products.

Products take the inputs in the order of `native/operations/integers.h`; `INPUTS` are as many as go
before a chain's operands.
"""

from __future__ import annotations

import numpy as np

from ep_core.types import DataType, TensorType
from ep_cpu.native.steps import NativeStep, shape_of
from ep_cpu.native.table import Answer, operator, rank_of
from ep_cpu.native.windows import window_of
from ep_sdk.kernels import KernelNode

__all__ = ["BYTES", "INPUTS", "weights_view"]

BYTES = frozenset((DataType.UINT8, DataType.INT8))
INPUTS = 9
_FLOAT = int(DataType.FLOAT.value)
_INT32 = int(DataType.INT32.value)
_NOT_BYTES = "only 8-bit integers are multiplied"


def _input(node: KernelNode, index: int) -> str:
    return node.node.inputs[index] if node.has_input(index) else ""


def _output_type(node: KernelNode) -> DataType | None:
    kind = node.output_types[0]
    return kind.dtype if isinstance(kind, TensorType) else None


def _product(node: KernelNode, kind: str, inputs: tuple[str, ...], **attributes: object) -> Answer:
    padded = inputs + ("",) * (INPUTS - len(inputs))
    return NativeStep(kind, padded, node.node.outputs, attributes, (node.node,))


# ---------------------------------------------------------------- to 8 bits and back


@operator("QuantizeLinear")
def _quantize(node: KernelNode) -> Answer:
    to = _output_type(node)
    if node.input_dtype(0) is not DataType.FLOAT or to not in BYTES:
        return "not from float32 to 8 bits"
    if node.input_dtype(1) is not DataType.FLOAT or node.attr("block_size", 0):
        return "other scales than float32, or blocks"
    if node.attr("precision", 0) not in (0, _FLOAT):
        return "another precision"
    inputs = tuple(_input(node, index) for index in range(3))
    attributes = {"axis": int(node.attr("axis", 1)), "to": int(to.value)}
    return NativeStep("quantise", inputs, node.node.outputs, attributes, (node.node,))


@operator("DequantizeLinear")
def _dequantize(node: KernelNode) -> Answer:
    if node.input_dtype(0) not in (*BYTES, DataType.INT32):
        return "not from 8 or 32 bits"
    if node.input_dtype(1) is not DataType.FLOAT or node.attr("block_size", 0):
        return "other scales than float32, or blocks"
    if _output_type(node) is not DataType.FLOAT:
        return "not to float32"
    inputs = tuple(_input(node, index) for index in range(3))
    attributes = {"axis": int(node.attr("axis", 1))}
    return NativeStep("dequantise", inputs, node.node.outputs, attributes, (node.node,))


@operator("DynamicQuantizeLinear")
def _dynamic_quantize(node: KernelNode) -> Answer:
    if "" in node.node.outputs or len(node.node.outputs) != 3:
        return "an output that is left out"
    return NativeStep("dynamic_quantise", node.node.inputs, node.node.outputs, {}, (node.node,))


# ---------------------------------------------------------------- matrices


def _is_matrix(node: KernelNode, index: int) -> bool:
    weights = node.constants[index]
    return weights is not None and weights.ndim == 2 and 0 not in weights.shape


@operator("MatMulInteger")
def _matmul_integer(node: KernelNode) -> Answer:
    if not {node.input_dtype(0), node.input_dtype(1)} <= BYTES or rank_of(node, 0) == 0:
        return _NOT_BYTES
    if not _is_matrix(node, 1):
        return "weights that aren't a constant matrix"
    inputs = (_input(node, 0), _input(node, 1), "", _input(node, 2), _input(node, 3))
    return _product(node, "integer_matmul", inputs, to=_INT32)


@operator("QLinearMatMul")
def _qlinear_matmul(node: KernelNode) -> Answer:
    to = node.input_dtype(7)
    if not {node.input_dtype(0), node.input_dtype(3), to} <= BYTES or rank_of(node, 0) == 0:
        return _NOT_BYTES
    if not _is_matrix(node, 3):
        return "weights that aren't a constant matrix"
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = node.node.inputs
    inputs = (a, b, "", a_zero, b_zero, a_scale, b_scale, scale, zero)
    assert to is not None
    return _product(node, "integer_matmul", inputs, to=int(to.value))


# ---------------------------------------------------------------- convolutions


def _window(node: KernelNode, index: int) -> dict[str, list[int]] | str:
    """Attributes of the window of weights at `index`, or why it can't be native."""
    weights = node.constants[index]
    shape = shape_of(node.input_types[0])
    if weights is None or weights.ndim not in (3, 4) or 0 in weights.shape:
        return "weights that aren't constant, or of another rank"
    if int(node.attr("group", 1)) != 1:
        return "groups"
    if shape is None or len(shape) != weights.ndim or shape[1] != weights.shape[1]:
        return "an unknown number of channels"
    kernel = [int(size) for size in weights.shape[2:]]
    if [int(size) for size in node.attr("kernel_shape", kernel)] != kernel:
        return "a kernel_shape that isn't the weights'"
    return window_of(node, kernel, weights.ndim - 2)


@operator("ConvInteger")
def _conv_integer(node: KernelNode) -> Answer:
    if not {node.input_dtype(0), node.input_dtype(1)} <= BYTES:
        return _NOT_BYTES
    window = _window(node, 1)
    if isinstance(window, str):
        return window
    inputs = (_input(node, 0), _input(node, 1), "", _input(node, 2), _input(node, 3))
    return _product(node, "integer_conv", inputs, to=_INT32, **window)


@operator("QLinearConv")
def _qlinear_conv(node: KernelNode) -> Answer:
    to = node.input_dtype(7)
    if not {node.input_dtype(0), node.input_dtype(3), to} <= BYTES:
        return _NOT_BYTES
    window = _window(node, 3)
    if isinstance(window, str):
        return window
    x, x_scale, x_zero, weights, w_scale, w_zero, scale, zero = node.node.inputs[:8]
    inputs = (x, weights, _input(node, 8), x_zero, w_zero, x_scale, w_scale, scale, zero)
    assert to is not None
    return _product(node, "integer_conv", inputs, to=int(to.value), **window)


def weights_view(shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Stands for constant weights whose values aren't looked at; takes no memory."""
    return np.broadcast_to(np.float32(0), shape)
