"""Writing by index: ScatterElements, ScatterND, TensorScatter, MaxUnpool."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.gather import element_grid, tuple_indices
from ep_cpu.kernels.support import Array, check_axis, int_list, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

# Unbuffered, so that an index that occurs several times counts several times.
_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def scatter(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """A copy of `x` with `updates` written or reduced into `places`."""
    result = x.copy()
    if reduction == "none":
        result[places] = updates
        return result
    ufunc = _REDUCTIONS.get(reduction)
    if ufunc is None or x.dtype.kind == "O":
        raise RunError(
            "can't reduce",
            expected="reduction none, or add, mul, max or min of numbers",
            got=(reduction, str(x.dtype)),
        )
    ufunc.at(result, places, updates)
    return result


@TABLE.kernel("Scatter", since=9)
@TABLE.kernel("ScatterElements", since=11)
def _scatter_elements(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 0))
    reduction = text(node.attr("reduction", "none"))

    def run(x: Array, indices: Array, updates: Array) -> Array:
        if indices.shape != updates.shape:
            raise RunError(
                "updates must have the shape of the indices",
                expected=indices.shape,
                got=updates.shape,
            )
        along = check_axis(axis, x.ndim)
        return scatter(x, element_grid(x.shape, indices, along), updates, reduction)

    return run


@TABLE.kernel("ScatterND", since=11)
def _scatter_nd(node: KernelNode) -> Kernel:
    reduction = text(node.attr("reduction", "none"))

    def run(x: Array, indices: Array, updates: Array) -> Array:
        places = tuple_indices(x.shape, indices)
        expected = indices.shape[:-1] + x.shape[len(places) :]
        if updates.shape != expected:
            raise RunError("wrong shape of updates", expected=expected, got=updates.shape)
        return scatter(x, places, updates, reduction)

    return run


@TABLE.kernel("TensorScatter", since=24)
def _tensor_scatter(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", -2))
    circular = text(node.attr("mode", "linear")) == "circular"

    def run(cache: Array, update: Array, write_indices: Array | None = None) -> Array:
        along = check_axis(axis, cache.ndim)
        longest = cache.shape[along]
        count = update.shape[along]
        starts = [0] * cache.shape[0] if write_indices is None else int_list(write_indices)
        if along == 0 or len(starts) != cache.shape[0] or count > longest:
            raise RunError(
                "bad axis, write_indices or update length of TensorScatter",
                got=(along, len(starts), count),
            )
        result = cache.copy()
        for batch, start in enumerate(starts):
            places: Any = np.arange(start, start + count)
            if circular:
                places = places % longest
            elif start < 0 or start + count > longest:
                raise RunError(
                    "write index out of range", expected=f"0 to {longest - count}", got=start
                )
            before = (slice(None),) * (along - 1)
            result[batch][(*before, places)] = update[batch]
        return result

    return run


@TABLE.kernel("MaxUnpool", since=9)
def _max_unpool(node: KernelNode) -> Kernel:
    kernel = [int(value) for value in node.attr("kernel_shape")]
    rank = len(kernel)
    strides = [int(value) for value in node.attr("strides", [1] * rank)]
    pads = [int(value) for value in node.attr("pads", [0] * 2 * rank)]

    def run(x: Array, indices: Array, output_shape: Array | None = None) -> Array:
        inferred = [
            (x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank]
            for i in range(rank)
        ]
        natural = (*x.shape[:2], *inferred)
        shape = natural if output_shape is None else tuple(int_list(output_shape))
        # Indices count in the plane that the pooling saw; output_shape may only enlarge it.
        flat = np.zeros(natural, x.dtype).reshape(-1)
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < flat.size:
            raise RunError("index of MaxUnpool out of range", expected=f"0 to {flat.size - 1}")
        flat[indices.reshape(-1)] = x.reshape(-1)
        small = flat.reshape(natural)
        if shape == natural:
            return small
        if len(shape) != x.ndim or any(a < b for a, b in zip(shape, natural, strict=True)):
            raise RunError("output_shape is too small", expected=natural, got=shape)
        result = np.zeros(shape, x.dtype)
        result[tuple(slice(length) for length in natural)] = small
        return result

    return run
