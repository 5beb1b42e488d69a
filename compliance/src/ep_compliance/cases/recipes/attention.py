"""Attention and what belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.oracle.precision import Array
from ep_core.types import DataType

__all__: list[str] = []


@recipe("Attention")
def attention(ask: Ask) -> Iterator[Sample]:
    """Heads split and packed, grouped, masked, causal, with a past."""
    second = ask.type_of(2, ask.dtype)
    q, k = ask.random(2, 4, 3, 8), ask.random(2, 4, 5, 8)
    v = ask.random(2, 4, 5, 6, dtype=second)
    yield Sample("plain", [q, k, v], core=True)
    yield Sample("scale", [q, k, v], {"scale": 0.5})
    yield Sample("causal", [q, k, v], {"is_causal": 1}, core=True)
    yield Sample("softcap", [q, k, v], {"softcap": 2.0})
    grouped = [q, k[:, :2].copy(), v[:, :2].copy()]
    yield Sample("grouped", grouped)
    mask = ask.random(3, 5, dtype=DataType.BOOL)
    mask[:, 0] = True
    yield Sample("bool mask", [q, k, v, mask], core=True)
    yield Sample("float mask", [q, k, v, ask.random(2, 1, 3, 5)])
    past = [ask.random(2, 4, 2, 8), ask.random(2, 4, 2, 6, dtype=second)]
    yield Sample("past", [q, k, v, None, *past], outputs=3, core=True)
    yield from _typed(ask, q, k)
    packed = [ask.random(2, 3, 32), ask.random(2, 5, 32), ask.random(2, 5, 32, dtype=second)]
    heads = {"q_num_heads": 4, "kv_num_heads": 4}
    yield Sample("packed", packed, heads, core=True)
    yield Sample("scores", [q, k, v], {"qk_matmul_output_mode": 0}, outputs=4, core=True)


def _typed(ask: Ask, q: Array, k: Array) -> Iterator[Sample]:
    """Values and masks of every type, with a past, and with lengths where the version has them."""
    for kind in ask.types(2):
        v = ask.random(2, 4, 5, 6, dtype=kind)
        yield Sample(f"values {kind.text}", [q, k, v], core=True)
        if ask.takes(6):
            inputs = [q, k, v, *_NONE, ask.ints(5, 3)]
            yield Sample(f"values {kind.text}, lengths", inputs, core=True)
        past = [ask.random(2, 4, 2, 8), ask.random(2, 4, 2, 6, dtype=kind)]
        yield Sample(f"values {kind.text}, past", [q, k, v, None, *past], outputs=4, core=True)
    v = ask.random(2, 4, 5, 6, dtype=ask.type_of(2, ask.dtype))
    past = [ask.random(2, 4, 2, 8), ask.random(2, 4, 2, 6, dtype=ask.type_of(2, ask.dtype))]
    for kind in ask.types(3):
        mask = ask.random(3, 7, dtype=kind, low=0, high=1)
        if kind is DataType.BOOL:
            mask[:, 0] = True
        inputs = [q, k, v, mask, *past]
        yield Sample(f"mask {kind.text}, past", inputs, outputs=4, core=True)
        if ask.takes(6):
            inputs = [q, k, v, mask[:, :5].copy(), *_NONE[:2], ask.ints(5, 3)]
            yield Sample(f"mask {kind.text}, lengths", inputs, core=True)


_NONE: tuple[Any, ...] = (None, None, None)


@recipe("RotaryEmbedding")
def rotary(ask: Ask) -> Iterator[Sample]:
    """Caches by position, interleaved, partial, packed."""
    x = ask.random(2, 3, 4, 8)
    cos, sin = ask.random(6, 4), ask.random(6, 4)
    places = ask.ints(0, 1, 2, 3, 2, 5, 4, 1)[:8].reshape(2, 4)
    yield Sample("plain", [x, cos, sin, places], core=True)
    yield Sample("interleaved", [x, cos, sin, places], {"interleaved": 1}, core=True)
    partial = {"rotary_embedding_dim": 4}
    narrow = [ask.random(6, 2), ask.random(6, 2)]
    yield Sample("partial", [x, *narrow, places], partial)
    own = [ask.random(2, 4, 4), ask.random(2, 4, 4)]
    yield Sample("no positions", [x, *own])
    yield Sample("packed", [ask.random(2, 4, 24), cos, sin, places], {"num_heads": 3})


@recipe("LinearAttention")
def linear_attention(ask: Ask) -> Iterator[Sample]:
    """Plain and gated, with and without a past."""
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    q, k, v = (ask.random(1, 4, 8, low=-1, high=1) for _ in range(3))
    yield Sample("linear", [q, k, v], {**heads, "update_rule": "linear"}, outputs=2, core=True)
    decay = ask.random(1, 4, 2, low=-1, high=0)
    strength = ask.random(1, 4, 2, low=0.25, high=1)
    for kind in ask.types(3):
        past = ask.random(1, 2, 4, 4, dtype=kind, low=-1, high=1)
        linear = {**heads, "update_rule": "linear"}
        yield Sample(f"past {kind.text}", [q, k, v, past], linear, outputs=2, core=True)
        gated = {**heads, "update_rule": "gated"}
        yield Sample(f"gated {kind.text}", [q, k, v, past, decay], gated, outputs=2, core=True)
        delta = {**heads, "update_rule": "gated_delta"}
        inputs = [q, k, v, past, decay, strength]
        yield Sample(f"gated delta {kind.text}", inputs, delta, outputs=2, core=True)


@recipe("SwiGLU")
def swiglu(ask: Ask) -> Iterator[Sample]:
    """Two halves of the same shape."""
    yield Sample("plain", [ask.random(3, 4), ask.random(3, 4)], core=True)
    yield Sample("alpha", [ask.random(3, 4), ask.random(3, 4)], {"alpha": 1.7})
    yield Sample("symbolic", [ask.random(3, 4), ask.random(3, 4)], symbolic=True)
    yield Sample("rank0", [ask.random(), ask.random()])
    far = ask.random(16, low=-40, high=40)
    yield Sample("far out", [far, np.ones_like(far)])
