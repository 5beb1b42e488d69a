"""Attention of ai.onnx, rotary embeddings, and linear attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.gather import check_indices
from ep_cpu.kernels.support import Array, attribute_dtype, compute_dtype, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["merge_heads", "split_heads", "weigh"]


def split_heads(x: Array, heads: int | None, name: str) -> Array:
    """[batch, length, heads * size] as [batch, heads, length, size]; rank 4 stays.

    Raises:
        RunError: another rank, or heads that don't divide the last axis.
    """
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not heads or x.shape[2] % heads:
        raise RunError(
            f"{name} of Attention has a wrong shape",
            expected="4 axes, or 3 and a number of heads that divides the last",
            got=(x.shape, heads),
        )
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def merge_heads(x: Array) -> Array:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def repeat_heads(x: Array, heads: int) -> Array:
    """Share each key or value head between neighbouring query heads."""
    own = x.shape[1]
    if own == heads:
        return x
    if own == 0 or heads % own:
        raise RunError(f"{heads} query heads don't divide among {own} key or value heads")
    return np.repeat(x, heads // own, axis=1)


def weigh(scores: Array) -> Array:
    """Softmax over the last axis in which a row of -inf gives zeros."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights: Array = np.exp(scores - np.where(np.isneginf(top), 0, top).astype(scores.dtype))
    total = weights.sum(axis=-1, keepdims=True)
    np.divide(weights, np.where(total == 0, np.ones_like(total), total), out=weights)
    return weights


@dataclass(frozen=True)
class _Options:
    causal: bool
    left: int
    right: int
    scale: float | None
    softcap: float
    softmax_type: np.dtype[Any] | None
    query_heads: int | None
    key_heads: int | None
    score_mode: int

    @classmethod
    def of(cls, node: KernelNode) -> _Options:
        precision = node.attr("softmax_precision")
        scale = node.attr("scale")
        return cls(
            causal=bool(node.attr("is_causal", 0)),
            left=int(node.attr("left_window_size", -1)),
            right=int(node.attr("right_window_size", -1)),
            scale=None if scale is None else float(scale),
            softcap=float(node.attr("softcap", 0.0)),
            softmax_type=None if precision is None else attribute_dtype(int(precision)),
            query_heads=node.attr("q_num_heads"),
            key_heads=node.attr("kv_num_heads"),
            score_mode=int(node.attr("qk_matmul_output_mode", 0)),
        )


def _position_bias(
    options: _Options, queries: int, keys: int, offset: Array, kind: np.dtype[Any]
) -> Array | None:
    """0 where the causal rule and the window allow a key, else -inf: [batch or 1, 1, q, k]."""
    if not options.causal and options.left < 0 and options.right < 0:
        return None
    ahead = np.arange(keys) - np.arange(queries)[:, None] - offset.reshape(-1, 1, 1, 1)
    allowed = np.ones(ahead.shape, np.bool_)
    if options.causal:
        allowed &= ahead <= 0
    if options.left >= 0:
        allowed &= -ahead <= options.left
    if options.right >= 0:
        allowed &= ahead <= options.right
    return np.where(allowed, 0, -np.inf).astype(kind)


def _mask_bias(mask: Array, keys: int, kind: np.dtype[Any]) -> Array:
    """A boolean or additive mask as a bias; keys beyond its end are forbidden."""
    if mask.dtype == np.bool_:
        mask = np.where(mask, 0, -np.inf)
    bias = mask.astype(kind)
    missing = keys - bias.shape[-1]
    if missing > 0:
        rest = np.full((*bias.shape[:-1], missing), -np.inf, kind)
        bias = np.concatenate([bias, rest], axis=-1)
    return bias


def _add(a: Array | None, b: Array | None) -> Array | None:
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a + b)


