"""Operators that change the shape or the order of axes and leave the values alone."""

from __future__ import annotations

import math

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, check_axis, from_constant, int_list, text, unit_axes
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


@TABLE.kernel("Identity", view=True)
def _identity(node: KernelNode) -> Kernel:
    return lambda value: value


# ---------------------------------------------------------------- reshape and friends


def reshape(x: Array, wanted: list[int], allow_zero: bool) -> Array:
    """Reshape by ONNX rules: -1 is inferred, 0 copies the dimension unless `allow_zero`.

    Raises:
        RunError: the element counts can't agree.
    """
    shape = list(wanted)
    for index, length in enumerate(shape):
        if length == 0 and not allow_zero:
            if index >= x.ndim:
                raise RunError(f"0 in shape {wanted} copies a dimension that {x.shape} lacks")
            shape[index] = x.shape[index]
    known = math.prod(length for length in shape if length != -1)
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise RunError("bad shape for Reshape", expected="at most one -1", got=wanted)
    if -1 in shape:
        if known == 0 or x.size % known:
            raise RunError(f"can't reshape {x.shape} to {wanted}")
        shape[shape.index(-1)] = x.size // known
    elif known != x.size:
        raise RunError(f"can't reshape {x.shape} to {wanted}: {x.size} elements, not {known}")
    return x.reshape(shape)


@TABLE.kernel("Reshape", until=1, view=True)
def _reshape_attribute(node: KernelNode) -> Kernel:
    shape = [int(length) for length in node.attr("shape", ())]
    return lambda x: reshape(x, shape, allow_zero=False)


@TABLE.kernel("Reshape", since=5, view=True)
def _reshape(node: KernelNode) -> Kernel:
    allow_zero = bool(node.attr("allowzero", 0))
    lengths = from_constant(node, 1, int_list)

    def run(x: Array, shape: Array) -> Array:
        return reshape(x, lengths(shape), allow_zero)

    return run


@TABLE.kernel("Flatten", view=True)
def _flatten(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 1))

    def run(x: Array) -> Array:
        split = axis if axis == x.ndim else check_axis(axis, max(x.ndim, 1))
        rows = math.prod(x.shape[:split])
        return x.reshape(rows, math.prod(x.shape[split:]))

    return run


def squeeze(x: Array, axes: list[int] | None) -> Array:
    """Drop the given axes, or all of length 1."""
    if axes is None:
        return x.reshape([length for length in x.shape if length != 1])
    chosen = unit_axes(axes, x.ndim)
    for axis in chosen:
        if x.shape[axis] != 1:
            raise RunError(f"can't squeeze axis {axis} of shape {x.shape}", expected="length 1")
    return x.reshape([length for axis, length in enumerate(x.shape) if axis not in chosen])


@TABLE.kernel("Squeeze", until=12, view=True)
def _squeeze_attribute(node: KernelNode) -> Kernel:
    axes = node.attr("axes")
    chosen = None if axes is None else [int(axis) for axis in axes]
    return lambda x: squeeze(x, chosen)


@TABLE.kernel("Squeeze", since=13, view=True)
def _squeeze(node: KernelNode) -> Kernel:
    chosen = from_constant(node, 1, int_list)

    def run(x: Array, axes: Array | None = None) -> Array:
        return squeeze(x, None if axes is None else chosen(axes))

    return run


def unsqueeze(x: Array, axes: list[int]) -> Array:
    """Insert axes of length 1 at the given places of the result."""
    rank = x.ndim + len(axes)
    inserted = set(unit_axes(axes, rank))
    lengths = iter(x.shape)
    return x.reshape([1 if axis in inserted else next(lengths) for axis in range(rank)])


@TABLE.kernel("Unsqueeze", until=12, view=True)
def _unsqueeze_attribute(node: KernelNode) -> Kernel:
    axes = [int(axis) for axis in node.attr("axes")]
    return lambda x: unsqueeze(x, axes)


@TABLE.kernel("Unsqueeze", since=13, view=True)
def _unsqueeze(node: KernelNode) -> Kernel:
    chosen = from_constant(node, 1, int_list)

    def run(x: Array, axes: Array) -> Array:
        return unsqueeze(x, chosen(axes))

    return run


@TABLE.kernel("Transpose", view=True)
def _transpose(node: KernelNode) -> Kernel:
    perm = node.attr("perm")
    if perm is None:
        return lambda x: x.transpose()
    order = tuple(int(axis) for axis in perm)

    def run(x: Array) -> Array:
        if sorted(order) != list(range(x.ndim)):
            raise RunError(
                "bad perm for Transpose", expected=f"a permutation of {x.ndim} axes", got=order
            )
        return x.transpose(order)

    return run


# ---------------------------------------------------------------- shapes as values


