"""Operators that only give a tensor another shape, or tell about its shape."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape, flattened, reshaped, squeezed, unsqueezed

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)


def _viewed(node: KernelNode, shape_of: Callable[[Shape, list[int] | None], Shape]) -> Kernel:
    """A kernel that gives its first input another shape, from that and the second input."""
    bench = Bench(node)

    def view(
        stream: DeviceStream, x: DeviceBuffer, numbers: DeviceBuffer | None = None
    ) -> DeviceBuffer:
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
        return reshaped(shape, wanted, zero_copies=zero_copies)

    return _viewed(node, shape_of)


@TABLE.kernel("Reshape", until=4, types={"T": _ANY}, view=True)
def _reshape_1(node: KernelNode) -> Kernel:
    wanted = list(node.attr("shape", ()))
    return _viewed(node, lambda shape, _: reshaped(shape, wanted, zero_copies=True))


@TABLE.kernel("Flatten", types={"T": _ANY}, view=True)
def _flatten(node: KernelNode) -> Kernel:
    axis = node.attr("axis", 1)
    return _viewed(node, lambda shape, _: flattened(shape, axis))


@TABLE.kernel("Squeeze", types={"T": _ANY}, view=True)
def _squeeze(node: KernelNode) -> Kernel:
    named = node.attr("axes") if node.version < 13 else None
    return _viewed(node, lambda shape, given: squeezed(shape, named if given is None else given))


@TABLE.kernel("Unsqueeze", types={"T": _ANY}, view=True)
def _unsqueeze(node: KernelNode) -> Kernel:
    named = node.attr("axes") if node.version < 13 else None
    return _viewed(
        node, lambda shape, given: unsqueezed(shape, (named if given is None else given) or ())
    )


@TABLE.kernel("Shape", types={"T": _ANY}, writes_out=True)
def _shape(node: KernelNode) -> Kernel:
    """From version 15 on `start` and `end` choose a part; they are clamped as in Python."""
    part = slice(node.attr("start", 0), node.attr("end"))
    bench = Bench(node)

    def shape(
        stream: DeviceStream, x: DeviceBuffer, *, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        return bench.upload(stream, np.array(x.shape[part], np.int64), out)

    return shape


@TABLE.kernel("Size", types={"T": _ANY}, writes_out=True)
def _size(node: KernelNode) -> Kernel:
    bench = Bench(node)

    def size(
        stream: DeviceStream, x: DeviceBuffer, *, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        return bench.upload(stream, np.array(math.prod(x.shape), np.int64), out)

    return size
