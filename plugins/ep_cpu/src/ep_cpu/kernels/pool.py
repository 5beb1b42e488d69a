"""Pooling over windows and over whole planes. Sums and maxima are taken axis by axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, widen
from ep_cpu.kernels.windows import Geometry, Window, pad_spatial
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def _kernel_shape(node: KernelNode) -> tuple[int, ...]:
    return tuple(int(length) for length in node.attr("kernel_shape", ()))


def _check(x: Array, kernel: tuple[int, ...]) -> None:
    if x.ndim < 3 or len(kernel) != x.ndim - 2:
        raise RunError(
            "kernel_shape doesn't fit the input of a pool",
            expected=f"{x.ndim - 2} lengths for shape {x.shape}",
            got=kernel,
        )


def fold_windows(padded: Array, window: Window, ufunc: np.ufunc) -> Array:
    """Combine the elements of every window with `ufunc`, one spatial axis after the other."""
    result = padded
    lead = padded.ndim - len(window.kernel)
    for axis in reversed(range(len(window.kernel))):
        stride = window.strides[axis]
        span = (window.output[axis] - 1) * stride + 1
        before = (slice(None),) * (lead + axis)
        parts = [
            result[(*before, slice(at * window.dilations[axis], None))]
            for at in range(window.kernel[axis])
        ]
        views = [part[(*before, slice(0, span, stride))] for part in parts]
        if len(views) == 1:
            result = views[0]
            continue
        folded = ufunc(views[0], views[1])
        for view in views[2:]:
            ufunc(folded, view, out=folded)
        result = folded
    return result


def _lowest(dtype: np.dtype[Any]) -> float:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -math.inf


# ---------------------------------------------------------------- maximum


@TABLE.kernel("MaxPool")
def _max_pool(node: KernelNode) -> Kernel:
    geometry = Geometry.of(node)
    kernel = _kernel_shape(node)
    column_major = bool(node.attr("storage_order", 0))
    with_indices = node.wants_output(1)

    def run(x: Array) -> Any:
        _check(x, kernel)
        window = geometry.window(x.shape[2:], kernel)
        if with_indices:
            return _max_with_indices(x, window, column_major)
        padded = pad_spatial(x, window, _lowest(x.dtype))
        result = fold_windows(padded, window, np.maximum)
        # A kernel of one element leaves a view of the input.
        return result.copy() if np.may_share_memory(result, x) else result

    return run


def _max_with_indices(x: Array, window: Window, column_major: bool) -> tuple[Array, Array]:
    """The maxima and where each was in the whole tensor; the first of equals, NaN above all."""
    planes = math.prod(x.shape[:2])
    size = math.prod(x.shape[2:])
    order = "F" if column_major else "C"
    places = np.arange(size, dtype=np.int64).reshape(x.shape[2:], order=order)  # type: ignore[call-overload]
    places = places + (np.arange(planes) * size).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    values = pad_spatial(x, window, _lowest(x.dtype))
    # Padding has no index; -1 marks it, and the first real element replaces it.
    places = pad_spatial(places, window, -1)
    best: Array | None = None
    where: Array | None = None
    for place in itertools.product(*map(range, window.kernel)):
        part = (
            slice(None),
            slice(None),
            *(
                slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
                for at, dilation, stride, count in zip(
                    place, window.dilations, window.strides, window.output, strict=True
                )
            ),
        )
        value = values[part]
        index = places[part]
        if best is None or where is None:
            best, where = value.copy(), index.copy()
            continue
        better = (value > best) | ((where < 0) & (index >= 0))
        if x.dtype.kind not in "iu":
            better |= np.isnan(value) & ~np.isnan(best)
        np.copyto(best, value, where=better)
        np.copyto(where, index, where=better)
    assert best is not None
    assert where is not None
    return best, where


# ---------------------------------------------------------------- average and norm


def _counts(window: Window, spatial: tuple[int, ...], include_pad: bool) -> Array:
    """How many elements each window's mean is over: [*output]."""
    counts = np.ones((), np.int64)
    for axis, length in enumerate(spatial):
        low = -window.before[axis] if include_pad else 0
        high = length + window.after[axis] if include_pad else length
        starts = np.arange(window.output[axis]) * window.strides[axis] - window.before[axis]
        places = starts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        inside = ((places >= low) & (places < high)).sum(axis=1)
        counts = np.multiply.outer(counts, inside)
    return np.asarray(counts)


@TABLE.kernel("AveragePool")
def _average_pool(node: KernelNode) -> Kernel:
    geometry = Geometry.of(node)
    kernel = _kernel_shape(node)
    include_pad = bool(node.attr("count_include_pad", 0))

    def run(x: Array) -> Array:
        _check(x, kernel)
        window = geometry.window(x.shape[2:], kernel)
        wide = widen(x)
        total = fold_windows(pad_spatial(wide, window, 0), window, np.add)
        divisor = _counts(window, x.shape[2:], include_pad).astype(wide.dtype)
        return np.asarray(np.divide(total, divisor)).astype(x.dtype, copy=False)

    return run


def _power(x: Array, order: float) -> Array:
    if order == 2:
        return np.multiply(x, x)
    magnitude: Array = np.absolute(x)
    return magnitude if order == 1 else np.power(magnitude, x.dtype.type(order))


def _root(total: Any, order: float) -> Array:
    if order == 1:
        return np.asarray(total)
    if order == 2:
        return np.asarray(np.sqrt(total))
    return np.asarray(np.power(total, total.dtype.type(1 / order)))


@TABLE.kernel("LpPool")
def _lp_pool(node: KernelNode) -> Kernel:
    geometry = Geometry.of(node)
    kernel = _kernel_shape(node)
    order = float(node.attr("p", 2))

    def run(x: Array) -> Array:
        _check(x, kernel)
        window = geometry.window(x.shape[2:], kernel)
        powers = _power(widen(x), order)
        total = fold_windows(pad_spatial(powers, window, 0), window, np.add)
        return _root(total, order).astype(x.dtype, copy=False)

    return run


# ---------------------------------------------------------------- whole planes


def _global(reduce: Callable[[Array, tuple[int, ...]], Any]) -> Kernel:
    def run(x: Array) -> Array:
        if x.ndim < 3 or math.prod(x.shape[2:]) == 0:
            raise RunError("a global pool needs [N, C, D1, ...] without empty axes", got=x.shape)
        reduced = reduce(widen(x), tuple(range(2, x.ndim)))
        return np.asarray(reduced).astype(x.dtype, copy=False)

    return run


@TABLE.kernel("GlobalAveragePool")
def _global_average_pool(node: KernelNode) -> Kernel:
    return _global(lambda x, axes: np.mean(x, axis=axes, keepdims=True))


@TABLE.kernel("GlobalMaxPool")
def _global_max_pool(node: KernelNode) -> Kernel:
    return _global(lambda x, axes: np.max(x, axis=axes, keepdims=True))


@TABLE.kernel("GlobalLpPool")
def _global_lp_pool(node: KernelNode) -> Kernel:
    order = float(node.attr("p", 2))
    return _global(lambda x, axes: _root(np.sum(_power(x, order), axis=axes, keepdims=True), order))
