"""Arithmetic, comparison, logic and bits over two or more inputs that broadcast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import HALF, Array, as_array, check_axis, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

Binary = Callable[..., Array]
"""`function(a, b, out=None)`; a numpy ufunc or something that is called like one."""


def divide(a: Array, b: Array, out: Array | None = None) -> Array:
    """Floats: IEEE division. Integers: towards zero; a division by 0 gives 0."""
    if a.dtype.kind == "u":
        return as_array(np.floor_divide(a, b, out=out))
    if a.dtype.kind == "i":
        whole = np.subtract(a, np.fmod(a, b))
        return as_array(np.floor_divide(whole, b, out=out))
    return as_array(np.divide(a, b, out=out))


def legacy_broadcast(a: Array, b: Array, axis: int | None) -> Array:
    """Shape `b` for opsets below 7, where it is aligned with the axes of `a` from `axis` on."""
    if axis is None:
        return b
    start = check_axis(axis, max(a.ndim, 1))
    trailing = a.ndim - start - b.ndim
    if trailing < 0:
        raise RunError(
            "the second operand doesn't fit behind the axis",
            expected=f"at most {a.ndim - start} dimensions",
            got=f"shape {b.shape}",
        )
    return b.reshape(b.shape + (1,) * trailing)


def binary_kernel(node: KernelNode, function: Binary) -> Kernel:
    """A kernel of two operands with numpy broadcasting, or that of opsets 1 to 6."""
    axis = node.attr("axis") if node.version < 7 else None
    if axis is None:

        def run(a: Array, b: Array, *, out: Array | None = None) -> Array:
            return as_array(function(a, b, out=out))

        return run

    def run_legacy(a: Array, b: Array, *, out: Array | None = None) -> Array:
        return as_array(function(a, legacy_broadcast(a, b, axis), out=out))

    return run_legacy


_BINARY: dict[str, Binary] = {
    "Add": np.add,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Div": divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}


def _register(op_type: str, function: Binary) -> None:
    @TABLE.kernel(op_type, writes_out=True)
    def make(node: KernelNode) -> Kernel:
        return binary_kernel(node, function)


for _op_type, _function in _BINARY.items():
    _register(_op_type, _function)


@TABLE.kernel("BitShift", writes_out=True)
def _bit_shift(node: KernelNode) -> Kernel:
    direction = text(node.attr("direction"))
    return binary_kernel(node, np.left_shift if direction == "LEFT" else np.right_shift)


@TABLE.kernel("Mod", writes_out=True)
def _mod(node: KernelNode) -> Kernel:
    """fmod=1: the sign of the dividend, as in C; else the sign of the divisor, as in Python."""
    return binary_kernel(node, np.fmod if node.attr("fmod", 0) else np.remainder)


# ---------------------------------------------------------------- power


def _integer_power(base: Array, exponent: Array) -> Array:
    """Integer power that wraps around; a negative exponent truncates the fraction towards zero."""
    negative = exponent < 0
    if not np.any(negative):
        wide = np.uint64 if base.dtype.kind == "u" else np.int64
        return np.power(base.astype(wide), exponent.astype(wide)).astype(base.dtype)
    positive = _integer_power(base, np.where(negative, 0, exponent))
    odd = (exponent & 1).astype(bool)
    fraction = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0))
    return np.where(negative, fraction.astype(base.dtype), positive)


def power(base: Array, exponent: Array, out: Array | None = None) -> Array:
    """`base ** exponent` in the type of `base`."""
    if base.dtype == exponent.dtype and base.dtype.kind not in "iu":
        return as_array(np.power(base, exponent, out=out))
    if base.dtype.kind not in "iu":
        wide = np.power(widen(base), exponent.astype(widen(base).dtype))
    elif exponent.dtype.kind in "iu":
        wide = _integer_power(base, exponent)
    else:
        wide = np.power(base.astype(np.float64), exponent.astype(np.float64))
    result = np.asarray(wide).astype(base.dtype, copy=False)
    if out is None:
        return result
    np.copyto(out, result)
    return out


def _square(base: Array, exponent: Array, out: Array | None = None) -> Array:
    return as_array(np.multiply(base, base, out=out))


@TABLE.kernel("Pow", writes_out=True)
def _pow(node: KernelNode) -> Kernel:
    exponent = node.constants[1]
    if exponent is not None and exponent.ndim == 0 and exponent.item() == 2:
        return binary_kernel(node, _square)
    return binary_kernel(node, power)


# ---------------------------------------------------------------- any number of inputs


def variadic_kernel(function: Binary) -> Kernel:
    """A kernel that folds its inputs from left to right."""

    def run(first: Array, *others: Array, out: Array | None = None) -> Array:
        if not others:
            return first.copy()
        result = first
        for other in others[:-1]:
            result = as_array(function(result, other))
        return as_array(function(result, others[-1], out=out))

    return run


@TABLE.kernel("Sum", writes_out=True)
def _sum(node: KernelNode) -> Kernel:
    total = variadic_kernel(np.add)

    def run(*inputs: Array, out: Array | None = None) -> Array:
        if len(inputs) < 3 or inputs[0].dtype not in HALF:
            return np.asarray(total(*inputs, out=out))
        # More than two are added in float32 and rounded once.
        summed = np.asarray(total(*map(widen, inputs)))
        if out is None:
            return summed.astype(inputs[0].dtype)
        np.copyto(out, summed, casting="unsafe")
        return out

    return run


@TABLE.kernel("Max", writes_out=True)
def _max(node: KernelNode) -> Kernel:
    return variadic_kernel(np.maximum)


@TABLE.kernel("Min", writes_out=True)
def _min(node: KernelNode) -> Kernel:
    return variadic_kernel(np.minimum)


@TABLE.kernel("Mean")
def _mean(node: KernelNode) -> Kernel:
    total = variadic_kernel(np.add)

    def run(*inputs: Array) -> Array:
        summed = total(*(widen(value) for value in inputs))
        return np.asarray(summed / len(inputs)).astype(inputs[0].dtype, copy=False)

    return run


# ---------------------------------------------------------------- bounds and choice


@TABLE.kernel("Clip", until=10, writes_out=True)
def _clip_attributes(node: KernelNode) -> Kernel:
    low = node.attr("min")
    high = node.attr("max")

    def run(x: Array, *, out: Array | None = None) -> Array:
        bounds = [None if bound is None else x.dtype.type(bound) for bound in (low, high)]
        return clip(x, bounds[0], bounds[1], out)

    return run


@TABLE.kernel("Clip", since=11, writes_out=True)
def _clip_inputs(node: KernelNode) -> Kernel:
    def run(
        x: Array,
        low: Array | None = None,
        high: Array | None = None,
        *,
        out: Array | None = None,
    ) -> Array:
        for bound in (low, high):
            if bound is not None and bound.size != 1:
                raise RunError("a bound of Clip must be a scalar", got=f"shape {bound.shape}")
        return clip(
            x,
            None if low is None else low.reshape(()),
            None if high is None else high.reshape(()),
            out,
        )

    return run


def clip(x: Array, low: Array | None, high: Array | None, out: Array | None = None) -> Array:
    """min(max(x, low), high); NaN stays NaN, and with low > high everything is `high`."""
    if low is None and high is None:
        if out is None:
            return x.copy()
        np.copyto(out, x)
        return out
    if low is not None:
        x = as_array(np.maximum(x, low, out=out))
    if high is not None:
        x = as_array(np.minimum(x, high, out=out))
    return x


@TABLE.kernel("Where")
def _where(node: KernelNode) -> Kernel:
    def run(condition: Array, x: Array, y: Array) -> Array:
        if x.dtype != y.dtype:
            raise RunError("both values must have one type", got=f"{x.dtype} and {y.dtype}")
        return np.where(condition, x, y)

    return run
