"""com.microsoft: Attention with packed weights, its quantised form, and MultiHeadAttention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.attention import split_heads
from ep_cpu.kernels.contrib_attention_support import (
    Attended,
    attend,
    causal_pattern,
    joined,
    padding_bias,
)
from ep_cpu.kernels.matmul import matmul
from ep_cpu.kernels.qlinear import integer_matmul
from ep_cpu.kernels.support import FLOATS, Array, from_constant, scalar, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_TYPES = FLOATS - {DataType.DOUBLE}
_EIGHT_BIT = frozenset({DataType.INT8, DataType.UINT8})


@dataclass(frozen=True)
class _Options:
    heads: int
    causal: bool
    scale: float | None
    closed: float

    @classmethod
    def of(cls, node: KernelNode) -> _Options:
        scale = float(node.attr("scale", 0.0))
        return cls(
            heads=int(node.attr("num_heads")),
            causal=bool(node.attr("unidirectional", 0)),
            scale=scale or None,
            closed=float(node.attr("mask_filter_value", -10000.0)),
        )


def _attend(
    options: _Options,
    query: Array,
    key: Array,
    value: Array,
    past: int,
    mask: Array | None,
    bias: Array | None,
) -> Attended:
    """Attention of [batch, heads, length, size] under the operator's mask rules."""
    batch, _, queries, size = query.shape
    keys = key.shape[2]
    padding = None
    if mask is not None:
        dtype = widen(query).dtype
        padding = padding_bias(mask, (batch, queries, keys), past, options.closed, dtype)
    closed = causal_pattern(queries, keys, past) if options.causal else None
    scale = 1 / math.sqrt(size) if options.scale is None else options.scale
    return attend(query, key, value, scale=scale, biases=(padding, bias), closed=closed)


def _common_problem(node: KernelNode, unknown: Sequence[str] = ()) -> str | None:
    if int(node.attr("num_heads", 0)) < 1:
        return "num_heads must be positive"
    for name in unknown:
        if node.attr(name, 0):
            return f"{name}={node.attr(name)} isn't implemented"
    return None


# ---------------------------------------------------------------- packed weights


def _attention_problem(node: KernelNode) -> str | None:
    if node.has_input(6):
        return "past_sequence_length, for buffers that past and present share, isn't implemented"
    return _common_problem(node, ("do_rotary", "past_present_share_buffer"))


