"""com.microsoft: 8-bit operators with a scale and zero point on each side.

Functions of one input go through a table of all 256 codes. The others are computed in float32 and
quantised again, which is how they are defined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.quantize import saturated
from ep_cpu.kernels.softmax import softmax
from ep_cpu.kernels.standard import channels_first, channels_last, standard_kernel
from ep_cpu.kernels.support import Array, check_axis, scalar, unit_axes
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_EIGHT_BIT = frozenset({DataType.INT8, DataType.UINT8})


def _scale(value: Array) -> np.float32:
    return np.float32(scalar(value, "a scale"))


def _zero(value: Array | None) -> int:
    return 0 if value is None else int(scalar(value, "a zero point"))


def _real(codes: Array, scale: Array, zero: Array | None) -> Array:
    """(codes - zero) * scale as float32."""
    real = codes.astype(np.float32)
    real -= np.float32(_zero(zero))
    real *= _scale(scale)
    return real


def _codes(real: Array, scale: Array, zero: Array | None, dtype: np.dtype[Any]) -> Array:
    """Quantise: saturate(round(real / scale) + zero)."""
    quotient = np.asarray(real / _scale(scale))
    return saturated(quotient, np.asarray(_zero(zero)), dtype)


# ---------------------------------------------------------------- two inputs


def _binary(op_type: str, function: Callable[[Array, Array], Array]) -> None:
    @TABLE.kernel(op_type, domain="com.microsoft", types={0: _EIGHT_BIT, 3: _EIGHT_BIT})
    def make(node: KernelNode) -> Kernel:
        def run(
            a: Array,
            a_scale: Array,
            a_zero: Array | None,
            b: Array,
            b_scale: Array,
            b_zero: Array | None,
            y_scale: Array,
            y_zero: Array | None = None,
        ) -> Array:
            result = function(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
            return _codes(result, y_scale, y_zero, a.dtype)

        return run


_binary("QLinearAdd", np.add)
_binary("QLinearMul", np.multiply)


@TABLE.kernel("QLinearWhere", domain="com.microsoft", types={1: _EIGHT_BIT, 4: _EIGHT_BIT})
def _qlinear_where(node: KernelNode) -> Kernel:
    def run(
        condition: Array,
        x: Array,
        x_scale: Array,
        x_zero: Array,
        y: Array,
        y_scale: Array,
        y_zero: Array,
        z_scale: Array,
        z_zero: Array,
    ) -> Array:
        yes = _moved(x, x_scale, x_zero, z_scale, z_zero)
        no = _moved(y, y_scale, y_zero, z_scale, z_zero)
        return np.where(condition, yes, no)

    return run


# ---------------------------------------------------------------- by table


def _through_table(
    x: Array,
    scales: tuple[Array, Array],
    zeros: tuple[Array | None, Array | None],
    function: Callable[[Array], Array],
    dtype: np.dtype[Any],
) -> Array:
    """Apply a function of real numbers, by its value for each of the 256 codes."""
    every = np.arange(256, dtype=np.uint8).view(x.dtype)
    values = function(_real(every, scales[0], zeros[0]))
    table = _codes(values, scales[1], zeros[1], dtype)
    found: Array = table[x.view(np.uint8)]
    return found


def _moved(x: Array, scale: Array, zero: Array, new_scale: Array, new_zero: Array) -> Array:
    """The same real numbers under another scale and zero point."""
    scales, zeros = (scale, new_scale), (zero, new_zero)
    return _through_table(x, scales, zeros, lambda real: real, new_zero.dtype)


def _unary(op_type: str, standard: str) -> None:
    """An operator that is a standard one, with its attributes, between other scales."""

    @TABLE.kernel(op_type, domain="com.microsoft", types={0: _EIGHT_BIT})
    def make(node: KernelNode) -> Kernel:
        function = standard_kernel(node, standard, inputs=())

        def run(
            x: Array,
            x_scale: Array,
            x_zero: Array | None,
            y_scale: Array,
            y_zero: Array | None = None,
        ) -> Array:
            return _through_table(x, (x_scale, y_scale), (x_zero, y_zero), function, x.dtype)

        return run


_unary("QLinearSigmoid", "Sigmoid")
_unary("QLinearLeakyRelu", "LeakyRelu")


@TABLE.kernel("QLinearConcat", domain="com.microsoft", types={1: _EIGHT_BIT})
def _qlinear_concat(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis"))

    def run(y_scale: Array, y_zero: Array, *inputs: Array) -> Array:
        if not inputs or len(inputs) % 3:
            raise RunError("QLinearConcat needs a tensor, scale and zero point for each part")
        triples = [inputs[i : i + 3] for i in range(0, len(inputs), 3)]
        parts = [_moved(x, scale, zero, y_scale, y_zero) for x, scale, zero in triples]
        return np.concatenate(parts, axis=check_axis(axis, parts[0].ndim))

    return run


# ---------------------------------------------------------------- softmax, means, pools


@TABLE.kernel("QLinearSoftmax", domain="com.microsoft", types={0: _EIGHT_BIT})
def _qlinear_softmax(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", -1))
    flatten = int(node.attr("opset")) < 13

    def run(x: Array, x_scale: Array, x_zero: Array | None, y_scale: Array, y_zero: Array) -> Array:
        real = _real(x, x_scale, x_zero)
        along = check_axis(axis, x.ndim)
        if x.size == 0:
            return x.copy()
        if flatten:
            rows = real.reshape(*x.shape[:along], -1)
            result = softmax(rows).reshape(x.shape)
        else:
            result = softmax(real, along)
        return _codes(result, y_scale, y_zero, y_zero.dtype)

    return run


def _mean_of_codes(x: Array, axes: tuple[int, ...], zero: Array | None, keep: bool) -> Array:
    """The exact mean of the codes, less the zero point."""
    if 0 in (x.shape[axis] for axis in axes):
        raise RunError("there is no mean of nothing", got=x.shape)
    mean = np.mean(x, axis=axes, keepdims=keep, dtype=np.float64)
    return np.asarray(mean - _zero(zero)).astype(np.float32)


@TABLE.kernel("QLinearReduceMean", domain="com.microsoft", types={0: _EIGHT_BIT})
def _qlinear_reduce_mean(node: KernelNode) -> Kernel:
    axes = node.attr("axes", ())
    keep = bool(node.attr("keepdims", 1))

    def run(
        x: Array,
        x_scale: Array,
        x_zero: Array | None,
        y_scale: Array,
        y_zero: Array | None = None,
    ) -> Array:
        chosen = unit_axes(axes, x.ndim) or tuple(range(x.ndim))
        mean = _mean_of_codes(x, chosen, x_zero, keep)
        return _codes(mean * _scale(x_scale), y_scale, y_zero, x.dtype)

    return run


@TABLE.kernel("QLinearGlobalAveragePool", domain="com.microsoft", types={0: _EIGHT_BIT})
def _qlinear_global_average_pool(node: KernelNode) -> Kernel:
    last = bool(node.attr("channels_last", 0))

    def run(
        x: Array, x_scale: Array, x_zero: Array | None, y_scale: Array, y_zero: Array | None
    ) -> Array:
        if x.ndim < 3:
            raise RunError("a global pool needs at least three axes", got=x.shape)
        axes = tuple(range(1, x.ndim - 1) if last else range(2, x.ndim))
        mean = _mean_of_codes(x, axes, x_zero, keep=True)
        return _codes(mean * _scale(x_scale), y_scale, y_zero, x.dtype)

    return run


def _without(node: KernelNode, *names: str) -> dict[str, Any]:
    return {name: value for name, value in node.node.attributes.items() if name not in names}


@TABLE.kernel("QLinearAveragePool", domain="com.microsoft", types={0: _EIGHT_BIT})
def _qlinear_average_pool(node: KernelNode) -> Kernel:
    pool = standard_kernel(
        node, "AveragePool", inputs=(), attributes=_without(node, "channels_last")
    )
    last = bool(node.attr("channels_last", 0))

    def run(
        x: Array,
        x_scale: Array,
        x_zero: Array | None,
        y_scale: Array,
        y_zero: Array | None = None,
    ) -> Array:
        real = _real(channels_first(x) if last else x, x_scale, x_zero)
        result = _codes(pool(real), y_scale, y_zero, x.dtype)
        return channels_last(result) if last else result

    return run


@TABLE.kernel("NhwcMaxPool", domain="com.microsoft", types={0: _EIGHT_BIT})
def _nhwc_max_pool(node: KernelNode) -> Kernel:
    pool = standard_kernel(node, "MaxPool")

    def run(x: Array) -> Array:
        return channels_last(pool(channels_first(x)))

    return run


# ---------------------------------------------------------------- convolutions


@TABLE.kernel("QLinearConv", domain="com.microsoft", types={0: _EIGHT_BIT, 3: _EIGHT_BIT})
def _qlinear_conv(node: KernelNode) -> Kernel:
    convolve = standard_kernel(
        node, "QLinearConv", inputs=range(9), attributes=_without(node, "channels_last")
    )
    if not node.attr("channels_last", 0):
        return convolve

    def run(x: Array, *others: Array | None) -> Array:
        return channels_last(convolve(channels_first(x), *others))

    return run
