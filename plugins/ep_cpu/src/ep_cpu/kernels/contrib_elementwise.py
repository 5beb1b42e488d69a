"""com.microsoft: activations, biases and softmax, element by element or row by row."""

from __future__ import annotations

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.activations import gelu_exact, gelu_tanh, swish
from ep_cpu.kernels.compound import apply_formula
from ep_cpu.kernels.softmax import softmax
from ep_cpu.kernels.support import FLOATS, Array, check_axis, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_LEGACY_FLOATS = FLOATS - {DataType.BFLOAT16}
_NARROW_FLOATS = FLOATS - {DataType.DOUBLE}


def _check_row(row: Array, x: Array, what: str) -> None:
    if row.ndim != 1 or x.ndim == 0 or row.shape[0] != x.shape[-1]:
        raise RunError(
            f"{what} must be one row", expected=f"[{x.shape[-1] if x.ndim else 1}]", got=row.shape
        )


@TABLE.kernel("FastGelu", domain="com.microsoft", types={0: FLOATS})
def _fast_gelu(node: KernelNode) -> Kernel:
    def run(x: Array, bias: Array | None = None) -> Array:
        wide = widen(x)
        if bias is not None:
            _check_row(bias, x, "the bias of FastGelu")
            wide = np.asarray(wide + widen(bias))
        return apply_formula(gelu_tanh, wide).astype(x.dtype, copy=False)

    return run


@TABLE.kernel("BiasGelu", domain="com.microsoft", types={0: FLOATS})
def _bias_gelu(node: KernelNode) -> Kernel:
    def run(x: Array, bias: Array) -> Array:
        _check_row(bias, x, "the bias of BiasGelu")
        wide = np.asarray(widen(x) + widen(bias))
        return apply_formula(gelu_exact, wide).astype(x.dtype, copy=False)

    return run


@TABLE.kernel("BiasSplitGelu", domain="com.microsoft", types={0: _LEGACY_FLOATS})
def _bias_split_gelu(node: KernelNode) -> Kernel:
    """The left half of x + bias times the GELU of the right half."""

    def run(x: Array, bias: Array) -> Array:
        _check_row(bias, x, "the bias of BiasSplitGelu")
        if x.shape[-1] % 2:
            raise RunError("BiasSplitGelu needs an even last axis", got=x.shape)
        left, right = np.split(widen(x) + widen(bias), 2, axis=-1)
        product: Array = np.multiply(left, apply_formula(gelu_exact, right))
        return product.astype(x.dtype, copy=False)

    return run


@TABLE.kernel("BiasAdd", domain="com.microsoft", types={0: _LEGACY_FLOATS})
def _bias_add(node: KernelNode) -> Kernel:
    def run(x: Array, bias: Array, skip: Array) -> Array:
        _check_row(bias, x, "the bias of BiasAdd")
        if skip.shape != x.shape:
            raise RunError("the residual of BiasAdd", expected=x.shape, got=skip.shape)
        return np.asarray(widen(x) + widen(bias) + widen(skip)).astype(x.dtype, copy=False)

    return run


@TABLE.kernel("BiasSoftmax", domain="com.microsoft", types={0: _LEGACY_FLOATS})
def _bias_softmax(node: KernelNode) -> Kernel:
    """Softmax over all axes from `axis` on.

    The bias has 1s, or lacks axes, where it broadcasts, so `is_inner_broadcast` adds nothing.
    """
    axis = int(node.attr("axis", 1))

    def run(x: Array, bias: Array) -> Array:
        if np.broadcast_shapes(x.shape, bias.shape) != x.shape:
            raise RunError("the bias of BiasSoftmax", expected=x.shape, got=bias.shape)
        first = check_axis(axis, x.ndim)
        total = np.asarray(widen(x) + widen(bias))
        if total.size == 0:
            return total.astype(x.dtype)
        rows = total.reshape(*x.shape[:first], -1)
        return softmax(rows).reshape(x.shape).astype(x.dtype, copy=False)

    return run


# ---------------------------------------------------------------- SiLU


@TABLE.kernel("SwiGLU", domain="com.microsoft", types={0: _NARROW_FLOATS})
def _swiglu(node: KernelNode) -> Kernel:
    formula = swish(float(node.attr("activation_alpha", 1.0)))
    beta = float(node.attr("activation_beta", 0.0))
    limit = float(node.attr("limit", 0.0))
    rounded = bool(node.attr("round_activation", 0))

    def run(gate: Array, up: Array | None = None) -> Array:
        dtype = gate.dtype
        if up is None:
            if gate.ndim == 0 or gate.shape[-1] % 2:
                raise RunError("SwiGLU of one input needs an even last axis", got=gate.shape)
            gate, up = np.split(gate, 2, axis=-1)
        elif up.shape != gate.shape:
            raise RunError("inputs of SwiGLU", expected=gate.shape, got=up.shape)
        wide, factor = widen(gate), widen(up)
        if limit > 0:
            wide = np.minimum(wide, np.float32(limit))
            factor = np.clip(factor, np.float32(-limit), np.float32(limit))
        gated = apply_formula(formula, wide)
        if rounded:
            gated = widen(gated.astype(dtype, copy=False))
        return np.asarray(gated * (factor + np.float32(beta))).astype(dtype, copy=False)

    return run
