"""Activation functions: formulas of several passes over one input."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ep_cpu.kernels.compound import Formula, apply_formula, compound_kernel, erf, sigmoid, softplus
from ep_cpu.kernels.support import FLOATS, Array, as_array, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

MakeFormula = Callable[[KernelNode], Formula]


def _formula(
    op_type: str, *, since: int = 1, domain: str = ""
) -> Callable[[MakeFormula], MakeFormula]:
    """Register an operator whose kernel is one formula."""

    def add(make_formula: MakeFormula) -> MakeFormula:
        key: str | int = 0 if domain else "T"

        @TABLE.kernel(op_type, domain=domain, since=since, types={key: FLOATS}, writes_out=True)
        def make(node: KernelNode) -> Kernel:
            return compound_kernel(make_formula(node))

        return make_formula

    return add


@_formula("Sigmoid")
def _sigmoid(node: KernelNode) -> Formula:
    return sigmoid


@_formula("Softplus")
def _softplus(node: KernelNode) -> Formula:
    return softplus


@_formula("Erf")
def _erf(node: KernelNode) -> Formula:
    return erf


@_formula("Softsign")
def _softsign(node: KernelNode) -> Formula:
    def formula(x: Array, out: Array) -> None:
        np.absolute(x, out=out)
        np.add(out, 1, out=out)
        np.divide(x, out, out=out)

    return formula


def gelu_exact(x: Array, out: Array) -> None:
    """0.5 x (1 + erf(x / sqrt 2))."""
    erf(x * x.dtype.type(math.sqrt(0.5)), out)
    np.add(out, 1, out=out)
    np.multiply(out, 0.5, out=out)  # before x, so that the largest numbers don't overflow
    np.multiply(out, x, out=out)


def gelu_tanh(x: Array, out: Array) -> None:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    np.multiply(x, x, out=out)
    np.multiply(out, 0.044715, out=out)
    np.add(out, 1, out=out)
    np.multiply(out, x, out=out)
    np.multiply(out, math.sqrt(2 / math.pi), out=out)
    np.tanh(out, out=out)
    np.add(out, 1, out=out)
    np.multiply(out, 0.5, out=out)  # before x, so that the largest numbers don't overflow
    np.multiply(out, x, out=out)


@_formula("Gelu")
def _gelu(node: KernelNode) -> Formula:
    return gelu_tanh if text(node.attr("approximate", "none")) == "tanh" else gelu_exact


@_formula("Gelu", domain="com.microsoft")
def _microsoft_gelu(node: KernelNode) -> Formula:
    return gelu_exact


def swish(alpha: float) -> Formula:
    """X * sigmoid(alpha * x)."""

    def formula(x: Array, out: Array) -> None:
        np.multiply(x, -alpha, out=out)
        np.exp(out, out=out)
        np.add(out, 1, out=out)
        np.divide(x, out, out=out)

    return formula


@_formula("Swish")
def _swish(node: KernelNode) -> Formula:
    return swish(float(node.attr("alpha", 1.0)))


@_formula("QuickGelu", domain="com.microsoft")
def _quick_gelu(node: KernelNode) -> Formula:
    return swish(float(node.attr("alpha", 1.702)))


@_formula("HardSigmoid")
def _hard_sigmoid(node: KernelNode) -> Formula:
    alpha = float(node.attr("alpha", 0.2))
    beta = float(node.attr("beta", 0.5))

    def formula(x: Array, out: Array) -> None:
        np.multiply(x, alpha, out=out)
        np.add(out, beta, out=out)
        np.clip(out, 0, 1, out=out)

    return formula


@_formula("HardSwish")
def _hard_swish(node: KernelNode) -> Formula:
    def formula(x: Array, out: Array) -> None:
        np.divide(x, 6, out=out)
        np.add(out, 0.5, out=out)
        np.clip(out, 0, 1, out=out)
        np.multiply(out, x, out=out)

    return formula


def _exponential_unit(alpha: float, gamma: float, divisor: float) -> Formula:
    """Gamma * x above 0, gamma * alpha * (exp(x / divisor) - 1) below."""

    def formula(x: Array, out: Array) -> None:
        np.minimum(x, 0, out=out)
        np.divide(out, divisor, out=out)
        np.expm1(out, out=out)
        np.multiply(out, gamma * alpha, out=out)
        np.multiply(x, gamma, out=out, where=x > 0)

    return formula


@_formula("Elu")
def _elu(node: KernelNode) -> Formula:
    return _exponential_unit(float(node.attr("alpha", 1.0)), 1.0, 1.0)


@_formula("Selu")
def _selu(node: KernelNode) -> Formula:
    old = node.version < 6
    alpha = float(node.attr("alpha", 1.6732 if old else 1.67326319217681884765625))
    gamma = float(node.attr("gamma", 1.0507 if old else 1.05070102214813232421875))
    return _exponential_unit(alpha, gamma, 1.0)


@_formula("Celu")
def _celu(node: KernelNode) -> Formula:
    alpha = float(node.attr("alpha", 1.0))

    def formula(x: Array, out: Array) -> None:
        np.divide(x, alpha, out=out)
        np.expm1(out, out=out)
        np.multiply(out, alpha, out=out)
        np.minimum(out, 0, out=out)
        np.add(out, np.maximum(x, 0), out=out)

    return formula


@_formula("Mish")
def _mish(node: KernelNode) -> Formula:
    def formula(x: Array, out: Array) -> None:
        softplus(x, out)
        np.tanh(out, out=out)
        np.multiply(out, x, out=out)

    return formula


@_formula("LeakyRelu")
def _leaky_relu(node: KernelNode) -> Formula:
    alpha = float(node.attr("alpha", 0.01))

    def formula(x: Array, out: Array) -> None:
        np.copyto(out, x)
        np.multiply(x, alpha, out=out, where=x < 0)

    return formula


@_formula("ThresholdedRelu")
def _thresholded_relu(node: KernelNode) -> Formula:
    alpha = float(node.attr("alpha", 1.0))

    def formula(x: Array, out: Array) -> None:
        out[...] = 0
        np.copyto(out, x, where=x > alpha)

    return formula


@TABLE.kernel("Shrink")
def _shrink(node: KernelNode) -> Kernel:
    bias = float(node.attr("bias", 0.0))
    limit = float(node.attr("lambd", 0.5))

    def run(x: Array) -> Array:
        wide = widen(x)
        if wide.dtype.kind in "iu":
            wide = wide.astype(np.float64)
        # With a NaN all comparisons are false, which gives the 0 that the formula asks for.
        moved = np.where(wide < -limit, wide + bias, np.where(wide > limit, wide - bias, 0))
        return moved.astype(x.dtype)

    return run


@TABLE.kernel("Relu", writes_out=True)
def _relu(node: KernelNode) -> Kernel:
    def run(x: Array, *, out: Array | None = None) -> Array:
        return as_array(np.maximum(x, x.dtype.type(0), out=out))

    return run


@TABLE.kernel("PRelu")
def _prelu(node: KernelNode) -> Kernel:
    per_channel = node.version < 7

    def run(x: Array, slope: Array) -> Array:
        if per_channel and slope.size > 1:
            slope = slope.reshape(slope.shape + (1,) * (x.ndim - 2))
        return np.where(x < 0, x * slope.astype(x.dtype, copy=False), x)

    return run


@TABLE.kernel("SwiGLU", since=28, types={"T": FLOATS})
def _swiglu(node: KernelNode) -> Kernel:
    formula = swish(float(node.attr("alpha", 1.0)))

    def run(gate: Array, value: Array) -> Array:
        gated = apply_formula(formula, widen(gate))
        return np.multiply(gated, widen(value)).astype(gate.dtype, copy=False)

    return run
