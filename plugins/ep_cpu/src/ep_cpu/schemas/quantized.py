"""Schemas: arithmetic on quantised integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ep_core.types import DataType, Shape
from ep_cpu.schemas.declare import Declaration, Known, Rule, like_standard, same
from ep_cpu.schemas.layers import HALVES, gemm_rule, moved, product

__all__ = ["DECLARATIONS"]

_EIGHT = "uint8 int8"
_POOL = "auto_pad:s ceil_mode:i kernel_shape:is! pads:is strides:is"
_BINARY = (
    "A:T A_scale:float A_zero_point:T? B:T B_scale:float B_zero_point:T? "
    "C_scale:float C_zero_point:T?"
)
_UNARY = "X:T X_scale:float X_zero_point:T? Y_scale:float Y_zero_point:T?"


def _broadcast(*positions: int) -> Rule:
    def rule(known: Known) -> Sequence[Shape | None]:
        return (like_standard("Max", [known.shape(index) for index in positions]),)

    return rule


def _pooled(known: Known, names: Sequence[str], last: bool) -> Sequence[Shape | None]:
    shape = moved(known.shape(0), -1, 1) if last else known.shape(0)
    attributes = {name: known.attr(name) for name in names}
    found = like_standard("MaxPool", [shape], attributes, 12)
    return (moved(found, 1, -1) if last else found,)


def _average_pool(known: Known) -> Sequence[Shape | None]:
    names = ("auto_pad", "ceil_mode", "kernel_shape", "pads", "strides")
    return _pooled(known, names, bool(known.attr("channels_last", 0)))


def _max_pool(known: Known) -> Sequence[Shape | None]:
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    return _pooled(known, names, last=True)


def _global_pool(known: Known) -> Sequence[Shape | None]:
    shape = known.shape(0)
    if shape is None or len(shape) < 3:
        return ()
    ones = [1] * (len(shape) - 2)
    if known.attr("channels_last", 0):
        return ((shape[0], *ones, shape[-1]),)
    return ((*shape[:2], *ones),)


def _reduced(known: Known) -> Sequence[Shape | None]:
    attributes = {name: known.attr(name) for name in ("axes", "keepdims")}
    return (like_standard("ReduceMean", [known.shape(0)], attributes),)


def _concatenated(known: Known) -> Sequence[Shape | None]:
    positions = [index for index in range(2, 2 + 3 * 2**16, 3) if known.has(index)]
    shapes = [known.shape(index) for index in positions]
    return (like_standard("Concat", shapes, {"axis": known.attr("axis")}),)


def _product(known: Known) -> Sequence[Shape | None]:
    return (product(known.shape(0), known.shape(1)),)


def _gemm_type(known: Known) -> Mapping[int, DataType | None]:
    if not known.has(7):
        return {0: DataType.FLOAT}
    return {0: known.dtype(8) if known.has(8) else known.dtype(0)}


def _recurrent(known: Known) -> Sequence[Shape | None]:
    x, weight = known.shape(0), known.shape(1)
    hidden = known.attr("hidden_size")
    if x is None or weight is None or len(x) != 3 or len(weight) != 3:
        return ()
    last = (weight[0], x[1], hidden)
    return (x[0], weight[0], x[1], hidden), last, last


def _gathered(known: Known) -> Sequence[Shape | None]:
    data, indices = known.shape(0), known.shape(1)
    if data is None or indices is None or not data:
        return ()
    if known.dtype(0) is DataType.UINT8:
        width = data[-1]
        per_byte = 8 // max(int(known.attr("bits", 4)), 1)
        data = (*data[:-1], width * per_byte if isinstance(width, int) else None)
    axis = int(known.attr("gather_axis", 0)) % len(data)
    return ((*data[:axis], *indices, *data[axis + 1 :]),)


def _embedded(known: Known) -> Sequence[Shape | None]:
    words, table = known.shape(0), known.shape(2)
    if words is None or table is None or len(words) != 2 or len(table) != 2:
        return ()
    return (*words, table[1]), words[:1]


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration("QLinearAdd", _BINARY, "C:T", "", {"T": _EIGHT}, _broadcast(0, 3)),
    Declaration("QLinearMul", _BINARY, "C:T", "", {"T": _EIGHT}, _broadcast(0, 3)),
    Declaration(
        "QLinearWhere",
        "condition:bool X:T x_scale:float x_zero_point:T Y:T y_scale:float y_zero_point:T "
        "z_scale:float z_zero_point:T",
        "Z:T", "", {"T": _EIGHT}, _broadcast(0, 1, 4),
    ),
    Declaration("QLinearSigmoid", _UNARY, "Y:T", "", {"T": _EIGHT}, same),
    Declaration("QLinearLeakyRelu", _UNARY, "Y:T", "alpha:f", {"T": _EIGHT}, same),
    Declaration(
        "QLinearSoftmax", "X:T X_scale:float x_zero_point:T? y_scale:float y_zero_point:T", "Y:T",
        "axis:i opset:i!", {"T": _EIGHT}, same,
    ),
    Declaration(
        "QLinearConcat", "Y_scale:float Y_zero_point:T inputs:V*", "Y:T", "axis:i!",
        {"T": _EIGHT, "V": f"{_EIGHT} float"}, _concatenated,
    ),
    Declaration(
        "QLinearReduceMean", _UNARY, "Y:T", "axes:is! keepdims:i!", {"T": _EIGHT}, _reduced
    ),
    Declaration(
        "QLinearAveragePool", _UNARY, "Y:T", f"{_POOL} channels_last:i count_include_pad:i",
        {"T": _EIGHT}, _average_pool,
    ),
    Declaration(
        "QLinearGlobalAveragePool",
        "X:T x_scale:float x_zero_point:T y_scale:float y_zero_point:T", "Y:T", "channels_last:i",
        {"T": _EIGHT}, _global_pool,
    ),
    Declaration("NhwcMaxPool", "x:T", "y:T", f"{_POOL} dilations:is", {"T": _EIGHT}, _max_pool),
    Declaration(
        "QGemm",
        "A:TA a_scale:float a_zero_point:TA B:TB b_scale:float b_zero_point:TB C:int32? "
        "y_scale:float? y_zero_point:TY?",
        "Y:TY", "transA:i transB:i alpha:f",
        {"TA": _EIGHT, "TB": _EIGHT, "TY": f"{_EIGHT} float"}, gemm_rule(3), _gemm_type,
    ),
    Declaration(
        "MatMulIntegerToFloat",
        "A:T1 B:T2 a_scale:T3 b_scale:T3 a_zero_point:T1? b_zero_point:T2? bias:T3?", "Y:T3", "",
        {"T1": _EIGHT, "T2": _EIGHT, "T3": "float float16"}, _product,
    ),
    Declaration(
        "DynamicQuantizeMatMul", "A:T1 B:T2 b_scale:T1 b_zero_point:T2? bias:T1?", "Y:T1", "",
        {"T1": "float", "T2": _EIGHT}, _product,
    ),
    Declaration(
        "DynamicQuantizeLSTM",
        "X:T W:T2 R:T2 B:T? sequence_lens:int32? initial_h:T? initial_c:T? P:T? W_scale:T "
        "W_zero_point:T2 R_scale:T R_zero_point:T2",
        "Y:T? Y_h:T? Y_c:T?",
        "activation_alpha:fs activation_beta:fs activations:ss clip:f direction:s hidden_size:i "
        "input_forget:i",
        {"T": "float", "T2": _EIGHT}, _recurrent,
    ),
    Declaration(
        "QEmbedLayerNormalization",
        "input_ids:T1 segment_ids:T1? word_embedding_quant:T2 position_embedding_quant:T2 "
        "segment_embedding:T2? gamma_quant:T2 beta_quant:T2 mask:T1? word_embedding_scale:T "
        "position_embedding_scale:T segment_embedding_scale:T? gamma_scale:T beta_scale:T "
        "word_embedding_zero_point:T2 position_embedding_zero_point:T2 "
        "segment_embedding_zero_point:T2? gamma_zero_point:T2 beta_zero_point:T2",
        "layernorm_out:T mask_index_out:T1", "epsilon:f",
        {"T1": "int32", "T2": _EIGHT, "T": "float"}, _embedded,
    ),
    Declaration(
        "GatherBlockQuantized", "data:T1 indices:I scales:T2 zero_points:T1?", "output:T2",
        "bits:i block_size:i gather_axis:i quantize_axis:i",
        {
            "T1": "int4 uint4 uint8 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz "
            "float4e2m1",
            "T2": HALVES,
            "I": "int32 int64",
        },
        _gathered,
    ),
)  # fmt: skip
