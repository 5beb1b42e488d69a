"""com.microsoft.GroupQueryAttention: attention of decoders, with a cache of keys and values.

The cache comes in as past and goes out as present; what a present cache holds behind its valid
rows is 0. Sequences of a batch may have different lengths, padded at their ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.attention import split_heads
from ep_cpu.kernels.contrib_attention_support import attend, causal_pattern
from ep_cpu.kernels.contrib_rotary import rotated
from ep_cpu.kernels.support import FLOATS, Array, scalar, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_TYPES = FLOATS - {DataType.DOUBLE}
_UNKNOWN_INPUTS = {
    12: "a quantised cache",
    13: "a quantised cache",
    14: "normalisation of queries",
    15: "normalisation of keys",
    16: "query_seqlens",
}


def _problem(node: KernelNode) -> str | None:
    for index, what in _UNKNOWN_INPUTS.items():
        if node.has_input(index):
            return f"{what} (input {index}) isn't implemented"
    if node.attr("sliding_window_cache", 0):
        return "sliding_window_cache isn't implemented"
    for name in ("k_quant_type", "v_quant_type"):
        if text(node.attr(name, "NONE")) != "NONE":
            return f"{name}={text(node.attr(name))} isn't implemented"
    if int(node.attr("local_window_size", -1)) == 0:
        return "local_window_size must be -1 or positive"
    heads, key_heads = int(node.attr("num_heads", 0)), int(node.attr("kv_num_heads", 0))
    if heads < 1 or key_heads < 1 or heads % key_heads:
        return f"{heads} query heads don't divide among {key_heads} key heads"
    return None


@dataclass(frozen=True)
class _Options:
    heads: int
    key_heads: int
    scale: float | None
    softcap: float
    causal: bool
    window: int
    rotary: bool
    interleaved: bool
    smooth: bool
    shown: int

    @classmethod
    def of(cls, node: KernelNode) -> _Options:
        return cls(
            heads=int(node.attr("num_heads")),
            key_heads=int(node.attr("kv_num_heads")),
            scale=float(node.attr("scale", 0.0)) or None,
            softcap=float(node.attr("softcap", 0.0)),
            causal=bool(node.attr("causal", 1)),
            window=int(node.attr("local_window_size", -1)),
            rotary=bool(node.attr("do_rotary", 0)),
            interleaved=bool(node.attr("rotary_interleaved", 0)),
            smooth=int(node.attr("smooth_softmax", -1)) > 0,
            shown=int(node.attr("qk_output", 0)),
        )

    def split(
        self, query: Array, key: Array | None, value: Array | None
    ) -> tuple[Array, Array, Array]:
        """Query, key and value as [batch, heads, length, size]."""
        if key is None and value is None and query.ndim == 3:
            every = self.heads + 2 * self.key_heads
            packed = split_heads(query, every, "the packed query")
            ends = [self.heads, self.heads + self.key_heads]
            q, k, v = np.split(packed, ends, axis=1)
            return q, k, v
        if query.ndim != 3 or key is None or value is None or key.ndim != 3 or value.ndim != 3:
            raise RunError(
                "GroupQueryAttention needs query, key and value of 3 axes, or one packed query",
                got=query.shape,
            )
        q = split_heads(query, self.heads, "query")
        k = split_heads(key, self.key_heads, "key")
        v = split_heads(value, self.key_heads, "value")
        if k.shape != v.shape or (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
            raise RunError(
                "query, key and value don't go together", got=(q.shape, k.shape, v.shape)
            )
        return q, k, v


@dataclass(frozen=True)
class _Lengths:
    """How many keys each sequence had before the call (`past`) and has behind it (`total`)."""

    past: Array
    total: Array
    longest: int
    first: bool

    @classmethod
    def of(cls, seqlens: Array, longest: Array, batch: int, new: int, capacity: int) -> _Lengths:
        """Check the lengths of a batch with `new` tokens each and a cache of `capacity`."""
        limit = int(scalar(longest, "total_sequence_length"))
        if seqlens.size != batch:
            raise RunError("wrong shape of seqlens_k", expected=(batch,), got=seqlens.shape)
        total = seqlens.reshape(-1).astype(np.int64) + 1
        first = limit == new
        past = np.zeros_like(total) if first else total - new
        if limit < new or total.min(initial=1) < 1 or total.max(initial=1) > limit:
            raise RunError(
                "seqlens_k and total_sequence_length contradict the inputs",
                expected=f"1 <= seqlens_k + 1 <= total_sequence_length >= {new}",
                got=(total.tolist(), limit),
            )
        if past.min(initial=0) < 0 or past.max(initial=0) > capacity:
            raise RunError(
                "the past cache is too short for seqlens_k, or seqlens_k for the new tokens",
                expected=f"0 to {capacity} earlier tokens",
                got=past.tolist(),
            )
        return cls(past, total, limit, first)


def _present(past: Array | None, new: Array, lengths: _Lengths) -> Array:
    """The cache with the new rows of each sequence behind its old ones."""
    batch, heads, count, size = new.shape
    capacity = 0
    if past is not None:
        if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (batch, heads, size):
            raise RunError(
                "wrong shape of a past cache",
                expected=f"[{batch}, {heads}, length, {size}]",
                got=past.shape,
            )
        capacity = past.shape[2]
    cache = np.zeros((batch, heads, max(capacity, lengths.longest), size), new.dtype)
    for index, before in enumerate(lengths.past.tolist()):
        if past is not None:
            cache[index, :, :before] = past[index, :, :before]
        cache[index, :, before : before + count] = new[index]
    return cache


def _closed(options: _Options, lengths: _Lengths, queries: int) -> Array:
    """True where a query must not see a key: [batch, 1, queries, longest]."""
    keys = np.arange(lengths.longest)
    patterns = []
    for past, total in zip(lengths.past.tolist(), lengths.total.tolist(), strict=True):
        pattern = np.broadcast_to(keys >= total, (queries, lengths.longest))
        if options.causal:
            pattern = pattern | causal_pattern(queries, lengths.longest, past)
            if options.window > 0:
                own = past + np.arange(queries)[:, None]
                pattern = pattern | (keys <= own - options.window)
        patterns.append(pattern)
    return np.stack(patterns)[:, None]


def _places(positions: Array | None, lengths: _Lengths, queries: int) -> Array:
    """Positions for the rotation: [batch, queries].

    A first prompt takes only the very first of the positions given, as the operator is defined.
    """
    if positions is not None and not lengths.first:
        if positions.shape != (lengths.past.size, queries):
            raise RunError(
                "wrong shape of position_ids",
                expected=(lengths.past.size, queries),
                got=positions.shape,
            )
        return positions
    start = lengths.past
    if positions is not None and positions.size:
        start = np.full_like(lengths.past, positions.reshape(-1)[0])
    return np.asarray(start[:, None] + np.arange(queries))


def _rotated_heads(x: Array, cos: Array, sin: Array, places: Array, interleaved: bool) -> Array:
    """Rotate [batch, heads, length, size]."""
    by_length = x.transpose(0, 2, 1, 3)
    return rotated(by_length, cos, sin, places, interleaved).transpose(0, 2, 1, 3)


@TABLE.kernel(
    "GroupQueryAttention",
    domain="com.microsoft",
    types={0: _TYPES, 3: _TYPES, 4: _TYPES},
    predicate=_problem,
)
def _group_query_attention(node: KernelNode) -> Kernel:
    options = _Options.of(node)
    outputs = len(node.node.outputs)

    def run(*inputs: Array | None) -> Any:
        query, key, value, past_key, past_value, seqlens, longest = inputs[:7]
        rest = (*inputs[7:], *(None,) * 12)
        cos, sin, positions, score_bias, sink = rest[:5]
        assert query is not None
        assert seqlens is not None
        assert longest is not None
        q, k, v = options.split(query, key, value)
        if (past_key is None) != (past_value is None):
            raise RunError("past_key and past_value go together")
        batch, _, count, size = q.shape
        capacity = 0 if past_key is None else past_key.shape[2]
        lengths = _Lengths.of(seqlens, longest, batch, count, capacity)
        if options.rotary:
            if cos is None or sin is None:
                raise RunError("do_rotary needs cos_cache and sin_cache")
            places = _places(positions, lengths, count)
            q, k = (_rotated_heads(x, cos, sin, places, options.interleaved) for x in (q, k))
        keys, values = _present(past_key, k, lengths), _present(past_value, v, lengths)
        if sink is None and options.smooth:
            sink = np.zeros(options.heads, np.float32)
        found = attend(
            q,
            keys[:, :, : lengths.longest],
            values[:, :, : lengths.longest],
            scale=options.scale or 1 / math.sqrt(size),
            biases=(score_bias,),
            closed=_closed(options, lengths, count),
            softcap=options.softcap,
            sink=sink,
        )
        y = found.output.astype(query.dtype, copy=False)
        if outputs == 1:
            return y
        shown = found.scores if options.shown == 1 else found.weights
        return (y, keys, values, shown.astype(query.dtype))[:outputs]

    return run
