"""com.microsoft: embeddings of words, positions and segments, added and normalised."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.contrib_normalization import check_vector
from ep_cpu.kernels.gather import check_indices
from ep_cpu.kernels.normalization import standardize
from ep_cpu.kernels.support import Array, scalar, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_EIGHT_BIT = frozenset({DataType.INT8, DataType.UINT8})


def _looked_up(table: Array, places: Array, name: str) -> Array:
    if table.ndim != 2 or places.ndim != 2:
        raise RunError(
            f"the {name} embedding needs a matrix and [batch, length] of places",
            got=(table.shape, places.shape),
        )
    if places.size and int(places.min()) < 0:
        raise RunError(f"a place in the {name} embedding is negative", got=int(places.min()))
    picked: Array = table[check_indices(places, table.shape[0])]
    return picked


def _positions(words: Array) -> Array:
    if words.ndim != 2:
        raise RunError("word numbers must be [batch, length]", got=words.shape)
    return np.arange(words.shape[1])[None]


def _mask_index(mask: Array | None, shape: tuple[int, ...]) -> Array:
    """How many words of each sequence count; 0 where there is no mask."""
    if mask is None:
        return np.zeros(shape[0], np.int32)
    if mask.shape != shape:
        raise RunError("wrong shape of the mask", expected=shape, got=mask.shape)
    return np.asarray(np.sum(mask == 1, axis=1, dtype=np.int32))


def _normalized(total: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    check_vector(gamma, total.shape[2], "gamma")
    check_vector(beta, total.shape[2], "beta")
    result, _, _ = standardize(total, (2,), epsilon)
    return np.asarray(result * gamma + beta)


@TABLE.kernel(
    "EmbedLayerNormalization",
    domain="com.microsoft",
    types={2: {DataType.FLOAT, DataType.FLOAT16}},
)
def _embed_layer_normalization(node: KernelNode) -> Kernel:
    epsilon = float(node.attr("epsilon", 1e-12))
    outputs = len(node.node.outputs)

    def run(
        words: Array,
        segments: Array | None,
        word_table: Array,
        position_table: Array,
        segment_table: Array | None,
        gamma: Array,
        beta: Array,
        mask: Array | None = None,
        positions: Array | None = None,
    ) -> Any:
        places = _positions(words) if positions is None else positions
        total = widen(_looked_up(word_table, words, "word"))
        total = total + widen(_looked_up(position_table, places, "position"))
        if (segments is None) != (segment_table is None):
            raise RunError("segment_ids and segment_embedding go together")
        if segments is not None and segment_table is not None:
            total = total + widen(_looked_up(segment_table, segments, "segment"))
        dtype = word_table.dtype
        y = _normalized(total, widen(gamma), widen(beta), epsilon).astype(dtype, copy=False)
        if outputs == 1:
            return y
        return (y, _mask_index(mask, words.shape), total.astype(dtype, copy=False))[:outputs]

    return run


def _real(codes: Array, scale: Array, zero: Array | None) -> Array:
    offset = 0 if zero is None else int(scalar(zero, "a zero point"))
    real: Array = codes.astype(np.float32) - np.float32(offset)
    return real * np.float32(scalar(scale, "a scale"))


@TABLE.kernel("QEmbedLayerNormalization", domain="com.microsoft", types={2: _EIGHT_BIT})
def _quantized_embed_layer_normalization(node: KernelNode) -> Kernel:
    """The same with all tables as 8-bit integers, each with one scale and zero point."""
    epsilon = float(node.attr("epsilon", 1e-12))
    outputs = len(node.node.outputs)

    def run(*inputs: Any) -> Any:
        words, segments, word_table, position_table, segment_table, gamma, beta, mask = inputs[:8]
        scales = inputs[8:13]
        zeros = (*inputs[13:18], *(None,) * 5)
        total = _real(_looked_up(word_table, words, "word"), scales[0], zeros[0])
        places = _looked_up(position_table, _positions(words), "position")
        total = total + _real(places, scales[1], zeros[1])
        if (segments is None) != (segment_table is None or scales[2] is None):
            raise RunError("segment_ids, segment_embedding and its scale go together")
        if segments is not None:
            chosen = _looked_up(segment_table, segments, "segment")
            total = total + _real(chosen, scales[2], zeros[2])
        factor, offset = _real(gamma, scales[3], zeros[3]), _real(beta, scales[4], zeros[4])
        y = _normalized(total, factor, offset, epsilon)
        return (y, _mask_index(mask, words.shape)) if outputs > 1 else y

    return run
