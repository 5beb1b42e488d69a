"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_compliance.oracle.precision import Array

__all__: list[str] = []


def _per_channel(values: Array, rank: int) -> Array:
    return np.asarray(values).reshape([1, -1] + [1] * (rank - 2))


@correct(
    "BatchNormalization", until=13, reason="the versions before 14 are mixed up with training mode"
)
def batch_normalization(call: NodeCall) -> Sequence[Any] | None:
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias` per channel, for inference."""
    inference = call.version >= 7 or call.attr("is_test", 0)
    if not inference or not call.attr("spatial", 1) or any(map(call.wants, range(1, 5))):
        return None
    x, scale, bias, mean, variance = call.inputs
    spread = np.sqrt(_per_channel(variance, x.ndim) + call.attr("epsilon"))
    normal = (x - _per_channel(mean, x.ndim)) / spread
    return [normal * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)]


@correct("LRN", reason="the window of an even size is off by one, and ranks other than 4 fail")
def local_response_normalization(call: NodeCall) -> Sequence[Any]:
    """Squares summed over channels `c - floor((size-1)/2)` to `c + ceil((size-1)/2)`."""
    x, size = call.inputs[0], call.attr("size")
    before, after = (size - 1) // 2, size // 2
    squares = np.zeros_like(x)
    channels = x.shape[1]
    for channel in range(channels):
        window = x[:, max(0, channel - before) : min(channels, channel + after + 1)]
        squares[:, channel] = np.sum(window**2, axis=1)
    alpha, beta, bias = call.attr("alpha"), call.attr("beta"), call.attr("bias")
    return [x / (bias + alpha / size * squares) ** beta]


@correct("LayerNormalization", reason="float16 is normalised in float16 whatever stash_type says")
def layer_normalization(call: NodeCall) -> Sequence[Any]:
    """Mean 0, variance 1 over the axes from `axis` on, then scale and bias."""
    x, scale, bias = call.input(0), call.input(1), call.input(2)
    axis = call.attr("axis", -1) % max(x.ndim, 1)
    axes = tuple(range(axis, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    inverse = 1.0 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + _epsilon(call))
    y = (x - mean) * inverse * scale
    return [y if bias is None else y + bias, mean, inverse][: len(call.node.output)]


def _epsilon(call: NodeCall) -> float:
    return float(call.attr("epsilon"))


@correct("GlobalMaxPool", reason="rank 3 fails")
def global_max_pool(call: NodeCall) -> Sequence[Any] | None:
    """The largest value of each channel."""
    x = call.inputs[0]
    if x.size == 0:
        return None
    return [x.max(axis=tuple(range(2, x.ndim)), keepdims=True)]


@correct("LpNormalization", reason="p = 1 sums the values instead of their magnitudes")
def lp_normalization(call: NodeCall) -> Sequence[Any]:
    """Divided by the norm along an axis; a norm of 0 gives 0."""
    x = call.inputs[0]
    axis, p = call.attr("axis", -1), call.attr("p", 2)
    norm = np.sum(np.abs(x) ** p, axis=axis, keepdims=True) ** (1.0 / p)
    return [np.where(norm == 0, 0.0, x / np.where(norm == 0, 1.0, norm))]


@correct("MeanVarianceNormalization", reason="constants of the function body are float32")
def mean_variance_normalization(call: NodeCall) -> Sequence[Any]:
    """`(x - mean) / (deviation + 1e-9)`."""
    x = call.inputs[0]
    axes = tuple(call.attr("axes", [0, 2, 3]))
    mean = x.mean(axis=axes, keepdims=True)
    deviation = np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True))
    return [(x - mean) / (deviation + np.float32(1e-9).astype(np.float64))]


@correct("Softmax", until=12, reason="versions before 13 flatten to two dimensions")
@correct("LogSoftmax", until=12, reason="versions before 13 flatten to two dimensions")
@correct("Hardmax", until=12, reason="versions before 13 flatten to two dimensions")
def flat_softmax(call: NodeCall) -> Sequence[Any]:
    """Over everything from the axis on."""
    x = call.inputs[0]
    axis = call.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    rows = x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
    if rows.size == 0:
        return [x.copy()]
    if call.node.op_type == "Hardmax":
        result = np.zeros_like(rows)
        result[np.arange(len(rows)), np.argmax(rows, axis=1)] = 1
        return [result.reshape(x.shape)]
    shifted = rows - rows.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, keepdims=True)
    logs = shifted - np.log(total)
    result = logs if call.node.op_type == "LogSoftmax" else np.exp(shifted) / total
    return [result.reshape(x.shape)]