@TABLE.kernel("Attention", since=23)
def _attention(node: KernelNode) -> Kernel:
    options = _Options.of(node)
    outputs = len(node.node.outputs)

    def run(
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        valid_keys: Array | None = None,
    ) -> Any:
        if (past_key is None) != (past_value is None):
            raise RunError("past_key and past_value go together")
        flat = q.ndim == 3
        query = split_heads(q, options.query_heads, "Q")
        key = split_heads(k, options.key_heads, "K")
        value = split_heads(v, options.key_heads, "V")
        before = 0
        if past_key is not None and past_value is not None:
            before = past_key.shape[2]
            key = np.concatenate([past_key, key], axis=2)
            value = np.concatenate([past_value, value], axis=2)
        kind = compute_dtype(q.dtype)
        queries, keys = query.shape[2], key.shape[2]
        offset = np.array([before])
        if valid_keys is not None and past_key is None:
            offset = valid_keys.reshape(-1) - queries
        bias = _position_bias(options, queries, keys, offset, kind)
        if mask is not None:
            bias = _add(bias, _mask_bias(mask, keys, kind))
        if valid_keys is not None:
            unused = np.arange(keys) >= valid_keys.reshape(-1, 1, 1, 1)
            bias = _add(bias, np.where(unused, -np.inf, 0).astype(kind))
        y, shown = _attend(options, query, key, value, bias)
        results = (
            (merge_heads(y) if flat else y),
            np.array(key) if outputs > 1 else key,
            np.array(value) if outputs > 2 else value,
            shown,
        )
        return results[:outputs] if outputs > 1 else results[0]

    return run


def _attend(
    options: _Options, query: Array, key: Array, value: Array, bias: Array | None
) -> tuple[Array, Array]:
    """Return the output [batch, heads, queries, value size] and the scores asked for."""
    dtype = query.dtype
    heads = query.shape[1]
    scale = 1 / math.sqrt(query.shape[3]) if options.scale is None else options.scale
    wide_q, wide_k, wide_v = widen(query), widen(key), widen(value)
    # Half of the scale on each side, so that 16-bit products stay in range.
    half = wide_q.dtype.type(math.sqrt(scale))
    transposed = repeat_heads(wide_k, heads).transpose(0, 1, 3, 2)
    scores = np.matmul(wide_q * half, transposed * half)
    shown = scores
    if options.softcap > 0:
        cap = scores.dtype.type(options.softcap)
        scores = np.tanh(scores / cap) * cap
    if options.score_mode == 1:
        shown = scores
    if bias is not None:
        scores = scores + bias
    if options.score_mode == 2:
        shown = scores
    if options.softmax_type is not None:
        scores = widen(scores.astype(options.softmax_type, copy=False))
    weights = weigh(scores)
    if bias is not None:
        closed = np.isneginf(bias.max(axis=-1, keepdims=True, initial=-np.inf))
        weights = np.where(closed, np.zeros((), weights.dtype), weights)
    weights = weights.astype(dtype)
    if options.score_mode == 3:
        shown = weights
    y = np.matmul(widen(weights), repeat_heads(wide_v, heads))
    return y.astype(dtype, copy=False), shown.astype(dtype, copy=False)


# ---------------------------------------------------------------- rotary embedding


