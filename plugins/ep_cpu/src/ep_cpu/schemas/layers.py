"""Schemas: convolutions, products of matrices, activations, normalisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ep_core.types import DataType, Shape
from ep_cpu.schemas.declare import Declaration, Known, Rule, like_standard, same

__all__ = ["DECLARATIONS", "HALVES", "gemm_rule", "moved", "product"]

FLOATS = "float16 float double bfloat16"
SINGLES = "float16 float"
HALVES = "float float16 bfloat16"
LEGACY = "float16 float double"
CONV = "group:i pads:is strides:is dilations:is kernel_shape:is auto_pad:s"
_CONV_NAMES = ("group", "pads", "strides", "dilations", "kernel_shape", "auto_pad")
_BATCHES = "transA:i transB:i transBatchA:i transBatchB:i alpha:f"
_ACTIVATION = "activation_alpha:f activation_beta:f activation_gamma:f"


def moved(shape: Shape | None, source: int, target: int) -> Shape | None:
    """A shape with one axis moved to another place."""
    if shape is None:
        return None
    axes = list(shape)
    axes.insert(target % len(axes), axes.pop(source))
    return tuple(axes)


def _conv_like(shape: Shape | None, known: Known) -> Shape | None:
    attributes = {name: known.attr(name) for name in _CONV_NAMES}
    return like_standard("Conv", [shape, known.shape(1)], attributes, 11)


def _conv(known: Known) -> Sequence[Shape | None]:
    return (_conv_like(known.shape(0), known),)


def _conv_channels_last(known: Known) -> Sequence[Shape | None]:
    return (moved(_conv_like(moved(known.shape(0), -1, 1), known), 1, -1),)


def _rank(known: Known) -> Sequence[Shape | None]:
    shape = known.shape(0)
    return (None if shape is None else (None,) * len(shape),)


# ---------------------------------------------------------------- products


def product(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of a product of (stacks of) matrices."""
    return like_standard("MatMul", [a, b])


def _turned(shape: Shape | None, batch: Any, last: Any) -> Shape | None:
    if shape is None or len(shape) < 2:
        return shape
    if batch and len(shape) > 2:
        shape = moved(shape, 0, len(shape) - 2)
    return moved(shape, -1, len(shape) - 2) if last and shape is not None else shape


def _fused_product(known: Known) -> Sequence[Shape | None]:
    a = _turned(known.shape(0), known.attr("transBatchA", 0), known.attr("transA", 0))
    b = _turned(known.shape(1), known.attr("transBatchB", 0), known.attr("transB", 0))
    return (product(a, b),)


def _plain_product(known: Known) -> Sequence[Shape | None]:
    return (product(known.shape(0), known.shape(1)),)


def gemm_rule(b: int) -> Rule:
    """The shape of a Gemm whose second matrix is input `b`."""

    def rule(known: Known) -> Sequence[Shape | None]:
        turns = {name: known.attr(name) for name in ("transA", "transB")}
        return (like_standard("Gemm", [known.shape(0), known.shape(b)], turns),)

    return rule


def _last_axis(attribute: str) -> Rule:
    def rule(known: Known) -> Sequence[Shape | None]:
        shape = known.shape(0)
        return (None if not shape else (*shape[:-1], known.attr(attribute)),)

    return rule


def _four_bit_product(known: Known) -> Sequence[Shape | None]:
    return _last_axis("N" if known.attr("transB", 1) else "K")(known)


# ---------------------------------------------------------------- rows


