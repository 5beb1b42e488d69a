"""Schemas: attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ep_core.types import DataType, Dim, Shape
from ep_cpu.schemas.declare import Declaration, Known
from ep_cpu.schemas.layers import HALVES

__all__ = ["DECLARATIONS"]

_MASKS = "unidirectional:i scale:f mask_filter_value:f num_heads:i!"
_STATE = "do_rotary:i past_present_share_buffer:i"


def _sum(a: Dim, b: Dim) -> Dim:
    if a == 0 or b == 0:
        return b if a == 0 else a
    return a + b if isinstance(a, int) and isinstance(b, int) else None


def _quotient(a: Dim, b: int) -> Dim:
    return a // b if isinstance(a, int) and b > 0 else None


def _packed(known: Known) -> Sequence[Shape | None]:
    x, weight, state = known.shape(0), known.shape(1), known.shape(8)
    if x is None or weight is None or len(x) != 3 or len(weight) != 2:
        return ()
    width = _quotient(weight[1], 3)
    heads = int(known.attr("num_heads"))
    length: Dim = x[1]
    if known.has(8):
        length = None if state is None or len(state) != 5 else _sum(state[3], x[1])
    return (x[0], x[1], width), (2, x[0], heads, length, _quotient(width, heads))


def _separate(known: Known) -> Sequence[Shape | None]:
    query, key, value = known.shape(0), known.shape(1), known.shape(2)
    heads = int(known.attr("num_heads"))
    if query is None or len(query) not in (3, 5) or heads < 1:
        return ()
    batch = query[0]
    if len(query) == 5:
        size, width, new = query[4], query[4], query[1]
    elif key is not None and len(key) == 5:
        size, width, new = key[4], key[4], key[1]
    elif key is None or value is None or len(key) != len(value):
        return ()
    elif len(key) == 4:
        size, width, new = key[3], value[3], key[2]
    else:
        size, width, new = _quotient(key[2], heads), _quotient(value[2], heads), key[1]
    past = known.shape(6)
    total: Dim = new
    if known.has(6):
        total = None if past is None or len(past) != 4 else _sum(past[2], new)
    whole: Dim = width * heads if isinstance(width, int) else None
    return (
        (batch, query[1], whole),
        (batch, heads, total, size),
        (batch, heads, total, width),
        (batch, heads, query[1], total),
    )


def _scores_type(known: Known) -> Mapping[int, DataType | None]:
    return {3: known.dtype(0)}


def _grouped(known: Known) -> Sequence[Shape | None]:
    query = known.shape(0)
    heads, key_heads = int(known.attr("num_heads")), int(known.attr("kv_num_heads"))
    if query is None or len(query) != 3 or heads < 1 or key_heads < 1:
        return ()
    every = heads if known.has(1) else heads + 2 * key_heads
    size = _quotient(query[2], every)
    width: Dim = size * heads if isinstance(size, int) else None
    cache = (query[0], key_heads, None, size)
    return (query[0], query[1], width), cache, cache, (query[0], heads, query[1], None)


def _cache_type(known: Known) -> Mapping[int, DataType | None]:
    dtype = known.dtype(3) if known.has(3) else known.dtype(0)
    return {1: dtype, 2: dtype}


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration(
        "QAttention",
        "input:T1 weight:T2 bias:T3 input_scale:T3 weight_scale:T3 mask_index:T4? "
        "input_zero_point:T1? weight_zero_point:T2? past:T3?",
        "output:T3 present:T3?", f"{_MASKS} {_STATE}",
        {"T1": "int8 uint8", "T2": "int8 uint8", "T3": "float float16", "T4": "int32"},
        _packed,
    ),
    Declaration(
        "MultiHeadAttention",
        "query:T key:T? value:T? bias:T? key_padding_mask:M? attention_bias:T? past_key:T? "
        "past_value:T? past_sequence_length:M? cache_indirection:M?",
        "output:T present_key:T? present_value:T? qk:QK?", _MASKS,
        {"T": HALVES, "M": "int32", "QK": HALVES}, _separate, _scores_type,
    ),
    Declaration(
        "GroupQueryAttention",
        "query:T key:T? value:T? past_key:C? past_value:C? seqlens_k:M total_sequence_length:M "
        "cos_cache:T? sin_cache:T? position_ids:int64? attention_bias:T? head_sink:T? "
        "k_scale:float? v_scale:float? q_norm_weight:T? k_norm_weight:T? query_seqlens:M?",
        "output:T present_key:C? present_value:C? output_qk:T?",
        "num_heads:i! kv_num_heads:i! scale:f softcap:f causal:i local_window_size:i do_rotary:i "
        "rotary_interleaved:i smooth_softmax:i qk_output:i qk_norm_epsilon:f q_norm_epsilon:f "
        "k_norm_epsilon:f kv_cache_bit_width:i k_quant_type:s v_quant_type:s "
        "sliding_window_cache:i",
        {"T": HALVES, "C": f"{HALVES} uint8 int8 float8e4m3fn", "M": "int32"},
        _grouped, _cache_type,
    ),
)  # fmt: skip
