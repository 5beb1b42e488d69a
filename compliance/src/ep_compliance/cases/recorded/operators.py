"""The operators that have recorded cases: what they take and give, by position.

They are those of com.microsoft, as ONNX Runtime's documentation of its contributed operators
states them, and one that graph optimisers write into the standard domain. onnx has no schema of
them, and can't be given one of those that share their name with a standard operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from ep_compliance.cases.signatures import Signature, parsed

__all__ = ["OPERATORS", "RECORDED_DOMAIN"]

RECORDED_DOMAIN = "com.microsoft"

_FLOATS = "float16 float double bfloat16"
_NARROW = "float16 float bfloat16"
_LEGACY = "float16 float double"
_SINGLES = "float16 float"
_EIGHT = "int8 uint8"
_INTEGERS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64"
_ANY = f"{_INTEGERS} {_LEGACY} string bool complex64 complex128"
_INDEX = "int32 int64"
_BINARY = "T float T? T float T? float T?"
_UNARY = "T float T? float T?"


def _signatures() -> Iterator[Signature]:
    yield from _elementwise()
    yield from _products()
    yield from _normalizations()
    yield from _attention()
    yield from _weights()
    yield from _quantized()
    yield from _tensors()


def _elementwise() -> Iterator[Signature]:
    yield parsed("Gelu", "T", "T", {"T": _FLOATS})
    yield parsed("QuickGelu", "T", "T", {"T": _FLOATS})
    yield parsed("FastGelu", "T T?", "T", {"T": _FLOATS})
    yield parsed("BiasGelu", "T T", "T", {"T": _FLOATS})
    yield parsed("BiasSplitGelu", "T T", "T", {"T": _SINGLES})
    yield parsed("BiasAdd", "T T T", "T", {"T": _SINGLES})
    yield parsed("BiasSoftmax", "T T", "T", {"T": _LEGACY})
    yield parsed("SwiGLU", "T T?", "T", {"T": _NARROW})


def _products() -> Iterator[Signature]:
    yield parsed("FusedConv", "T T T? T?", "T", {"T": _LEGACY})
    yield parsed("NhwcFusedConv", "T T T? T?", "T", {"T": _SINGLES})
    yield parsed("NhwcConv", "T T T?", "T", {"T": _LEGACY})
    yield parsed("ConvTransposeWithDynamicPads", "T T int64? T?", "T", {"T": _LEGACY})
    yield parsed("FusedMatMul", "T T", "T", {"T": _FLOATS})
    yield parsed("TransposeMatMul", "T T", "T", {"T": _FLOATS})
    yield parsed("FusedMatMulActivation", "T T", "T", {"T": _FLOATS})
    yield parsed("FusedGemm", "T T T?", "T", {"T": f"{_LEGACY} uint32 uint64 int32 int64"})
    yield parsed("GemmFastGelu", "T T T?", "T", {"T": _NARROW})


def _normalizations() -> Iterator[Signature]:
    yield dataclasses.replace(
        parsed(
            "SimplifiedLayerNormalization",
            "T V",
            "V U?",
            {"T": _FLOATS, "U": "float double", "V": _FLOATS},
        ),
        domain="",
    )
    yield parsed("SkipLayerNormalization", "T T T T? T?", "T float? float? T?", {"T": _FLOATS})
    yield parsed(
        "SkipSimplifiedLayerNormalization", "T T T T?", "T float? float? T?", {"T": _FLOATS}
    )
    yield parsed(
        "EmbedLayerNormalization",
        "int32 int32? T T T? T T int32? int32?",
        "T int32? T?",
        {"T": _SINGLES},
    )
    yield parsed(
        "QEmbedLayerNormalization",
        "int32 int32? T T T? T T int32? float float float? float float T T T? T T",
        "float int32",
        {"T": _EIGHT},
    )
    yield parsed("GroupNorm", "T M M", "T", {"T": _SINGLES, "M": _SINGLES})
    yield parsed("SkipGroupNorm", "T M M T T?", "T T?", {"T": _SINGLES, "M": _SINGLES})


def _attention() -> Iterator[Signature]:
    yield parsed("Attention", "T T T? int32? T? T? int32?", "T T?", {"T": _NARROW})
    yield parsed(
        "QAttention",
        "T1 T2 T3 T3 T3 int32? T1? T2? T3?",
        "T3 T3?",
        {"T1": _EIGHT, "T2": _EIGHT, "T3": _SINGLES},
    )
    yield parsed(
        "MultiHeadAttention",
        "T T? T? T? int32? T? T? T? int32? int32?",
        "T T? T? QK?",
        {"T": _NARROW, "QK": _NARROW},
    )
    yield parsed(
        "GroupQueryAttention",
        "T T? T? C? C? int32 int32 T? T? int64? T? T? float? float? T? T? int32?",
        "T C? C? T?",
        {"T": _NARROW, "C": f"{_NARROW} uint8 int8 float8e4m3fn"},
    )
    yield parsed("RotaryEmbedding", "T int64 T T", "T", {"T": _NARROW})


def _weights() -> Iterator[Signature]:
    yield parsed(
        "MatMulNBits",
        "T1 uint8 T1 T3? int32? T1?",
        "T1",
        {"T1": _NARROW, "T3": f"uint8 {_NARROW}"},
    )
    yield parsed("MatMulBnb4", "T uint8 T", "T", {"T": _NARROW})
    narrow = "int4 uint4 uint8 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz float4e2m1"
    yield parsed(
        "GatherBlockQuantized",
        "T1 I T2 T1?",
        "T2",
        {"T1": narrow, "T2": _NARROW, "I": _INDEX},
    )


def _quantized() -> Iterator[Signature]:
    eight = {"T": _EIGHT}
    yield parsed("QLinearAdd", _BINARY, "T", eight)
    yield parsed("QLinearMul", _BINARY, "T", eight)
    yield parsed("QLinearWhere", "bool T float T T float T float T", "T", eight)
    yield parsed("QLinearSigmoid", _UNARY, "T", eight)
    yield parsed("QLinearLeakyRelu", _UNARY, "T", eight)
    yield parsed("QLinearReduceMean", _UNARY, "T", eight)
    yield parsed("QLinearAveragePool", _UNARY, "T", eight)
    yield parsed("QLinearSoftmax", "T float T? float T", "T", eight)
    yield parsed("QLinearGlobalAveragePool", "T float T float T", "T", eight)
    yield parsed("QLinearConcat", "float T V*", "T", {**eight, "V": f"{_EIGHT} float"})
    yield parsed("NhwcMaxPool", "T", "T", eight)
    yield parsed(
        "QLinearConv",
        "T1 float T1 T2 float T2 float T3 int32?",
        "T3",
        {"T1": _EIGHT, "T2": _EIGHT, "T3": _EIGHT},
    )
    yield parsed(
        "QGemm",
        "A float A B float B int32? float? Z?",
        "Y",
        {"A": _EIGHT, "B": _EIGHT, "Z": _EIGHT, "Y": f"{_EIGHT} float"},
    )
    yield parsed(
        "MatMulIntegerToFloat",
        "T1 T2 T3 T3 T1? T2? T3?",
        "T3",
        {"T1": _EIGHT, "T2": _EIGHT, "T3": _SINGLES},
    )
    yield parsed("DynamicQuantizeMatMul", "float T float T? float?", "float", eight)
    yield parsed(
        "DynamicQuantizeLSTM",
        "float T T float? int32? float? float? float? float T float T",
        "float? float? float?",
        eight,
    )
    codes = "int8 uint8 int16 uint16 int4 uint4"
    yield parsed("QuantizeLinear", "T1 T1 T2?", "T2", {"T1": _SINGLES, "T2": codes})
    yield parsed("DequantizeLinear", "T1 T2 T1?", "T2", {"T1": f"{codes} int32", "T2": _SINGLES})


def _tensors() -> Iterator[Signature]:
    yield parsed("ExpandDims", "T int32", "T", {"T": _ANY})
    yield parsed("GatherND", "T I", "T", {"T": _ANY, "I": _INDEX})
    yield parsed("Trilu", "T int64?", "T", {"T": f"{_FLOATS} {_INTEGERS} bool"})
    yield parsed("Pad", "T int64 T?", "T", {"T": _LEGACY})
    yield parsed("Range", "T T T?", "T", {"T": "float double int16 int32 int64"})
    yield parsed("Unique", "T", "T int64 int64", {"T": _ANY})
    yield parsed("GridSample", "T T", "T", {"T": _LEGACY})
    yield parsed("Inverse", "T", "T", {"T": _LEGACY})
    yield parsed("CDist", "T T", "T", {"T": "float double"})
    yield parsed("CropAndResize", "T T int32 int32", "T", {"T": _LEGACY})
    yield parsed("Rfft", "T", "T", {"T": _LEGACY})
    yield parsed("Irfft", "T", "T", {"T": _LEGACY})
    hashed = "uint32 int32 uint64 int64 float double string"
    yield parsed("MurmurHash3", "T1", "T2", {"T1": hashed, "T2": "uint32 int32"})


OPERATORS: Mapping[tuple[str, str], Signature] = {
    (signature.domain, signature.op_type): signature for signature in _signatures()
}
"""By domain and name."""