def _split_projection(projected: Array, sizes: Sequence[int] | None, heads: int) -> list[Array]:
    """[batch, length, sum of sizes] as query, key and value, [batch, heads, length, size]."""
    width = projected.shape[2]
    lengths = tuple(sizes) if sizes else (width // 3,) * 3
    if len(lengths) != 3 or sum(lengths) != width or lengths[0] != lengths[1]:
        raise RunError(
            "the packed weights don't split into query, key and value",
            expected=f"sizes that add up to {width}, the first two equal",
            got=lengths,
        )
    parts = np.split(projected, [lengths[0], 2 * lengths[0]], axis=2)
    return [
        split_heads(part, heads, name)
        for part, name in zip(parts, ("query", "key", "value"), strict=True)
    ]


def _packed_attention(node: KernelNode) -> Kernel:
    """A function of the projected input, mask, past and bias: the operator's outputs."""
    options = _Options.of(node)
    sizes = node.attr("qkv_hidden_sizes")
    with_present = node.wants_output(1)

    def run(
        projected: Array,
        mask: Array | None,
        past: Array | None,
        bias: Array | None,
        dtype: np.dtype[Any],
    ) -> Any:
        query, key, value = _split_projection(projected, sizes, options.heads)
        before = 0
        if past is not None:
            if past.ndim != 5 or past.shape[0] != 2:
                raise RunError(
                    "wrong shape of the past state",
                    expected="[2, batch, heads, length, size]",
                    got=past.shape,
                )
            before = past.shape[3]
            key = joined(widen(past[0]), key)
            value = joined(widen(past[1]), value)
        batch, keys = key.shape[0], key.shape[2]
        if mask is not None and mask.shape in ((1, 1), (batch, 1)) and keys != 1:
            # A mask of one column is a placeholder of writers that always connect one.
            mask = None
        found = _attend(options, query, key, value, before, mask, bias)
        y = found.output.astype(dtype, copy=False)
        if not with_present:
            return y
        if key.shape != value.shape:
            raise RunError("a state needs keys and values of one size", got=value.shape)
        return y, np.stack([key, value]).astype(dtype, copy=False)

    return run


@TABLE.kernel("Attention", domain="com.microsoft", types={0: _TYPES}, predicate=_attention_problem)
def _attention(node: KernelNode) -> Kernel:
    finish = _packed_attention(node)
    wide_weight = from_constant(node, 1, widen)

    def run(
        x: Array,
        weight: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        past: Array | None = None,
        score_bias: Array | None = None,
    ) -> Any:
        if x.ndim != 3 or weight.ndim != 2:
            raise RunError(
                "Attention needs [batch, length, size] and a matrix", got=(x.shape, weight.shape)
            )
        projected = matmul(widen(x), wide_weight(weight))
        if bias is not None:
            projected = np.asarray(projected + widen(bias))
        return finish(projected, mask, past, score_bias, x.dtype)

    return run


def _quantized_problem(node: KernelNode) -> str | None:
    return _common_problem(node, ("do_rotary", "past_present_share_buffer"))


@TABLE.kernel(
    "QAttention",
    domain="com.microsoft",
    types={0: _EIGHT_BIT, 1: _EIGHT_BIT},
    predicate=_quantized_problem,
)
def _quantized_attention(node: KernelNode) -> Kernel:
    finish = _packed_attention(node)

    def run(
        x: Array,
        weight: Array,
        bias: Array,
        x_scale: Array,
        weight_scale: Array,
        mask: Array | None = None,
        x_zero: Array | None = None,
        weight_zero: Array | None = None,
        past: Array | None = None,
    ) -> Any:
        if x.ndim != 3 or weight.ndim != 2:
            raise RunError(
                "QAttention needs [batch, length, size] and a matrix", got=(x.shape, weight.shape)
            )
        sums = integer_matmul(x, weight, x_zero, weight_zero)
        scale = np.float32(scalar(x_scale, "input_scale")) * widen(weight_scale)
        projected = np.asarray(sums.astype(np.float32) * scale + widen(bias))
        return finish(projected, mask, past, None, bias.dtype)

    return run


# ---------------------------------------------------------------- separate query, key, value


def _separate_problem(node: KernelNode) -> str | None:
    if node.has_input(8) or node.has_input(9):
        return (
            "past_sequence_length and cache_indirection, for buffers that past and present "
            "share, aren't implemented"
        )
    return _common_problem(node)


def _unpacked(
    query: Array, key: Array | None, value: Array | None, heads: int
) -> tuple[Array, Array, Array, bool]:
    """Query, key and value as [batch, heads, length, size]; True if keys are already cached."""
    if query.ndim == 5 and key is None and value is None and query.shape[2:4] == (heads, 3):
        q, k, v = (query[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
        return q, k, v, False
    if query.ndim != 3 or key is None:
        raise RunError(
            "MultiHeadAttention needs [batch, length, size], or one packed input",
            expected=f"[batch, length, {heads}, 3, size] where key and value are left out",
            got=query.shape,
        )
    q = split_heads(query, heads, "query")
    if key.ndim == 5 and value is None and key.shape[2:4] == (heads, 2):
        k, v = (key[:, :, :, i].transpose(0, 2, 1, 3) for i in range(2))
        return q, k, v, False
    if value is None or key.ndim not in (3, 4) or value.ndim != key.ndim:
        raise RunError(
            "key and value of MultiHeadAttention don't go together",
            expected=f"two of 3 or of 4 axes, or one of [batch, length, {heads}, 2, size]",
            got=(key.shape, None if value is None else value.shape),
        )
    k, v = split_heads(key, heads, "key"), split_heads(value, heads, "value")
    return q, k, v, key.ndim == 4


def _biased(parts: tuple[Array, Array, Array], bias: Array, cached: bool) -> tuple[Array, ...]:
    """Add the bias of the projections; keys that are already cached have theirs."""
    sizes = [part.shape[1] * part.shape[3] for part in parts]
    if bias.shape != (sum(sizes),):
        raise RunError("wrong shape of the bias", expected=(sum(sizes),), got=bias.shape)
    rows = np.split(widen(bias), [sizes[0], sizes[0] + sizes[1]])
    return tuple(
        part if cached and index else widen(part) + row.reshape(part.shape[1], 1, part.shape[3])
        for index, (part, row) in enumerate(zip(parts, rows, strict=True))
    )


@TABLE.kernel(
    "MultiHeadAttention", domain="com.microsoft", types={0: _TYPES}, predicate=_separate_problem
)
def _multi_head_attention(node: KernelNode) -> Kernel:
    options = _Options.of(node)
    outputs = len(node.node.outputs)

    def run(
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        bias: Array | None = None,
        mask: Array | None = None,
        score_bias: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
    ) -> Any:
        dtype = query.dtype
        q, k, v, cached = _unpacked(query, key, value, options.heads)
        if q.shape[3] != k.shape[3] or k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0]:
            raise RunError(
                "query, key and value don't go together", got=(q.shape, k.shape, v.shape)
            )
        if bias is not None:
            q, k, v = _biased((q, k, v), bias, cached)
        if (past_key is None) != (past_value is None) or (cached and past_key is not None):
            raise RunError(
                "past_key and past_value go together, and not with a key that is the whole cache"
            )
        if options.causal and q.shape[2] != k.shape[2]:
            raise RunError(
                "unidirectional attention needs as many keys as queries",
                expected=q.shape[2],
                got=k.shape[2],
            )
        before = 0 if past_key is None else past_key.shape[2]
        k, v = joined(past_key, k), joined(past_value, v)
        found = _attend(options, q, k, v, before, mask, score_bias)
        y = found.output.astype(dtype, copy=False)
        if outputs == 1:
            return y
        results = (y, np.array(k, dtype), np.array(v, dtype), found.scores.astype(dtype))
        return results[:outputs]

    return run
