"""com.microsoft: convolutions and matrix products with something fused behind them."""

from __future__ import annotations

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.activations import gelu_tanh
from ep_cpu.kernels.compound import apply_formula
from ep_cpu.kernels.matmul import gemm, matmul
from ep_cpu.kernels.standard import (
    activation_kernel,
    activation_problem,
    channels_first,
    channels_last,
    standard_kernel,
)
from ep_cpu.kernels.support import FLOATS, Array, int_list, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_LEGACY_FLOATS = FLOATS - {DataType.BFLOAT16}


# ---------------------------------------------------------------- convolutions


def _activation(node: KernelNode) -> str:
    return text(node.attr("activation", ""))


def _listed_activation(node: KernelNode) -> str | None:
    return activation_problem(_activation(node), node.attr("activation_params", ()))


def _convolve_and_activate(node: KernelNode) -> Kernel:
    """Activation(Conv(x, weight, bias) + residual), channels first."""
    kept = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attributes = {name: node.attr(name) for name in kept if name in node.node.attributes}
    convolve = standard_kernel(node, "Conv", inputs=(0, 1, 2), attributes=attributes)
    activate = activation_kernel(node, _activation(node), node.attr("activation_params", ()))

    def run(
        x: Array, weight: Array, bias: Array | None = None, residual: Array | None = None
    ) -> Array:
        result: Array = convolve(x, weight, bias)
        if residual is not None:
            if residual.shape != result.shape:
                raise RunError(
                    "the residual input has another shape than the convolution's result",
                    expected=result.shape,
                    got=residual.shape,
                )
            np.add(result, residual, out=result)
        activated: Array = activate(result)
        return activated

    return run


@TABLE.kernel(
    "FusedConv",
    domain="com.microsoft",
    types={0: _LEGACY_FLOATS},
    predicate=_listed_activation,
)
def _fused_conv(node: KernelNode) -> Kernel:
    return _convolve_and_activate(node)


@TABLE.kernel(
    "NhwcFusedConv",
    domain="com.microsoft",
    types={0: _LEGACY_FLOATS},
    predicate=_listed_activation,
)
def _nhwc_fused_conv(node: KernelNode) -> Kernel:
    convolve = _convolve_and_activate(node)

    def run(
        x: Array, weight: Array, bias: Array | None = None, residual: Array | None = None
    ) -> Array:
        extra = None if residual is None else channels_first(residual)
        return channels_last(convolve(channels_first(x), weight, bias, extra))

    return run


def _channels_are_last(weight: Array, channels: float, kernel: tuple[int, ...] | None) -> bool:
    """Tell [M, *kernel, C] from [M, C, *kernel]; the definition has the latter, models the former.

    Raises:
        RunError: both would fit, or neither does.
    """
    last = weight.shape[-1] == channels and kernel in (None, weight.shape[1:-1])
    second = weight.shape[1] == channels and kernel in (None, weight.shape[2:])
    if last == second:
        raise RunError(
            "the layout of NhwcConv's weight can't be told from its shape",
            expected=f"{channels:g} channels either on the last axis or on axis 1",
            got=weight.shape,
        )
    return last


@TABLE.kernel("NhwcConv", domain="com.microsoft", types={0: _LEGACY_FLOATS})
def _nhwc_conv(node: KernelNode) -> Kernel:
    # Position 3 doesn't exist, so that the weight isn't prepared in the layout it comes in.
    convolve = standard_kernel(node, "Conv", inputs=(0, 3, 2))
    groups = int(node.attr("group", 1))
    kernel = node.attr("kernel_shape")

    def run(x: Array, weight: Array, bias: Array | None = None) -> Array:
        if x.ndim < 3 or weight.ndim != x.ndim:
            raise RunError("NhwcConv needs [N, D1, ..., C]", got=(x.shape, weight.shape))
        if _channels_are_last(weight, x.shape[-1] / groups, kernel):
            weight = channels_first(weight)
        return channels_last(convolve(channels_first(x), weight, bias))

    return run


