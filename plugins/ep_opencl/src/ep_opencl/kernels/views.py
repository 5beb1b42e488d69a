"""Operators that only give a tensor another shape, or tell about its shape."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ep_core.errors import RunError
from ep_opencl.elements import ELEMENTS
from ep_opencl.launch import TABLE, Bench, Shape, positive_axis
from ep_opencl.memory import OpenCLBuffer
from ep_opencl.stream import OpenCLStream
from ep_sdk.kernels import Kernel, KernelNode

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)


def _viewed(node: KernelNode, shape_of: Callable[[Shape, list[int] | None], Shape]) -> Kernel:
    """A kernel that gives its first input another shape, from that and the second input."""
    bench = Bench(node)

    def view(
        stream: OpenCLStream, x: OpenCLBuffer, numbers: OpenCLBuffer | None = None
    ) -> OpenCLBuffer:
        wanted = None
        if numbers is not None:
            wanted = [int(item) for item in bench.values(stream, numbers).reshape(-1)]
        return x.reshaped(shape_of(x.shape, wanted))

    return view


@TABLE.kernel("Reshape", since=5, types={"T": _ANY}, view=True)
def _reshape(node: KernelNode) -> Kernel:
    zero_copies = not node.attr("allowzero", 0)

    def shape_of(shape: Shape, wanted: list[int] | None) -> Shape:
        assert wanted is not None
        return _reshaped(shape, wanted, zero_copies)

    return _viewed(node, shape_of)


@TABLE.kernel("Reshape", until=4, types={"T": _ANY}, view=True)
def _reshape_1(node: KernelNode) -> Kernel:
    wanted = list(node.attr("shape", ()))
    return _viewed(node, lambda shape, _: _reshaped(shape, wanted, True))


def _reshaped(shape: Shape, wanted: list[int], zero_copies: bool) -> Shape:
    """0 copies a length unless `allowzero`; one -1 takes what is left."""
    lengths = [
        shape[index] if length == 0 and zero_copies and index < len(shape) else length
        for index, length in enumerate(wanted)
    ]
    count = math.prod(shape)
    if lengths.count(-1) == 1:
        rest = math.prod(length for length in lengths if length != -1)
        if rest and count % rest == 0:
            lengths[lengths.index(-1)] = count // rest
    if min(lengths, default=0) < 0 or math.prod(lengths) != count:
        raise RunError(f"{list(shape)} can't be reshaped", expected=f"to fit {wanted}")
    return tuple(lengths)


@TABLE.kernel("Flatten", types={"T": _ANY}, view=True)
def _flatten(node: KernelNode) -> Kernel:
    axis = node.attr("axis", 1)

    def shape_of(shape: Shape, _: list[int] | None) -> Shape:
        start = axis if axis == len(shape) else positive_axis(axis, len(shape))
        return (math.prod(shape[:start]), math.prod(shape[start:]))

    return _viewed(node, shape_of)


@TABLE.kernel("Squeeze", types={"T": _ANY}, view=True)
def _squeeze(node: KernelNode) -> Kernel:
    named = node.attr("axes") if node.version < 13 else None

    def shape_of(shape: Shape, given: list[int] | None) -> Shape:
        axes = named if given is None else given
        if axes is None:
            return tuple(length for length in shape if length != 1)
        gone = {positive_axis(axis, len(shape)) for axis in axes}
        if any(shape[axis] != 1 for axis in gone):
            raise RunError(f"axes {sorted(gone)} of {list(shape)} aren't all of length 1")
        return tuple(length for axis, length in enumerate(shape) if axis not in gone)

    return _viewed(node, shape_of)


@TABLE.kernel("Unsqueeze", types={"T": _ANY}, view=True)
def _unsqueeze(node: KernelNode) -> Kernel:
    named = node.attr("axes") if node.version < 13 else None

    def shape_of(shape: Shape, given: list[int] | None) -> Shape:
        axes = list((named if given is None else given) or ())
        rank = len(shape) + len(axes)
        new = {positive_axis(axis, rank) for axis in axes}
        if len(new) != len(axes):
            raise RunError("an axis is named twice", got=axes)
        old = iter(shape)
        return tuple(1 if axis in new else next(old) for axis in range(rank))

    return _viewed(node, shape_of)


@TABLE.kernel("Shape", types={"T": _ANY}, writes_out=True)
def _shape(node: KernelNode) -> Kernel:
    """From version 15 on `start` and `end` choose a part; they are clamped as in Python."""
    part = slice(node.attr("start", 0), node.attr("end"))
    bench = Bench(node)

    def shape(
        stream: OpenCLStream, x: OpenCLBuffer, *, out: OpenCLBuffer | None = None
    ) -> OpenCLBuffer:
        return bench.upload(stream, np.array(x.shape[part], np.int64), out)

    return shape


@TABLE.kernel("Size", types={"T": _ANY}, writes_out=True)
def _size(node: KernelNode) -> Kernel:
    bench = Bench(node)

    def size(
        stream: OpenCLStream, x: OpenCLBuffer, *, out: OpenCLBuffer | None = None
    ) -> OpenCLBuffer:
        return bench.upload(stream, np.array(math.prod(x.shape), np.int64), out)

    return size