def rotate(x: Array, cos: Array, sin: Array, size: int, interleaved: bool) -> Array:
    """Rotate the first `size` elements of x [batch, length, heads, head size].

    `cos` and `sin` are [batch, length, size / 2].
    """
    if cos.shape[-1] != size // 2 or sin.shape != cos.shape:
        raise RunError(
            "wrong shape of the rotary caches",
            expected=f"last axis {size // 2}",
            got=(cos.shape, sin.shape),
        )
    turned = x[..., :size]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., : size // 2], turned[..., size // 2 :]
    wide_cos, wide_sin = cos[:, :, None], sin[:, :, None]
    real = wide_cos * first - wide_sin * second
    imaginary = wide_sin * first + wide_cos * second
    result = x.copy()
    if interleaved:
        result[..., 0:size:2] = real
        result[..., 1:size:2] = imaginary
    else:
        result[..., : size // 2] = real
        result[..., size // 2 : size] = imaginary
    return result


@TABLE.kernel("RotaryEmbedding", since=23)
def _rotary_embedding(node: KernelNode) -> Kernel:
    heads = int(node.attr("num_heads", 0))
    partial = int(node.attr("rotary_embedding_dim", 0))
    interleaved = bool(node.attr("interleaved", 0))

    def run(x: Array, cos: Array, sin: Array, positions: Array | None = None) -> Array:
        if x.ndim == 4:
            values = x.transpose(0, 2, 1, 3)
        elif x.ndim == 3 and heads > 0 and x.shape[2] % heads == 0:
            values = x.reshape(*x.shape[:2], heads, -1)
        else:
            raise RunError("RotaryEmbedding needs 4 axes, or 3 and num_heads", got=(x.shape, heads))
        if positions is not None:
            places = check_indices(positions, cos.shape[0])
            cos, sin = cos[places], sin[places]
        size = partial or values.shape[3]
        rotated = rotate(widen(values), widen(cos), widen(sin), size, interleaved)
        rotated = rotated.astype(x.dtype, copy=False)
        return rotated.transpose(0, 2, 1, 3) if x.ndim == 4 else rotated.reshape(x.shape)

    return run


# ---------------------------------------------------------------- linear attention


@TABLE.kernel("LinearAttention", since=27)
def _linear_attention(node: KernelNode) -> Kernel:
    query_heads = int(node.attr("q_num_heads"))
    key_heads = int(node.attr("kv_num_heads"))
    fixed_scale = float(node.attr("scale", 0.0))
    rule = text(node.attr("update_rule", "gated_delta"))
    gated = rule in ("gated", "gated_delta")
    corrected = rule in ("delta", "gated_delta")

    def run(
        q: Array,
        k: Array,
        v: Array,
        past: Array | None = None,
        decay: Array | None = None,
        beta: Array | None = None,
    ) -> tuple[Array, Array]:
        if (gated and decay is None) or (corrected and beta is None):
            raise RunError(f"update_rule {rule!r} needs decay or beta")
        query = widen(split_heads(q, query_heads, "query"))
        key = widen(split_heads(k, key_heads, "key"))
        value = widen(split_heads(v, key_heads, "value"))
        batch, _, length, size = key.shape
        scale = fixed_scale or 1 / math.sqrt(query.shape[3])
        kind = key.dtype if past is None else widen(past).dtype
        state = np.zeros((batch, key_heads, size, value.shape[3]), kind)
        if past is not None:
            state = widen(past).copy()
        gate = None if decay is None or not gated else _per_head(np.exp(widen(decay)), key_heads)
        rate = None if beta is None or not corrected else _per_head(widen(beta), key_heads)
        share = query_heads // key_heads
        output = np.empty((batch, query_heads, length, value.shape[3]), query.dtype)
        for step in range(length):
            k_t, v_t = key[:, :, step, :, None], value[:, :, step, None, :]
            if gate is not None:
                state = state * gate[:, :, step, :, None]
            if rate is not None:
                known = np.matmul(k_t.swapaxes(-1, -2), state)
                v_t = (v_t - known) * rate[:, :, step, :, None]
            state = state + k_t * v_t
            shared = np.repeat(state, share, axis=1)
            output[:, :, step] = np.matmul(query[:, :, step, None, :], shared)[:, :, 0] * scale
        state_type = q.dtype if past is None else past.dtype
        return merge_heads(output).astype(q.dtype, copy=False), state.astype(state_type)

    return run


def _per_head(values: Array, heads: int) -> Array:
    """[batch, length, heads * size] as [batch, heads, length, size]; one column serves all."""
    if values.shape[2] == 1:
        values = np.repeat(values, heads, axis=2)
    return split_heads(values, heads, "decay or beta")
