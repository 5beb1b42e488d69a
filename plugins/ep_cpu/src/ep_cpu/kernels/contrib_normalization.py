"""com.microsoft: normalisations that are fused with residual sums, and of groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.compound import apply_formula, sigmoid
from ep_cpu.kernels.normalization import standardize
from ep_cpu.kernels.support import FLOATS, Array, attribute_dtype, check_axis, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["check_vector"]

_SINGLE_FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16})


def check_vector(vector: Array | None, length: int, name: str) -> None:
    """Raise RunError unless a vector that is there has the given length."""
    if vector is not None and vector.shape != (length,):
        raise RunError(f"wrong shape of {name}", expected=(length,), got=vector.shape)


def _scaled_down(x: Array, epsilon: float) -> tuple[Array, Array]:
    """Return x / sqrt(mean(x ** 2) + epsilon) over the last axis, and 1 / that root."""
    square = np.mean(np.multiply(x, x), axis=-1, keepdims=True)
    inverse = np.reciprocal(np.sqrt(square + x.dtype.type(epsilon)))
    return np.multiply(x, inverse), np.asarray(inverse)


# ---------------------------------------------------------------- simplified, with residuals


@TABLE.kernel("SimplifiedLayerNormalization")
def _simplified_layer_normalization(node: KernelNode) -> Kernel:
    """What RMSNormalization was before it became standard; it is written into the same domain."""
    axis = int(node.attr("axis", -1))
    epsilon = float(node.attr("epsilon", 1e-5))
    stash = attribute_dtype(int(node.attr("stash_type", 1)))
    with_inverse = node.wants_output(1)

    def run(x: Array, scale: Array) -> Any:
        first = check_axis(axis, x.ndim)
        if scale.shape not in (x.shape[first:], (int(np.prod(x.shape[first:])),)):
            raise RunError("wrong shape of the scale", expected=x.shape[first:], got=scale.shape)
        rows = widen(x).reshape(*x.shape[:first], -1)
        result, inverse = _scaled_down(rows, epsilon)
        result = np.multiply(result, widen(scale).reshape(-1))
        y = result.reshape(x.shape).astype(scale.dtype, copy=False)
        if not with_inverse:
            return y
        kept = (*x.shape[:first], *[1] * (x.ndim - first))
        return y, inverse.reshape(kept).astype(stash, copy=False)

    return run


def _residual_sum(x: Array, skip: Array, bias: Array | None) -> Array:
    """Add x, skip and bias; `skip` may lack the batch axis or have 1 there."""
    if x.ndim not in (2, 3) or skip.shape not in (x.shape, (1, *x.shape[1:]), x.shape[1:]):
        raise RunError(
            "input and skip don't go together",
            expected="[batch, length, size] or [tokens, size], skip with or without the batch",
            got=(x.shape, skip.shape),
        )
    total = np.asarray(widen(x) + widen(skip))
    check_vector(bias, x.shape[-1], "the bias")
    return total if bias is None else np.asarray(total + widen(bias))


@TABLE.kernel("SkipLayerNormalization", domain="com.microsoft", types={0: FLOATS})
def _skip_layer_normalization(node: KernelNode) -> Kernel:
    epsilon = float(node.attr("epsilon", 1e-12))
    outputs = len(node.node.outputs)

    def run(
        x: Array,
        skip: Array,
        gamma: Array,
        beta: Array | None = None,
        bias: Array | None = None,
    ) -> Any:
        total = _residual_sum(x, skip, bias)
        check_vector(gamma, x.shape[-1], "gamma")
        check_vector(beta, x.shape[-1], "beta")
        result, mean, inverse = standardize(total, (total.ndim - 1,), epsilon)
        result *= widen(gamma)
        if beta is not None:
            result += widen(beta)
        y = result.astype(x.dtype, copy=False)
        if outputs == 1:
            return y
        statistics = (mean.astype(np.float32), inverse.astype(np.float32))
        return (y, *statistics, total.astype(x.dtype, copy=False))[:outputs]

    return run


def _no_mean(node: KernelNode) -> str | None:
    return "the mean isn't a part of this normalisation" if node.wants_output(1) else None


@TABLE.kernel(
    "SkipSimplifiedLayerNormalization",
    domain="com.microsoft",
    types={0: FLOATS},
    predicate=_no_mean,
)
def _skip_simplified_layer_normalization(node: KernelNode) -> Kernel:
    epsilon = float(node.attr("epsilon", 1e-12))
    outputs = len(node.node.outputs)

    def run(x: Array, skip: Array, gamma: Array, bias: Array | None = None) -> Any:
        total = _residual_sum(x, skip, bias)
        check_vector(gamma, x.shape[-1], "gamma")
        result, inverse = _scaled_down(total, epsilon)
        y = np.multiply(result, widen(gamma)).astype(x.dtype, copy=False)
        if outputs == 1:
            return y
        rest = (None, inverse.astype(np.float32), total.astype(x.dtype, copy=False))
        return (y, *rest)[:outputs]

    return run


# ---------------------------------------------------------------- groups


def _normalized_groups(node: KernelNode) -> Kernel:
    """A function of (x [N, ..., C] in float32, gamma, beta): the normalised and activated x."""
    epsilon = float(node.attr("epsilon", 1e-5))
    groups = int(node.attr("groups", 1))
    activated = bool(node.attr("activation", 0))

    def run(x: Array, gamma: Array, beta: Array) -> Array:
        batch, channels = x.shape[0], x.shape[-1]
        if groups < 1 or channels % groups:
            raise RunError(f"{channels} channels don't divide into {groups} groups")
        check_vector(gamma, channels, "gamma")
        check_vector(beta, channels, "beta")
        grouped, _, _ = standardize(
            x.reshape(batch, -1, groups, channels // groups), (1, 3), epsilon
        )
        result = grouped.reshape(x.shape)
        result = np.asarray(result * widen(gamma) + widen(beta))
        if activated:
            result *= apply_formula(sigmoid, result)
        return result

    return run


def _known_activation(node: KernelNode) -> str | None:
    activation = node.attr("activation", 0)
    return None if activation in (0, 1) else f"activation {activation} isn't 0 (none) or 1 (SiLU)"


@TABLE.kernel(
    "GroupNorm", domain="com.microsoft", types={0: _SINGLE_FLOATS}, predicate=_known_activation
)
def _group_norm(node: KernelNode) -> Kernel:
    normalize = _normalized_groups(node)
    last = bool(node.attr("channels_last", 1))

    def run(x: Array, gamma: Array, beta: Array) -> Array:
        if x.ndim < 3:
            raise RunError("GroupNorm needs [N, H, W, C] or [N, C, H, W]", got=x.shape)
        wide = widen(x) if last else np.moveaxis(widen(x), 1, -1)
        result: Array = normalize(wide, gamma, beta)
        if not last:
            result = np.ascontiguousarray(np.moveaxis(result, -1, 1))
        return result.astype(x.dtype, copy=False)

    return run


def _skip_group_problem(node: KernelNode) -> str | None:
    if not node.attr("channels_last", 1):
        return "channels_last=0 isn't implemented for SkipGroupNorm"
    return _known_activation(node)


@TABLE.kernel(
    "SkipGroupNorm",
    domain="com.microsoft",
    types={0: _SINGLE_FLOATS},
    predicate=_skip_group_problem,
)
def _skip_group_norm(node: KernelNode) -> Kernel:
    normalize = _normalized_groups(node)
    with_sum = node.wants_output(1)

    def run(x: Array, gamma: Array, beta: Array, skip: Array, bias: Array | None = None) -> Any:
        if x.ndim != 4:
            raise RunError("SkipGroupNorm needs [N, H, W, C]", got=x.shape)
        batch, channels = x.shape[0], x.shape[3]
        if skip.shape not in (x.shape, (batch, 1, 1, channels), (batch, channels)):
            raise RunError("wrong shape of skip", expected=x.shape, got=skip.shape)
        check_vector(bias, channels, "the bias")
        wide = widen(skip)
        total = widen(x) + (wide[:, None, None] if skip.ndim == 2 else wide)
        if bias is not None:
            total = total + widen(bias)
        y = normalize(total, gamma, beta).astype(x.dtype, copy=False)
        return (y, total.astype(x.dtype, copy=False)) if with_sum else y

    return run
