"""Attention written out in float64, for the tests of all its forms."""

from __future__ import annotations

import numpy as np

TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}
HEADS, SIZE = 2, 8
RNG = np.random.default_rng(15)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def by_heads(x, heads=HEADS):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3).astype(np.float64)


def attention(query, key, value, bias=0.0, scale=None):
    """One head after another, [batch, heads, length, size] in and [batch, length, ...] out."""
    scores = query @ key.transpose(0, 1, 3, 2) * (scale or query.shape[-1] ** -0.5) + bias
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = weights @ value
    return np.concatenate(list(mixed.transpose(1, 0, 2, 3)), axis=-1)


def causal(queries, keys, past=0):
    return np.where(np.arange(keys) > np.arange(queries)[:, None] + past, -np.inf, 0)