@TABLE.kernel("Shape")
def _shape(node: KernelNode) -> Kernel:
    start = int(node.attr("start", 0))
    end = node.attr("end")
    part = slice(start, None if end is None else int(end))
    return lambda x: np.array(x.shape[part], dtype=np.int64)


@TABLE.kernel("Size")
def _size(node: KernelNode) -> Kernel:
    return lambda x: np.array(x.size, dtype=np.int64)


# ---------------------------------------------------------------- repeat and join


@TABLE.kernel("Expand", since=8, view=True)
def _expand(node: KernelNode) -> Kernel:
    lengths = from_constant(node, 1, int_list)

    def run(x: Array, shape: Array) -> Array:
        wanted = lengths(shape)
        if min(wanted, default=0) < 0:
            raise RunError("negative length in the shape for Expand", got=wanted)
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(wanted)))

    return run


@TABLE.kernel("Tile", until=1)
def _tile_axis(node: KernelNode) -> Kernel:
    def run(x: Array, tiles: Array, axis: Array) -> Array:
        repeats = [1] * x.ndim
        repeats[check_axis(int(axis.item()), x.ndim)] = int(tiles.item())
        return np.tile(x, repeats)

    return run


@TABLE.kernel("Tile", since=6)
def _tile(node: KernelNode) -> Kernel:
    def run(x: Array, repeats: Array) -> Array:
        counts = int_list(repeats)
        if len(counts) != x.ndim or min(counts, default=0) < 0:
            raise RunError(
                "bad repeats for Tile", expected=f"{x.ndim} counts of at least 0", got=counts
            )
        return np.tile(x, counts)

    return run


@TABLE.kernel("Concat", writes_out=True)
def _concat(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 1))

    def run(*inputs: Array, out: Array | None = None) -> Array:
        return np.concatenate(inputs, axis=check_axis(axis, inputs[0].ndim), out=out)

    return run


# ---------------------------------------------------------------- split


def equal_parts(length: int, count: int, uneven: bool) -> list[int]:
    """Lengths of `count` parts; with `uneven` the last may be shorter than the others."""
    if count < 1:
        raise RunError("a split needs at least one output", got=count)
    part = -(-length // count)
    last = length - part * (count - 1)
    if last < 0 or (last != part and not uneven):
        raise RunError(f"can't split a length of {length} into {count} equal parts")
    return [part] * (count - 1) + [last]


def split(x: Array, axis: int, lengths: list[int]) -> tuple[Array, ...]:
    """Views of consecutive parts of `x` along `axis`."""
    total = x.shape[axis]
    if sum(lengths) != total or min(lengths, default=0) < 0:
        raise RunError("lengths of a split must add up", expected=f"a sum of {total}", got=lengths)
    parts = []
    start = 0
    before = (slice(None),) * axis
    for length in lengths:
        parts.append(x[(*before, slice(start, start + length))])
        start += length
    return tuple(parts)


@TABLE.kernel("Split", view=True)
def _split(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 0))
    fixed = node.attr("split") if node.version < 13 else None
    uneven = node.version >= 18
    count = int(node.attr("num_outputs", len(node.node.outputs)))

    def run(x: Array, lengths: Array | None = None) -> tuple[Array, ...]:
        along = check_axis(axis, x.ndim)
        if lengths is not None:
            return split(x, along, int_list(lengths))
        if fixed is not None:
            return split(x, along, [int(length) for length in fixed])
        return split(x, along, equal_parts(x.shape[along], count, uneven))

    return run


# ---------------------------------------------------------------- blocks


@TABLE.kernel("DepthToSpace", view=True)
def _depth_to_space(node: KernelNode) -> Kernel:
    block = int(node.attr("blocksize"))
    column_first = text(node.attr("mode", "DCR")) == "CRD"

    def run(x: Array) -> Array:
        n, c, h, w = x.shape
        if c % (block * block):
            raise RunError(f"{c} channels don't divide into blocks of {block} x {block}")
        depth = c // (block * block)
        if column_first:
            parts = x.reshape(n, depth, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        else:
            parts = x.reshape(n, block, block, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
        return parts.reshape(n, depth, h * block, w * block)

    return run


@TABLE.kernel("SpaceToDepth", view=True)
def _space_to_depth(node: KernelNode) -> Kernel:
    block = int(node.attr("blocksize"))
    column_first = text(node.attr("mode", "DCR")) == "CRD"

    def run(x: Array) -> Array:
        n, c, h, w = x.shape
        if h % block or w % block:
            raise RunError(f"a plane of {h} x {w} doesn't divide into blocks of {block}")
        parts = x.reshape(n, c, h // block, block, w // block, block)
        order = (0, 1, 3, 5, 2, 4) if column_first else (0, 3, 5, 1, 2, 4)
        return parts.transpose(order).reshape(n, c * block * block, h // block, w // block)

    return run
