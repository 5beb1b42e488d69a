"""Normalisations: batch, instance, group, layer, RMS, Lp, LRN, mean-variance."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, attribute_dtype, check_axis, compute_dtype, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_EPSILON = 1e-5


def _per_channel(vector: Array, rank: int) -> Array:
    return vector.reshape(-1, *[1] * (rank - 2)) if rank > 1 else vector


def _inverse_deviation(variance: Array, epsilon: float) -> Array:
    root: Array = np.sqrt(variance + variance.dtype.type(epsilon))
    return np.reciprocal(root)


# ---------------------------------------------------------------- batch


def _affine(scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float) -> Any:
    """Batch normalisation with fixed statistics is x * factor + offset, per channel."""
    factor = widen(scale) * _inverse_deviation(widen(variance), epsilon)
    return factor, widen(bias) - widen(mean) * factor


@TABLE.kernel("BatchNormalization")
def _batch_normalization(node: KernelNode) -> Kernel:
    """Inference unless the node says otherwise.

    From version 14 on training_mode says so; before, a node with more than one output trains.
    """
    version = node.version
    if version < 14:
        training = any(node.wants_output(i) for i in range(1, 5))
    else:
        training = bool(node.attr("training_mode", 0))
    if version < 9 and not node.attr("spatial", 1):
        return _batch_per_element(node)
    if training:
        return _batch_training(node)
    return _batch_inference(node)


def _batch_inference(node: KernelNode) -> Kernel:
    epsilon = float(node.attr("epsilon", _EPSILON))
    parameters: list[Any] = [node.constants[i] for i in range(1, 5)]
    ready: Any = None
    if all(value is not None for value in parameters):
        scale, bias, mean, variance = parameters
        ready = _affine(scale, bias, mean, variance, epsilon)

    def run(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
        factor, offset = ready or _affine(scale, bias, mean, variance, epsilon)
        wide = widen(x)
        kind = wide.dtype
        result: Array = wide * _per_channel(factor, x.ndim).astype(kind, copy=False)
        result += _per_channel(offset, x.ndim).astype(kind, copy=False)
        return result.astype(x.dtype, copy=False)

    return run


def _batch_per_element(node: KernelNode) -> Kernel:
    """spatial=0: statistics per element of a sample."""
    epsilon = float(node.attr("epsilon", _EPSILON))

    def run(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
        factor, offset = _affine(scale, bias, mean, variance, epsilon)
        return np.asarray(widen(x) * factor + offset).astype(x.dtype, copy=False)

    return run


def _batch_training(node: KernelNode) -> Kernel:
    epsilon = float(node.attr("epsilon", _EPSILON))
    momentum = float(node.attr("momentum", 0.9))
    outputs = len(node.node.outputs)

    def run(
        x: Array, scale: Array, bias: Array, old_mean: Array, old_variance: Array
    ) -> tuple[Array, ...]:
        wide = widen(x)
        axes = (0, *range(2, x.ndim))
        mean = np.asarray(np.mean(wide, axis=axes))
        variance = np.asarray(np.var(wide, axis=axes))
        factor, offset = _affine(scale, bias, mean, variance, epsilon)
        y = wide * _per_channel(factor, x.ndim) + _per_channel(offset, x.ndim)
        new_mean = widen(old_mean) * momentum + mean * (1 - momentum)
        new_variance = widen(old_variance) * momentum + variance * (1 - momentum)
        kind = old_mean.dtype
        found = (
            y.astype(x.dtype, copy=False),
            new_mean.astype(kind),
            new_variance.astype(kind),
            mean.astype(kind),
            variance.astype(kind),
        )
        return found[:outputs]

    return run


# ---------------------------------------------------------------- instance, group, layer, RMS


def standardize(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """Return (x - mean) / sqrt(variance + epsilon), the mean and 1 / that root, axes kept."""
    mean = np.asarray(np.mean(x, axis=axes, keepdims=True))
    centred: Array = np.subtract(x, mean)
    variance = np.asarray(np.mean(np.multiply(centred, centred), axis=axes, keepdims=True))
    inverse = np.asarray(_inverse_deviation(variance, epsilon))
    np.multiply(centred, inverse, out=centred)
    return centred, mean, inverse


@TABLE.kernel("InstanceNormalization")
def _instance_normalization(node: KernelNode) -> Kernel:
    epsilon = float(node.attr("epsilon", _EPSILON))

    def run(x: Array, scale: Array, bias: Array) -> Array:
        if x.ndim < 3 or scale.shape != (x.shape[1],) or bias.shape != scale.shape:
            raise RunError(
                "InstanceNormalization needs [N, C, D1, ...] and [C]",
                got=(x.shape, scale.shape, bias.shape),
            )
        result, _, _ = standardize(widen(x), tuple(range(2, x.ndim)), epsilon)
        result *= _per_channel(widen(scale), x.ndim)
        result += _per_channel(widen(bias), x.ndim)
        return result.astype(x.dtype, copy=False)

    return run


@TABLE.kernel("GroupNormalization", since=18)
def _group_normalization(node: KernelNode) -> Kernel:
    epsilon = float(node.attr("epsilon", _EPSILON))
    groups = int(node.attr("num_groups"))
    per_group = node.version < 21
    stash = node.attr("stash_type", 1)

    def run(x: Array, scale: Array, bias: Array) -> Array:
        batch, channels = x.shape[:2]
        if groups < 1 or channels % groups:
            raise RunError(f"{channels} channels don't divide into {groups} groups")
        if per_group:
            scale = np.repeat(scale, channels // groups)
            bias = np.repeat(bias, channels // groups)
        wide = x.astype(attribute_dtype(stash) if stash else compute_dtype(x.dtype), copy=False)
        wide = widen(wide)
        grouped, _, _ = standardize(wide.reshape(batch, groups, -1), (2,), epsilon)
        result = grouped.reshape(x.shape).astype(x.dtype, copy=False)
        result = widen(result) * _per_channel(widen(scale), x.ndim)
        result += _per_channel(widen(bias), x.ndim)
        return result.astype(x.dtype, copy=False)

    return run


@TABLE.kernel("LayerNormalization", since=1)
def _layer_normalization(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", -1))
    epsilon = float(node.attr("epsilon", _EPSILON))
    stash = attribute_dtype(int(node.attr("stash_type", 1)))
    outputs = max((i + 1 for i in range(3) if node.wants_output(i)), default=1)

    def run(x: Array, scale: Array, bias: Array | None = None) -> Any:
        axes = tuple(range(check_axis(axis, x.ndim), x.ndim))
        kind = np.float64 if x.dtype == np.float64 else compute_dtype(stash)
        result, mean, inverse = standardize(x.astype(kind, copy=False), axes, epsilon)
        result = widen(result.astype(x.dtype, copy=False))
        result = np.asarray(result * widen(scale))
        if bias is not None:
            result = np.asarray(result + widen(bias))
        y = result.astype(x.dtype, copy=False)
        if outputs == 1:
            return y
        return (y, mean.astype(stash, copy=False), inverse.astype(stash, copy=False))[:outputs]

    return run


@TABLE.kernel("RMSNormalization", since=23)
def _rms_normalization(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", -1))
    epsilon = float(node.attr("epsilon", _EPSILON))
    stash = attribute_dtype(int(node.attr("stash_type", 1)))

    def run(x: Array, scale: Array) -> Array:
        axes = tuple(range(check_axis(axis, x.ndim), x.ndim))
        kind = np.float64 if x.dtype == np.float64 else compute_dtype(stash)
        wide = x.astype(kind, copy=False)
        square = np.asarray(np.mean(np.multiply(wide, wide), axis=axes, keepdims=True))
        normal = np.multiply(wide, _inverse_deviation(square, epsilon))
        normal = widen(normal.astype(x.dtype, copy=False))
        return np.asarray(normal * widen(scale)).astype(scale.dtype, copy=False)

    return run


@TABLE.kernel("MeanVarianceNormalization", since=9)
def _mean_variance_normalization(node: KernelNode) -> Kernel:
    axes = tuple(int(axis) for axis in node.attr("axes", (0, 2, 3)))

    def run(x: Array) -> Array:
        chosen = tuple(check_axis(axis, x.ndim) for axis in axes)
        wide = widen(x)
        centred = wide - np.mean(wide, axis=chosen, keepdims=True)
        root = np.sqrt(np.mean(centred * centred, axis=chosen, keepdims=True))
        return np.asarray(centred / (root + wide.dtype.type(1e-9))).astype(x.dtype, copy=False)

    return run


# ---------------------------------------------------------------- norms


@TABLE.kernel("LpNormalization")
def _lp_normalization(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", -1))
    order = int(node.attr("p", 2))

    def run(x: Array) -> Array:
        along = check_axis(axis, x.ndim)
        wide = widen(x)
        if order == 1:
            norm = np.sum(np.absolute(wide), axis=along, keepdims=True)
        else:
            norm = np.sqrt(np.sum(wide * wide, axis=along, keepdims=True))
        # A vector of zeros stays one.
        divisor = np.where(norm == 0, np.ones_like(norm), norm)
        return np.asarray(wide / divisor).astype(x.dtype, copy=False)

    return run


@TABLE.kernel("LRN")
def _lrn(node: KernelNode) -> Kernel:
    size = int(node.attr("size"))
    alpha = float(node.attr("alpha", 1e-4))
    beta = float(node.attr("beta", 0.75))
    bias = float(node.attr("bias", 1.0))
    before = (size - 1) // 2

    def run(x: Array) -> Array:
        wide = widen(x)
        channels = x.shape[1]
        square = wide * wide
        total = np.zeros_like(square)
        for offset in range(-before, size - before):
            source = slice(max(0, offset), min(channels, channels + offset))
            target = slice(max(0, -offset), min(channels, channels - offset))
            if source.start < source.stop:
                total[:, target] += square[:, source]
        scale = np.power(bias + alpha / size * total, beta).astype(wide.dtype)
        return np.asarray(wide / scale).astype(x.dtype, copy=False)

    return run
