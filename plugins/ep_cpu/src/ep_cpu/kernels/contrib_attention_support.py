"""What attention operators of com.microsoft share: masks and the products. No rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.attention import merge_heads
from ep_cpu.kernels.support import Array, widen

__all__ = ["Attended", "attend", "causal_pattern", "joined", "padding_bias"]


@dataclass(frozen=True)
class Attended:
    """What attention found, all float32 or float64.

    Attributes:
        output: [batch, queries, heads * value size].
        scores: [batch, heads, queries, keys] before the softmax, biases included.
        weights: the same after it.
    """

    output: Array
    scores: Array
    weights: Array


def attend(
    query: Array,
    key: Array,
    value: Array,
    *,
    scale: float,
    biases: tuple[Array | None, ...] = (),
    closed: Array | None = None,
    softcap: float = 0.0,
    sink: Array | None = None,
) -> Attended:
    """softmax(scale * Q K^T + biases) V.

    Args:
        query: [batch, heads, queries, size].
        key: [batch, key heads, keys, size]; each key head serves as many neighbouring heads.
        value: [batch, key heads, keys, value size].
        scale: factor of the products.
        biases: what is added to the scores; broadcast to [batch, heads, queries, keys].
        closed: where a query must not see a key; broadcast likewise.
        softcap: scores become tanh(scores / softcap) * softcap before the biases; 0 for no.
        sink: [heads], the score of one more key per head whose value is 0.

    Raises:
        RunError: a bias or `closed` doesn't broadcast.
    """
    batch, heads, queries, size = query.shape
    key_heads, keys = key.shape[1], key.shape[2]
    together = (batch, key_heads, heads // key_heads * queries, size)
    scaled = widen(query) * widen(query).dtype.type(scale)
    products = np.matmul(scaled.reshape(together), widen(key).swapaxes(-1, -2))
    scores: Array = products.reshape(batch, heads, queries, keys)
    if softcap > 0:
        np.divide(scores, softcap, out=scores)
        np.tanh(scores, out=scores)
        np.multiply(scores, softcap, out=scores)
    for bias in biases:
        if bias is not None:
            _check_broadcast(bias, scores.shape, "the bias of the scores")
            np.add(scores, widen(bias), out=scores)
    shown = scores
    if closed is not None:
        _check_broadcast(closed, scores.shape, "the pattern of closed keys")
        shown = np.where(closed, np.zeros((), scores.dtype), scores)
        scores = np.where(closed, np.full((), -np.inf, scores.dtype), scores)
    weights = _softmax_with_sink(scores, sink)
    mixed = np.matmul(weights.reshape(*together[:3], keys), widen(value))
    output = merge_heads(mixed.reshape(batch, heads, queries, value.shape[3]))
    return Attended(output, shown, weights)


def _check_broadcast(bias: Array, shape: tuple[int, ...], what: str) -> None:
    fits = bias.ndim <= len(shape) and all(
        own in (1, wanted) for own, wanted in zip(bias.shape[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise RunError(f"{what} doesn't fit", expected=f"broadcast to {shape}", got=bias.shape)


def _softmax_with_sink(scores: Array, sink: Array | None) -> Array:
    """Softmax over the last axis; a row without open keys gives zeros."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        sink = widen(sink).reshape(-1, 1, 1)
        top = np.maximum(top, sink)
    top = np.where(np.isneginf(top), np.zeros_like(top), top)
    weights: Array = np.subtract(scores, top)
    np.exp(weights, out=weights)
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    np.divide(weights, np.where(total == 0, np.ones_like(total), total), out=weights)
    return weights


def joined(past: Array | None, new: Array) -> Array:
    """Past and new keys or values, [batch, heads, length, size], one behind the other.

    Raises:
        RunError: their other axes differ.
    """
    if past is None:
        return new
    if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise RunError(
            "past keys or values don't fit the new ones",
            expected=f"[{new.shape[0]}, {new.shape[1]}, any, {new.shape[3]}]",
            got=past.shape,
        )
    return np.concatenate([past, new], axis=2)


def causal_pattern(queries: int, keys: int, past: int) -> Array:
    """True where a key lies behind its query: [queries, keys]."""
    return np.arange(keys) > np.arange(queries)[:, None] + past


def padding_bias(
    mask: Array, shape: tuple[int, int, int], past: int, closed: float, dtype: np.dtype[Any]
) -> Array:
    """A mask as something to add to the scores: 0 for keys that count, `closed` for the others.

    Args:
        mask: integers of one of the shapes [batch] (number of keys that count), [2 * batch]
            (ends, then starts, of those that count), [batch, keys], [batch, queries, keys] or
            [batch, 1, longest, longest] (1 for keys that count; the last for all positions).
        shape: batch, queries, keys.
        past: how many keys came before the first query.
        closed: what to add where a key doesn't count.
        dtype: type of the result.

    Returns:
        [batch, 1, 1 or queries, keys].

    Raises:
        RunError: the mask has another shape.
    """
    batch, queries, keys = shape
    if mask.ndim == 1 and mask.shape[0] in (batch, 2 * batch):
        places = np.arange(keys)
        ends = mask[:batch, None]
        open_keys = places < ends
        if mask.shape[0] == 2 * batch:
            open_keys &= places >= mask[batch:, None]
        counted = open_keys[:, None, None]
    elif mask.shape == (batch, keys):
        counted = (mask > 0)[:, None, None]
    elif mask.shape == (batch, queries, keys):
        counted = (mask > 0)[:, None]
    elif mask.ndim == 4 and mask.shape[:2] == (batch, 1) and min(mask.shape[2:]) >= keys:
        counted = mask[:, :, past : past + queries, :keys] > 0
    else:
        raise RunError(
            "wrong shape of the attention mask",
            expected=f"[{batch}], [{2 * batch}], [{batch}, {keys}], [{batch}, {queries}, {keys}] "
            f"or [{batch}, 1, L, L] with L >= {keys}",
            got=mask.shape,
        )
    return np.where(counted, 0, closed).astype(dtype)