@TABLE.kernel("ConvTransposeWithDynamicPads", domain="com.microsoft", types={0: _LEGACY_FLOATS})
def _conv_transpose_with_dynamic_pads(node: KernelNode) -> Kernel:
    def run(x: Array, weight: Array, pads: Array | None = None, bias: Array | None = None) -> Array:
        attributes = dict(node.node.attributes)
        if pads is not None:
            attributes["pads"] = tuple(int_list(pads))
        kernel = standard_kernel(node, "ConvTranspose", inputs=(0, 1, 3), attributes=attributes)
        result: Array = kernel(x, weight, bias)
        return result

    return run


# ---------------------------------------------------------------- products of matrices


def _turned(x: Array, batch: bool, last: bool) -> Array:
    """Move the first axis in front of the last one if `batch`, then swap the last two if `last`."""
    if x.ndim < 2:
        return x
    if batch and x.ndim > 2:
        x = np.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if last else x


def _fused_product(node: KernelNode) -> Kernel:
    """Multiply A' @ B' * alpha, where A' and B' are A and B with axes swapped."""
    alpha = float(node.attr("alpha", 1.0))
    turn_a = bool(node.attr("transBatchA", 0)), bool(node.attr("transA", 0))
    turn_b = bool(node.attr("transBatchB", 0)), bool(node.attr("transB", 0))

    def run(a: Array, b: Array) -> Array:
        product = matmul(_turned(widen(a), *turn_a), _turned(widen(b), *turn_b))
        if alpha != 1.0:
            product = np.asarray(product * product.dtype.type(alpha))
        return product.astype(a.dtype, copy=False)

    return run


@TABLE.kernel("FusedMatMul", domain="com.microsoft", types={0: FLOATS})
@TABLE.kernel("TransposeMatMul", domain="com.microsoft", types={0: FLOATS})
def _fused_matmul(node: KernelNode) -> Kernel:
    return _fused_product(node)


def _named_parameters(node: KernelNode) -> dict[str, float]:
    prefix = "activation_"
    return {
        name.removeprefix(prefix): value
        for name, value in node.node.attributes.items()
        if name.startswith(prefix) and isinstance(value, float)
    }


def _named_activation(node: KernelNode) -> str | None:
    return activation_problem(_activation(node))


@TABLE.kernel(
    "FusedMatMulActivation",
    domain="com.microsoft",
    types={0: FLOATS},
    predicate=_named_activation,
)
def _fused_matmul_activation(node: KernelNode) -> Kernel:
    multiply = _fused_product(node)
    activate = activation_kernel(node, _activation(node), _named_parameters(node))

    def run(a: Array, b: Array) -> Array:
        activated: Array = activate(multiply(a, b))
        return activated

    return run


@TABLE.kernel(
    "FusedGemm",
    domain="com.microsoft",
    types={0: _LEGACY_FLOATS},
    predicate=_named_activation,
)
def _fused_gemm(node: KernelNode) -> Kernel:
    alpha = float(node.attr("alpha", 1.0))
    beta = float(node.attr("beta", 1.0))
    transpose_a = bool(node.attr("transA", 0))
    transpose_b = bool(node.attr("transB", 0))
    activate = activation_kernel(node, _activation(node), _named_parameters(node))

    def run(a: Array, b: Array, c: Array | None = None) -> Array:
        left = widen(a.T if transpose_a else a)
        right = widen(b.T if transpose_b else b)
        wide_c = None if c is None else widen(c)
        result = gemm(left, right, wide_c, alpha=alpha, beta=beta)
        activated: Array = activate(result)
        return activated.astype(a.dtype, copy=False)

    return run


@TABLE.kernel("GemmFastGelu", domain="com.microsoft", types={0: FLOATS - {DataType.DOUBLE}})
def _gemm_fast_gelu(node: KernelNode) -> Kernel:
    def run(x: Array, weight: Array, bias: Array | None = None) -> Array:
        product = matmul(widen(x), widen(weight))
        if bias is not None:
            product = np.asarray(product + widen(bias))
        return apply_formula(gelu_tanh, product).astype(x.dtype, copy=False)

    return run
