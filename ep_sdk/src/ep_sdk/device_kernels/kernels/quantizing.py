"""QuantizeLinear, DequantizeLinear and the QLinear operators.

The first two are elementwise and part of chains; the products quantise in their tail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.convolution import Shifts
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.expression import Align, Expression, Operation
from ep_sdk.device_kernels.kernels.convolutions import ConvolutionKernel, given_buffers
from ep_sdk.device_kernels.kernels.elementwise import ElementwiseKernel, dtype_of, elementwise_row
from ep_sdk.device_kernels.kernels.products import (
    shifted_weight,
    zero_point_arguments,
    zero_point_tail,
)
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.device_kernels.multiplier import Multiplier
from ep_sdk.device_kernels.product import Product, Tail
from ep_sdk.device_kernels.windows import spatial_rank
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape

__all__: list[str] = []

_BYTES = frozenset({DataType.INT8, DataType.UINT8})
_QUANTIZED = _BYTES | {DataType.INT16, DataType.UINT16}
_REAL = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})
_LIMITS = {
    DataType.INT8: (-128, 127),
    DataType.UINT8: (0, 255),
    DataType.INT16: (-32768, 32767),
    DataType.UINT16: (0, 65535),
}


def _along(named: int) -> Align:
    """A vector along one axis of the first operand, or one number for all."""

    def align(shape: Shape, operands: Sequence[Shape]) -> Shape:
        if math.prod(shape) == 1:
            return ()
        rank = len(operands[0])
        return (*shape, *(1 for _ in range(rank - 1 - named % rank)))

    return align


def _not_blocked(node: KernelNode) -> str | None:
    if node.attr("block_size", 0):
        return "scales for blocks of an axis"
    kind = getattr(node.input_types[1], "shape", None)
    if kind is None or len(kind) > 1:
        return "the scale isn't known to be one number or a vector"
    return None


def _quantized_type(node: KernelNode) -> DataType | None:
    if node.has_input(2):
        return node.input_dtype(2)
    named = node.attr("output_dtype", 0)
    return DataType(named) if named else DataType.UINT8


def _quantize_predicate(node: KernelNode) -> str | None:
    target = _quantized_type(node)
    if target not in _QUANTIZED:
        return f"quantises to {'an unknown type' if target is None else target.text}"
    if node.attr("precision", 0) not in (0, DataType.FLOAT):
        return "precision of the division"
    if node.input_dtype(0) is not node.input_dtype(1) or node.input_dtype(0) is not DataType.FLOAT:
        return "data or scale that aren't float"
    return _not_blocked(node)


@elementwise_row("QuantizeLinear", since=10, types={0: _REAL}, predicate=_quantize_predicate)
def _quantize(node: KernelNode) -> Kernel:
    """Rounds half to even and saturates."""
    target = _quantized_type(node)
    assert target is not None
    low, high = _LIMITS[target]
    text = "rint({0} / {1})"
    if node.has_input(2):
        text += " + (float){2}"
    # A NaN has no right answer; it must not leave the range all the same.
    text = f"convert_int_sat(clamp({text}, {low}.0f, {high}.0f))"
    return _scaled(node, text, target)


@elementwise_row(
    "DequantizeLinear",
    since=10,
    types={0: _QUANTIZED | {DataType.INT32}, 1: _REAL},
    predicate=_not_blocked,
)
def _dequantize(node: KernelNode) -> Kernel:
    text = "((int){0} - (int){2}) * {1}" if node.has_input(2) else "(int){0} * {1}"
    named = node.attr("output_dtype", 0)
    return _scaled(node, f"({text})", DataType(named) if named else dtype_of(node, 1))


def _scaled(node: KernelNode, text: str, result: DataType) -> Kernel:
    count = 3 if node.has_input(2) else 2
    align = _along(node.attr("axis", 1))
    operation = Operation(text, tuple(range(count)), result, (None, *([align] * (count - 1))))
    kinds = tuple(dtype_of(node, number) for number in range(count))
    return ElementwiseKernel(Bench(node), Expression(kinds, (operation,)), range(count))


# ---------------------------------------------------------------- products


def _requantizing(column: str, weight_scale: int, codes: dict[str, str], target: DataType) -> Tail:
    """The tail of a product of bytes: sum times scales, rounded, plus the zero point.

    Args:
        column: what number of the weight's scale belongs to an element.
        weight_scale: unused where there is one scale.
        codes: of the types of `a_scale`, `b_scale`, `y_scale` and `y_zero`.
        target: element type of the result.
    """
    low, high = _LIMITS[target]
    scale = (
        f"LOAD({codes['a_scale']}, a_scale, 0) * "
        f"LOAD({codes['b_scale']}, b_scale, ({column}) * b_scale_step) / "
        f"LOAD({codes['y_scale']}, y_scale, 0)"
    )
    text = (
        f"convert_int_sat(clamp(rint((float)(value) * ({scale})) + "
        f"(float)LOAD({codes['y_zero']}, y_zero, 0), {low}.0f, {high}.0f))"
    )
    parameters = "".join(
        f", __global const STORED({codes[name]}) *restrict {name}"
        for name in ("a_scale", "b_scale", "y_scale", "y_zero")
    )
    return Tail(text, f"{parameters}, const long b_scale_step")


def _scale_arguments(
    a_scale: DeviceBuffer, b_scale: DeviceBuffer, y_scale: DeviceBuffer, y_zero: DeviceBuffer
) -> tuple[Any, ...]:
    step = np.int64(1 if math.prod(b_scale.shape) > 1 else 0)
    return (a_scale.handle, b_scale.handle, y_scale.handle, y_zero.handle, step)


def _single_scales(*positions: int) -> Any:
    """A predicate: these inputs are one number."""

    def predicate(node: KernelNode) -> str | None:
        for position in positions:
            shape = getattr(node.input_types[position], "static_shape", None)
            if shape is None or math.prod(shape) != 1:
                return f"input {node.node.inputs[position]!r} isn't known to be one number"
        return None

    return predicate


_MATMUL_TYPES: dict[str | int, frozenset[DataType]] = {
    0: _BYTES,
    3: _BYTES,
    7: _BYTES,
    1: _REAL,
    4: _REAL,
    6: _REAL,
}


@TABLE.kernel(
    "QLinearMatMul",
    since=10,
    types=_MATMUL_TYPES,
    writes_out=True,
    predicate=_single_scales(1, 2, 4, 5, 6, 7),
)
def _qlinear_matmul(node: KernelNode) -> Kernel:
    bench = Bench(node)
    a_type, b_type, y_type = (dtype_of(node, number) for number in (0, 3, 7))
    codes = _codes(node, {"a_scale": 1, "b_scale": 4, "y_scale": 6, "y_zero": 7})
    shifts = zero_point_tail(a_type, b_type)
    scaling = _requantizing("0", 0, codes, y_type)
    tail = Tail(
        scaling.text,
        shifts.parameters + scaling.parameters,
        shifts.a_shift,
        shifts.b_shift,
        shifts.pack_parameters,
    )
    product = Product(bench, a_type, b_type, y_type, DataType.INT32, tail)
    multiply = Multiplier(bench, product, weight=shifted_weight(node, 3, 5))

    def matmul(
        stream: DeviceStream,
        a: DeviceBuffer,
        a_scale: DeviceBuffer,
        a_zero: DeviceBuffer,
        b: DeviceBuffer,
        b_scale: DeviceBuffer,
        b_zero: DeviceBuffer,
        y_scale: DeviceBuffer,
        y_zero: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        of_a, of_b = zero_point_arguments(a_zero), zero_point_arguments(b_zero)
        scales = _scale_arguments(a_scale, b_scale, y_scale, y_zero)
        return multiply(stream, a, b, y_type, out, (*of_a, *of_b, *scales), of_b)

    return matmul


def _codes(node: KernelNode, positions: dict[str, int]) -> dict[str, str]:
    return {name: ELEMENTS[dtype_of(node, at)].code for name, at in positions.items()}


def _qconv_predicate(node: KernelNode) -> str | None:
    return spatial_rank(node) or _single_scales(1, 2, 6, 7)(node)


@TABLE.kernel(
    "QLinearConv",
    since=10,
    types={0: _BYTES, 3: _BYTES, 7: _BYTES},
    writes_out=True,
    predicate=_qconv_predicate,
)
def _qlinear_conv(node: KernelNode) -> Kernel:
    """Scales and zero points of the weights may be one for each output channel."""
    x_type, w_type, y_type = (dtype_of(node, number) for number in (0, 3, 7))
    codes = _codes(node, {"a_scale": 1, "b_scale": 4, "y_scale": 6, "y_zero": 7})
    tail = _requantizing("CHANNEL", 1, codes, y_type)
    if node.has_input(8):
        tail = Tail(
            tail.text.replace("(value)", "(value + bias[CHANNEL])"),
            f"{tail.parameters}, __global const int *restrict bias",
        )
    x_code, w_code = ELEMENTS[x_type].code, ELEMENTS[w_type].code
    shifts = Shifts(
        f"- (int)LOAD({x_code}, x_zero, 0)",
        f"- (int)LOAD({w_code}, w_zero, CHANNEL * w_zero_step)",
        f", __global const STORED({x_code}) *restrict x_zero"
        f", __global const STORED({w_code}) *restrict w_zero, const int w_zero_step",
    )

    def arguments_of(
        inputs: Sequence[DeviceBuffer | None],
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        given = [item for item in inputs if item is not None]
        _, x_scale, x_zero, _, w_scale, w_zero, y_scale, y_zero, *bias = given
        step = np.int32(math.prod(w_zero.shape) > 1)
        scales = _scale_arguments(x_scale, w_scale, y_scale, y_zero)
        return (*scales, *given_buffers(bias)), (x_zero.handle, w_zero.handle, step)

    types = (x_type, w_type, y_type, DataType.INT32)
    return ConvolutionKernel(node, types, tail, shifts, arguments_of, weight=3)