def _split_row(known: Known) -> Sequence[Shape | None]:
    shape = known.shape(0)
    if not shape:
        return (None,)
    return ((*shape[:-1], shape[-1] // 2 if isinstance(shape[-1], int) else None),)


def _simplified(known: Known) -> Sequence[Shape | None]:
    shape = known.shape(0)
    if shape is None:
        return ()
    axis = known.attr("axis", -1) % max(len(shape), 1)
    return shape, (*shape[:axis], *[1] * (len(shape) - axis))


def _stash(known: Known) -> Mapping[int, DataType | None]:
    return {1: DataType(known.attr("stash_type", 1))}


def _with_statistics(known: Known) -> Sequence[Shape | None]:
    skip = known.shape(1)
    # A skip of three axes may have 1 for the batch, one of two may lack it.
    shape = known.shape(0) or (None if skip is None or len(skip) != 3 else (None, *skip[1:]))
    row = (*shape[:-1], 1) if shape else None
    return shape, row, row, shape


def _embedding(known: Known) -> Sequence[Shape | None]:
    words, table = known.shape(0), known.shape(2)
    if words is None or table is None or len(words) != 2 or len(table) != 2:
        return ()
    whole = (*words, table[1])
    return whole, words[:1], whole


def _twice(known: Known) -> Sequence[Shape | None]:
    return known.shape(0), known.shape(0)


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration(
        "FusedConv", "X:T W:T B:T? Z:T?", "Y:T", f"{CONV} activation:s activation_params:fs",
        {"T": LEGACY}, _conv,
    ),
    Declaration(
        "NhwcFusedConv", "X:T W:T B:T? Z:T?", "Y:T", f"{CONV} activation:s activation_params:fs",
        {"T": SINGLES}, _conv_channels_last,
    ),
    Declaration("NhwcConv", "X:T W:T B:T?", "Y:T", CONV, {"T": LEGACY}, _rank),
    Declaration(
        "ConvTransposeWithDynamicPads", "X:T W:T Pads:int64? B:T?", "Y:T",
        "group:i auto_pad:s strides:is dilations:is output_padding:is kernel_shape:is",
        {"T": LEGACY}, _rank,
    ),
    Declaration("FusedMatMul", "A:T B:T", "Y:T", _BATCHES, {"T": FLOATS}, _fused_product),
    Declaration(
        "TransposeMatMul", "A:T B:T", "Y:T", "transA:i transB:i alpha:f", {"T": FLOATS},
        _fused_product,
    ),
    Declaration(
        "FusedMatMulActivation", "A:T B:T", "Y:T",
        f"{_BATCHES} activation:s! {_ACTIVATION} activation_axis:i", {"T": FLOATS}, _fused_product,
    ),
    Declaration(
        "FusedGemm", "A:T B:T C:T?", "Y:T",
        f"transA:i transB:i alpha:f beta:f activation:s {_ACTIVATION}",
        {"T": f"{LEGACY} uint32 uint64 int32 int64"}, gemm_rule(1),
    ),
    Declaration("GemmFastGelu", "X:T W:T bias:T?", "Y:T", "", {"T": HALVES}, _plain_product),
    Declaration(
        "MatMulNBits", "A:T1 B:T2 scales:T1 zero_points:T3? g_idx:T4? bias:T1?", "Y:T1",
        "K:i! N:i! bits:i block_size:i! accuracy_level:i weight_prepacked:i",
        {"T1": HALVES, "T2": "uint8", "T3": f"uint8 {HALVES}", "T4": "int32"}, _last_axis("N"),
    ),
    Declaration(
        "MatMulBnb4", "A:T1 B:T2 absmax:T1", "Y:T1",
        "K:i! N:i! block_size:i! quant_type:i! training_mode:i transB:i",
        {"T1": HALVES, "T2": "uint8"}, _four_bit_product,
    ),
    Declaration("QuickGelu", "X:T", "Y:T", "alpha:f", {"T": FLOATS}, same),
    Declaration("FastGelu", "X:T bias:T?", "Y:T", "", {"T": FLOATS}, same),
    Declaration("BiasGelu", "A:T B:T", "C:T", "", {"T": FLOATS}, same),
    Declaration("BiasSplitGelu", "X:T bias:T", "Y:T", "", {"T": SINGLES}, _split_row),
    Declaration("BiasAdd", "X:T bias:T skip:T", "Y:T", "", {"T": SINGLES}, same),
    Declaration(
        "BiasSoftmax", "data:T bias:T", "output:T", "axis:i is_inner_broadcast:i!", {"T": LEGACY},
        same,
    ),
    Declaration(
        "SimplifiedLayerNormalization", "X:T scale:V", "Y:V inv_std_var:U?",
        "axis:i epsilon:f stash_type:i", {"T": FLOATS, "U": "float double", "V": FLOATS},
        _simplified, _stash, domain="",
    ),
    Declaration(
        "SkipLayerNormalization", "input:T skip:T gamma:T beta:T? bias:T?",
        "output:T mean:float? inv_std_var:float? input_skip_bias_sum:T?", "epsilon:f",
        {"T": FLOATS}, _with_statistics,
    ),
    Declaration(
        "SkipSimplifiedLayerNormalization", "input:T skip:T gamma:T bias:T?",
        "output:T mean:float? inv_std_var:float? input_skip_bias_sum:T?", "epsilon:f",
        {"T": FLOATS}, _with_statistics,
    ),
    Declaration(
        "EmbedLayerNormalization",
        "input_ids:T1 segment_ids:T1? word_embedding:T position_embedding:T segment_embedding:T? "
        "gamma:T beta:T mask:T1? position_ids:T1?",
        "output:T mask_index:T1? embedding_sum:T?", "epsilon:f mask_index_type:i",
        {"T": SINGLES, "T1": "int32"}, _embedding,
    ),
    Declaration(
        "GroupNorm", "X:T gamma:M beta:M", "Y:T",
        "epsilon:f groups:i! activation:i! channels_last:i", {"T": SINGLES, "M": SINGLES}, same,
    ),
    Declaration(
        "SkipGroupNorm", "X:T gamma:M beta:M skip:T bias:T?", "Y:T S:T?",
        "epsilon:f groups:i! activation:i! channels_last:i", {"T": SINGLES, "M": SINGLES}, _twice,
    ),
)  # fmt: skip
