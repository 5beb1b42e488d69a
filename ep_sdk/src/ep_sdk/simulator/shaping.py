"""Kernels that move elements or only rename their positions; none computes a new value."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape, flattened, positive_axis, reshaped, squeezed, unsqueezed
from ep_sdk.simulator.launch import (
    ANY,
    TABLE,
    Array,
    constant_ints,
    launched,
    needs_constants,
    viewed,
)

__all__: list[str] = []


@TABLE.kernel("Reshape", since=5, types={"T": ANY}, view=True, predicate=needs_constants(shape=1))
def _reshape(node: KernelNode) -> Kernel:
    wanted = constant_ints(node, 1) or []
    zero_copies = not node.attr("allowzero", 0)
    return viewed(node, lambda shape: reshaped(shape, wanted, zero_copies=zero_copies))


@TABLE.kernel("Flatten", types={"T": ANY}, view=True)
def _flatten(node: KernelNode) -> Kernel:
    axis = node.attr("axis", 1)
    return viewed(node, lambda shape: flattened(shape, axis))


@TABLE.kernel("Squeeze", types={"T": ANY}, view=True, predicate=needs_constants(axes=1))
def _squeeze(node: KernelNode) -> Kernel:
    axes = constant_ints(node, 1) if node.version >= 13 else node.attr("axes")
    return viewed(node, lambda shape: squeezed(shape, axes))


@TABLE.kernel("Unsqueeze", types={"T": ANY}, view=True, predicate=needs_constants(axes=1))
def _unsqueeze(node: KernelNode) -> Kernel:
    named = constant_ints(node, 1) if node.version >= 13 else node.attr("axes")
    axes = list(named or ())
    return viewed(node, lambda shape: unsqueezed(shape, axes))


@TABLE.kernel("Transpose", types={"T": ANY}, writes_out=True)
def _transpose(node: KernelNode) -> Kernel:
    named = node.attr("perm")

    def order(rank: int) -> tuple[int, ...]:
        found = tuple(range(rank))[::-1] if named is None else tuple(named)
        if sorted(found) != list(range(rank)):
            raise RunError("perm doesn't fit the input", expected=f"rank {rank}", got=found)
        return found

    return launched(
        node,
        lambda x: x.transpose(order(x.ndim)),
        lambda shape: tuple(shape[axis] for axis in order(len(shape))),
    )


@TABLE.kernel("Concat", since=4, types={"T": ANY}, writes_out=True)
def _concat(node: KernelNode) -> Kernel:
    axis = node.attr("axis")

    def shape_of(*shapes: Shape) -> Shape:
        first = shapes[0]
        at = positive_axis(axis, len(first))
        for shape in shapes:
            if len(shape) != len(first) or _without(shape, at) != _without(first, at):
                raise RunError("shapes don't fit together", got=shapes)
        return (*first[:at], sum(shape[at] for shape in shapes), *first[at + 1 :])

    return launched(node, lambda *arrays: np.concatenate(arrays, axis=axis), shape_of)


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


@TABLE.kernel("Gather", types={"T": ANY}, writes_out=True)
def _gather(node: KernelNode) -> Kernel:
    axis = node.attr("axis", 0)

    def shape_of(data: Shape, indices: Shape) -> Shape:
        at = positive_axis(axis, len(data))
        return (*data[:at], *indices, *data[at + 1 :])

    return launched(node, lambda data, indices: np.take(data, indices, axis=axis), shape_of)


_SLICE_INPUTS = needs_constants(starts=1, ends=2, axes=3, steps=4)


@TABLE.kernel("Slice", types={"T": ANY}, writes_out=True, predicate=_SLICE_INPUTS)
def _slice(node: KernelNode) -> Kernel:
    """Ranges are attributes in version 1 and inputs from 10 on; bounds are clamped as in Python."""
    if node.version >= 10:
        starts = constant_ints(node, 1) or []
        ends = constant_ints(node, 2) or []
        axes = constant_ints(node, 3)
        steps = constant_ints(node, 4)
    else:
        starts = list(node.attr("starts"))
        ends = list(node.attr("ends"))
        axes = node.attr("axes")
        steps = None
    axes = list(range(len(starts))) if axes is None else list(axes)
    steps = [1] * len(starts) if steps is None else steps

    def ranges(shape: Shape) -> tuple[slice, ...]:
        found = [slice(None)] * len(shape)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            found[positive_axis(axis, len(shape))] = slice(start, end, step)
        return tuple(found)

    def shape_of(shape: Shape, *others: Shape | None) -> Shape:
        pairs = zip(ranges(shape), shape, strict=True)
        return tuple(len(range(*part.indices(length))) for part, length in pairs)

    def compute(x: Array, *others: Array | None) -> Any:
        return x[ranges(x.shape)]

    return launched(node, compute, shape_of)


@TABLE.kernel("Shape", types={"T": ANY}, writes_out=True)
def _shape(node: KernelNode) -> Kernel:
    """From version 15 on `start` and `end` choose a part; they are clamped as in Python."""
    part = slice(node.attr("start", 0), node.attr("end"))

    def compute(x: Array) -> Any:
        return np.array(x.shape[part], np.int64)

    return launched(node, compute, lambda shape: (len(shape[part]),), DataType.INT64)
