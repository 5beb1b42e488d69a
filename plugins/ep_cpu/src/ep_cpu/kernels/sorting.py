"""Order along an axis: TopK, Unique, CumSum, CumProd."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, check_axis, finish, scalar, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def _descending(x: Array) -> Array:
    """Values whose ascending order is the descending order of `x`; NaN counts as the largest."""
    if x.dtype.kind in "iub":
        return np.bitwise_not(x)
    return np.where(np.isnan(x), -np.inf, -widen(x))


def top_k(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """The k largest or smallest along `axis`, sorted, and where they were; ties by lower index."""
    length = x.shape[axis]
    if not 0 <= k <= length:
        raise RunError("k out of range for TopK", expected=f"0 to {length}", got=k)
    keys = _descending(x) if largest else widen(x)
    order = np.argsort(keys, axis=axis, kind="stable")
    chosen = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, chosen, axis=axis), chosen.astype(np.int64, copy=False)


@TABLE.kernel("TopK", until=1)
def _top_k_attribute(node: KernelNode) -> Kernel:
    k = int(node.attr("k"))
    axis = int(node.attr("axis", -1))
    return lambda x: top_k(x, k, check_axis(axis, x.ndim), largest=True)


@TABLE.kernel("TopK", since=10)
def _top_k(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", -1))
    largest = bool(node.attr("largest", 1))

    def run(x: Array, k: Array) -> tuple[Array, Array]:
        return top_k(x, int(scalar(k, "k")), check_axis(axis, x.ndim), largest)

    return run


@TABLE.kernel("Unique", since=11)
def _unique(node: KernelNode) -> Kernel:
    axis = node.attr("axis")
    keep_order = not node.attr("sorted", 1)

    def run(x: Array) -> tuple[Array, ...]:
        along = None if axis is None else check_axis(int(axis), x.ndim)
        # numpy sorts neither objects nor 16-bit floats as rows; these types order alike.
        plain = x.astype(np.str_) if x.dtype == object else widen(x)
        found: Any = np.unique(
            plain, return_index=True, return_inverse=True, return_counts=True, axis=along
        )
        values, first, inverse, counts = found
        values = values.astype(x.dtype, copy=False)
        inverse = inverse.reshape(-1)
        if keep_order:
            order = np.argsort(first, kind="stable")
            values = np.take(values, order, axis=0 if along is None else along)
            first = first[order]
            counts = counts[order]
            rank = np.empty_like(order)
            rank[order] = np.arange(order.size)
            inverse = rank[inverse]
        return values, *(part.astype(np.int64) for part in (first, inverse, counts))

    return run


def _cumulative(node: KernelNode, ufunc: np.ufunc) -> Kernel:
    reverse = bool(node.attr("reverse", 0))
    exclusive = bool(node.attr("exclusive", 0))

    def run(x: Array, axis: Array) -> Array:
        along = check_axis(int(scalar(axis, "axis")), x.ndim)
        turned = np.flip(x, along) if reverse else x
        wide = widen(turned)
        summed = ufunc.accumulate(wide, axis=along, dtype=wide.dtype)
        if exclusive:
            shifted = np.full_like(summed, ufunc.identity)
            lanes = (slice(None),) * along
            shifted[(*lanes, slice(1, None))] = summed[(*lanes, slice(0, -1))]
            summed = shifted
        return finish(np.flip(summed, along) if reverse else summed, x.dtype)

    return run


@TABLE.kernel("CumSum", since=11)
def _cum_sum(node: KernelNode) -> Kernel:
    return _cumulative(node, np.add)


@TABLE.kernel("CumProd", since=26)
def _cum_prod(node: KernelNode) -> Kernel:
    return _cumulative(node, np.multiply)
