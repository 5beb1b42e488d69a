"""Reading by index: Gather, GatherElements, GatherND, Compress, NonZero, OneHot, ..."""

from __future__ import annotations

import math

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, as_array, check_axis, scalar
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def check_indices(indices: Array, length: int) -> Array:
    """Return `indices` as int64, counted from the front.

    Raises:
        RunError: one is outside `[-length, length)`.
    """
    if indices.size == 0:
        return indices.astype(np.int64)
    low = int(indices.min())
    high = int(indices.max())
    if low < -length or high >= length:
        raise RunError(
            "index out of range",
            expected=f"-{length} <= index < {length}",
            got=low if low < -length else high,
        )
    if low < 0:
        return np.where(indices < 0, indices + length, indices).astype(np.int64)
    return indices.astype(np.int64, copy=False)


@TABLE.kernel("Gather", view=True)
def _gather(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 0))

    def run(x: Array, indices: Array) -> Array:
        along = check_axis(axis, x.ndim)
        if indices.ndim == 0:
            index = int(indices)
            length = x.shape[along]
            if not -length <= index < length:
                check_indices(indices, length)
            return as_array(x[(slice(None),) * along + (index,)])
        return np.take(x, check_indices(indices, x.shape[along]), axis=along)

    return run


def element_grid(shape: tuple[int, ...], indices: Array, axis: int) -> tuple[Array, ...]:
    """Open index arrays that pick element `indices[i, j, ...]` on `axis`, and i, j, ... elsewhere.

    Raises:
        RunError: `indices` has another rank or is longer than `shape` on another axis.
    """
    if indices.ndim != len(shape):
        raise RunError(
            "indices have another rank than the data", expected=len(shape), got=indices.ndim
        )
    for other, (length, wanted) in enumerate(zip(shape, indices.shape, strict=True)):
        if other != axis and wanted > length:
            raise RunError(
                f"indices are longer than the data on axis {other}",
                expected=f"at most {length}",
                got=wanted,
            )
    grid = list(np.ogrid[tuple(slice(length) for length in indices.shape)])
    grid[axis] = check_indices(indices, shape[axis])
    return tuple(grid)


@TABLE.kernel("GatherElements", since=11)
def _gather_elements(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 0))

    def run(x: Array, indices: Array) -> Array:
        along = check_axis(axis, x.ndim)
        picked: Array = x[element_grid(x.shape, indices, along)]
        return picked

    return run


def tuple_indices(shape: tuple[int, ...], indices: Array) -> tuple[Array, ...]:
    """Split the last axis of `indices` into one checked index array per leading axis of `shape`."""
    depth = indices.shape[-1] if indices.ndim else 0
    if not 1 <= depth <= len(shape):
        raise RunError(
            "the last axis of the indices is too long or empty",
            expected=f"1 to {len(shape)}",
            got=depth,
        )
    return tuple(check_indices(indices[..., i], shape[i]) for i in range(depth))


@TABLE.kernel("GatherND", since=11)
def _gather_nd(node: KernelNode) -> Kernel:
    batch_dims = int(node.attr("batch_dims", 0))

    def run(x: Array, indices: Array) -> Array:
        batch = x.shape[:batch_dims]
        if batch != indices.shape[:batch_dims]:
            raise RunError(
                "batch dimensions differ", expected=batch, got=indices.shape[:batch_dims]
            )
        count = math.prod(batch)
        flat_x = x.reshape((count, *x.shape[batch_dims:]))
        inner = indices.shape[batch_dims:-1]
        flat_indices = indices.reshape((count, math.prod(inner), indices.shape[-1]))
        places = tuple_indices(flat_x.shape[1:], flat_indices)
        picked: Array = flat_x[(np.arange(count)[:, None], *places)]
        return picked.reshape((*batch, *inner, *picked.shape[2:]))

    return run


@TABLE.kernel("Compress", since=9)
def _compress(node: KernelNode) -> Kernel:
    axis = node.attr("axis")

    def run(x: Array, condition: Array) -> Array:
        if axis is None:
            x = x.reshape(-1)
        along = 0 if axis is None else check_axis(int(axis), x.ndim)
        if condition.ndim != 1 or condition.size > x.shape[along]:
            raise RunError(
                "bad condition for Compress",
                expected=f"at most {x.shape[along]} flags",
                got=condition.shape,
            )
        return np.compress(condition, x, axis=along)

    return run


@TABLE.kernel("NonZero", since=9)
def _non_zero(node: KernelNode) -> Kernel:
    def run(x: Array) -> Array:
        if x.ndim == 0:
            return np.zeros((0, int(bool(x))), np.int64)
        return np.stack(np.nonzero(x)).astype(np.int64, copy=False)

    return run


@TABLE.kernel("OneHot", since=9)
def _one_hot(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", -1))

    def run(indices: Array, depth: Array, values: Array) -> Array:
        length = int(scalar(depth, "depth"))
        if length < 0 or values.shape != (2,):
            raise RunError("OneHot needs depth >= 0 and two values", got=(length, values.shape))
        along = check_axis(axis, indices.ndim + 1)
        # Fractions are cut off; an index out of [-depth, depth) gives a row of "off".
        whole = indices.astype(np.int64)
        places = np.where(whole < 0, whole + length, whole)
        classes = np.arange(length).reshape([-1] + [1] * (indices.ndim - along))
        result: Array = values[(np.expand_dims(places, along) == classes).astype(np.intp)]
        return result

    return run
