"""Concat and Split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ep_core.errors import RunError
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.device_kernels.moving import Strided, move, strides_of
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape, positive_axis

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)


@TABLE.kernel("Concat", since=4, types={"T": _ANY}, writes_out=True)
def _concat(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis")

    def concat(
        stream: DeviceStream, *inputs: DeviceBuffer, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        first = inputs[0].shape
        axis = positive_axis(named, len(first))
        for item in inputs:
            if len(item.shape) != len(first) or _without(item.shape, axis) != _without(first, axis):
                raise RunError("shapes don't fit together", got=[i.shape for i in inputs])
        values = [item.values for item in inputs if item.values is not None]
        if len(values) == len(inputs):
            return bench.upload(stream, np.concatenate(values, axis=axis), out)
        total = sum(item.shape[axis] for item in inputs)
        shape = (*first[:axis], total, *first[axis + 1 :])
        steps = strides_of(shape)
        with bench.writing(stream, shape, inputs[0].dtype, out) as y:
            start = 0
            for item in inputs:
                source = Strided(item, 0, strides_of(item.shape))
                move(bench, stream, source, Strided(y, start, steps), item.shape)
                start += item.shape[axis] * steps[axis]
        return y

    return concat


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


@TABLE.kernel("Split", types={"T": _ANY})
def _split(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", 0)
    attribute = node.attr("split") if node.version < 13 else None
    count = len(node.node.outputs)

    def split(
        stream: DeviceStream, x: DeviceBuffer, sizes: DeviceBuffer | None = None
    ) -> tuple[DeviceBuffer, ...]:
        axis = positive_axis(named, len(x.shape))
        given = bench.ints(stream, sizes) if sizes is not None else attribute
        lengths = _split_lengths(x.shape[axis], given, count)
        steps = strides_of(x.shape)
        parts: list[DeviceBuffer] = []
        start = 0
        try:
            for length in lengths:
                shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
                with bench.writing(stream, shape, x.dtype) as part:
                    target = Strided(part, 0, strides_of(shape))
                    move(bench, stream, Strided(x, start, steps), target, shape)
                parts.append(part)
                start += length * steps[axis]
        except BaseException:
            for part in parts:
                bench.release(stream, part)
            raise
        return tuple(parts)

    return split


def _split_lengths(length: int, given: Sequence[int] | None, count: int) -> list[int]:
    if given is not None:
        if sum(given) != length or len(given) != count or min(given) < 0:
            raise RunError("the parts don't make up the axis", expected=length, got=list(given))
        return list(given)
    size = -(-length // count)
    return [min(size, max(0, length - size * part)) for part in range(count)]
