"""Operators on codes and a few others, in standard operators; see `compositions`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contrib_cases.compositions import Build, rule
from ep_core.types import DataType

__all__: list[str] = []


def _floats(b: Build, place: int) -> str:
    """The float values of codes that stand at a place, with scale and zero point behind them."""
    inputs = [b.input(place), b.input(place + 1), b.input(place + 2)]
    return b("DequantizeLinear", *[name for name in inputs if name])


def _codes(b: Build, value: str, place: int) -> str:
    """A float value in codes, whose scale and zero point stand at a place."""
    zero = b.input(place + 1)
    if zero:
        return b("QuantizeLinear", value, b.input(place), zero)
    first = b.question.inputs[0]
    assert first is not None
    return b("QuantizeLinear", value, b.input(place), b.constant(0, first.dtype))


@rule("QLinearAdd QLinearMul")
def _binary(b: Build) -> Sequence[str]:
    op_type = b.question.op_type.removeprefix("QLinear")
    return [_codes(b, b(op_type, _floats(b, 0), _floats(b, 3)), 6)]


@rule("QLinearSigmoid")
def _sigmoid(b: Build) -> Sequence[str]:
    return [_codes(b, b("Sigmoid", _floats(b, 0)), 3)]


@rule("QLinearLeakyRelu")
def _leaky_relu(b: Build) -> Sequence[str]:
    return [_codes(b, b("LeakyRelu", _floats(b, 0), alpha=b.attr("alpha", 0.01)), 3)]


@rule("QLinearReduceMean")
def _reduce_mean(b: Build) -> Sequence[str]:
    axes = b.constant(b.attr("axes", []), np.int64)
    mean = b("ReduceMean", _floats(b, 0), axes, keepdims=b.attr("keepdims", 1))
    return [_codes(b, mean, 3)]


@rule("QLinearWhere")
def _where(b: Build) -> Sequence[str]:
    return [_codes(b, b("Where", b.input(0), _floats(b, 1), _floats(b, 4)), 7)]


@rule("QLinearConcat")
def _concat(b: Build) -> Sequence[str]:
    count = (len(b.question.inputs) - 2) // 3
    parts = [_floats(b, 2 + 3 * part) for part in range(count)]
    whole = b("Concat", *parts, axis=b.attr("axis", 0))
    return [b("QuantizeLinear", whole, b.input(0), b.input(1))]


@rule("QLinearGlobalAveragePool")
def _global_average_pool(b: Build) -> Sequence[str]:
    axes = b.constant([1, 2] if b.attr("channels_last", 0) else [2, 3], np.int64)
    return [_codes(b, b("ReduceMean", _floats(b, 0), axes), 3)]


@rule("MatMulIntegerToFloat")
def _matmul_integer_to_float(b: Build) -> Sequence[str]:
    left = _floats_with(b, 0, 2, 4, axis=None)
    right = _floats_with(b, 1, 3, 5, axis=1)
    return [b.sum(b("MatMul", left, right), b.input(6))]


def _floats_with(b: Build, codes: int, scale: int, zero: int, axis: int | None) -> str:
    inputs = [name for name in (b.input(codes), b.input(scale), b.input(zero)) if name]
    per_column = axis is not None and b.shape(scale) != ()
    return b("DequantizeLinear", *inputs, **({"axis": axis} if per_column else {}))


@rule("QuantizeLinear DequantizeLinear")
def _conversion(b: Build) -> Sequence[str]:
    inputs = [name for name in (b.input(0), b.input(1), b.input(2)) if name]
    return [b(b.question.op_type, *inputs, **b.question.attributes)]


@rule("Trilu GatherND")
def _as_standard(b: Build) -> Sequence[str]:
    inputs: list[str] = [b.input(place) for place in range(len(b.question.inputs))]
    if b.question.op_type == "GatherND":
        inputs[1] = b("Cast", inputs[1], to=int(DataType.INT64))
    return [b(b.question.op_type, *inputs, **b.question.attributes)]


@rule("CDist")
def _distances(b: Build) -> Sequence[str]:
    rows, columns = (b.constant([axis], np.int64) for axis in (1, 0))
    gaps = b("Sub", b("Unsqueeze", b.input(0), rows), b("Unsqueeze", b.input(1), columns))
    squares = b("ReduceSum", b("Mul", gaps, gaps), b.constant([2], np.int64), keepdims=0)
    return [b("Sqrt", squares) if b.attr("metric", "sqeuclidean") == "euclidean" else squares]


@rule("ExpandDims")
def _expand_dims(b: Build) -> Sequence[str]:
    axis = b("Reshape", b("Cast", b.input(1), to=int(DataType.INT64)), b.constant([1], np.int64))
    return [b("Unsqueeze", b.input(0), axis)]


@rule("GridSample")
def _grid_sample(b: Build) -> Sequence[str]:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(b.attr("mode", ""), "nearest")
    given = {**b.question.attributes, "mode": mode}
    return [b("GridSample", b.input(0), b.input(1), **given)]


@rule("QLinearSoftmax")
def _softmax(b: Build) -> Sequence[str]:
    """Before opset 13 the axes from `axis` on count as one."""
    x, shape, axis = _floats(b, 0), b.shape(0), b.attr("axis", -1) % len(b.shape(0))
    if b.attr("opset", 13) < 13:
        flat = b("Reshape", x, b.constant([*shape[:axis], -1], np.int64))
        y = b("Softmax", flat, axis=-1)
        return [_codes(b, b("Reshape", y, b.constant(shape, np.int64)), 3)]
    return [_codes(b, b("Softmax", x, axis=axis), 3)]


@rule("QLinearAveragePool NhwcMaxPool")
def _pool(b: Build) -> Sequence[str]:
    quantized = b.question.op_type == "QLinearAveragePool"
    given = {k: v for k, v in b.question.attributes.items() if k != "channels_last"}
    last = not quantized or b.attr("channels_last", 0)
    x = _floats(b, 0) if quantized else b.input(0)
    if last:
        x = b("Transpose", x, perm=[0, 3, 1, 2])
    y = b("AveragePool" if quantized else "MaxPool", x, **given)
    if last:
        y = b("Transpose", y, perm=[0, 2, 3, 1])
    return [_codes(b, y, 3) if quantized else y]


@rule("QGemm")
def _gemm(b: Build) -> Sequence[str]:
    """The bias is in units of both scales."""
    flags = {k: v for k, v in b.question.attributes.items() if k.startswith("trans")}
    left = _floats_with(b, 0, 1, 2, axis=None)
    right = _floats_with(b, 3, 4, 5, axis=0 if b.attr("transB", 0) else 1)
    product = b("Mul", b("Gemm", left, right, **flags), b.constant(b.attr("alpha", 1.0)))
    if b.input(6):
        units = b("Mul", b.input(1), b.input(4))
        units = b("Mul", units, b.constant(b.attr("alpha", 1.0)))
        product = b("Add", product, b("Mul", b("Cast", b.input(6), to=1), units))
    return [_codes(b, product, 7) if b.input(7) else product]


@rule("QLinearConv")
def _convolution(b: Build) -> Sequence[str]:
    """The bias is in units of both scales."""
    given = {k: v for k, v in b.question.attributes.items() if k != "channels_last"}
    last = b.attr("channels_last", 0)
    x, weight = _floats(b, 0), _floats_with(b, 3, 4, 5, axis=0)
    if last:
        x = b("Transpose", x, perm=[0, 3, 1, 2])
    inputs = [x, weight]
    if b.input(8):
        units = b("Mul", b.input(1), b.input(4))
        inputs.append(b("Mul", b("Cast", b.input(8), to=1), units))
    y = b("Conv", *inputs, **given)
    if last:
        y = b("Transpose", y, perm=[0, 2, 3, 1])
    return [_codes(b, y, 6)]
