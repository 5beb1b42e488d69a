"""Reductions over axes, ArgMax and ArgMin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.binary import divide
from ep_cpu.kernels.support import Array, check_axis, from_constant, int_list, unit_axes, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

Reduce = Callable[[Array, tuple[int, ...], bool], Any]
"""`reduce(x, axes, keepdims)`; 16-bit floats come and go as float32."""


def _sum(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _prod(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _mean(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    count = math.prod(x.shape[axis] for axis in axes)
    if x.dtype.kind not in "iu":
        return np.true_divide(_sum(x, axes, keep), x.dtype.type(count))
    wide = np.uint64 if x.dtype.kind == "u" else np.int64
    total = np.asarray(np.sum(x, axis=axes, keepdims=keep, dtype=wide))
    return divide(total, np.asarray(count, wide))


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _highest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _max(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    if x.size:
        return np.max(x, axis=axes, keepdims=keep)
    return np.max(x, axis=axes, keepdims=keep, initial=_lowest(x.dtype))


def _min(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    if x.size:
        return np.min(x, axis=axes, keepdims=keep)
    return np.min(x, axis=axes, keepdims=keep, initial=_highest(x.dtype))


def _l1(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return _sum(np.absolute(x), axes, keep)


def _sum_square(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return _sum(np.multiply(x, x), axes, keep)


def _as_float(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind in "iu" else x


def _l2(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.sqrt(_sum_square(_as_float(x), axes, keep))


def _log_sum(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.log(_sum(_as_float(x), axes, keep))


def _log_sum_exp(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    wide = _as_float(x)
    top = np.asarray(_max(wide, axes, True))
    # An infinite maximum would give inf - inf; without a shift exp and log are right for it.
    shift = np.where(np.isfinite(top), top, np.zeros_like(top))
    total = np.log(_sum(np.exp(wide - shift), axes, True)) + shift
    return total if keep else np.squeeze(total, axis=axes)


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _max,
    "ReduceMean": _mean,
    "ReduceMin": _min,
    "ReduceProd": _prod,
    "ReduceSum": _sum,
    "ReduceSumSquare": _sum_square,
}


def reduce_array(x: Array, axes: tuple[int, ...], keep: bool, reduce: Reduce) -> Array:
    """Reduce over `axes`, which may be empty; the result has the type of `x`."""
    return np.asarray(reduce(widen(x), axes, keep)).astype(x.dtype, copy=False)


def _register(op_type: str, reduce: Reduce, first_with_input: int) -> None:
    """Axes are an attribute before version `first_with_input`, an input from then on."""

    @TABLE.kernel(op_type, until=first_with_input - 1)
    def make_attribute(node: KernelNode) -> Kernel:
        axes = node.attr("axes")
        keep = bool(node.attr("keepdims", 1))

        def run(x: Array) -> Array:
            chosen = axes or range(x.ndim)
            return reduce_array(x, unit_axes(chosen, x.ndim), keep, reduce)

        return run

    @TABLE.kernel(op_type, since=first_with_input)
    def make_input(node: KernelNode) -> Kernel:
        keep = bool(node.attr("keepdims", 1))
        empty_is_none = bool(node.attr("noop_with_empty_axes", 0))
        chosen = from_constant(node, 1, int_list)

        def run(x: Array, axes: Array | None = None) -> Array:
            given = [] if axes is None else chosen(axes)
            if not given and not empty_is_none:
                given = list(range(x.ndim))
            return reduce_array(x, unit_axes(given, x.ndim), keep, reduce)

        return run


for _op_type, _reduce in _REDUCTIONS.items():
    _register(_op_type, _reduce, 13 if _op_type == "ReduceSum" else 18)


# ---------------------------------------------------------------- positions of extremes


def arg_extreme(x: Array, axis: int, keep: bool, last: bool, find: Callable[..., Any]) -> Array:
    """Index of the largest or smallest along `axis`; the first or the last of equals."""
    if x.ndim == 0:
        return np.zeros((), np.int64)
    along = check_axis(axis, x.ndim)
    length = x.shape[along]
    if length == 0:
        raise RunError("no extreme of an empty axis", got=f"shape {x.shape}")
    if last:
        found = np.asarray(length - 1 - find(np.flip(x, along), axis=along))
    else:
        found = np.asarray(find(x, axis=along))
    return (np.expand_dims(found, along) if keep else found).astype(np.int64, copy=False)


def _register_arg(op_type: str, find: Callable[..., Any]) -> None:
    @TABLE.kernel(op_type)
    def make(node: KernelNode) -> Kernel:
        axis = int(node.attr("axis", 0))
        keep = bool(node.attr("keepdims", 1))
        last = bool(node.attr("select_last_index", 0))
        return lambda x: arg_extreme(x, axis, keep, last, find)


_register_arg("ArgMax", np.argmax)
_register_arg("ArgMin", np.argmin)
