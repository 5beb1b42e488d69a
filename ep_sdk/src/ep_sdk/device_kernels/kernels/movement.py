"""Operators whose output is one strided block of their input: Transpose, Slice, Expand, ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ep_core.errors import RunError
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.expression import broadcast
from ep_sdk.device_kernels.launch import TABLE, Bench, text_attribute
from ep_sdk.device_kernels.moving import Strided, move, strides_of
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape, positive_axis

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)

_Places = tuple[Shape, Shape, int, Sequence[int]]
"""The output's shape; the shape of the block that is read; its start and steps in the input. The
block has as many elements as the output, in the same order."""


def _reading(
    node: KernelNode,
    places: Callable[[Shape, list[list[int] | None]], _Places],
    on_host: Callable[..., Any] | None = None,
) -> Kernel:
    """A kernel whose output is one strided block of its first input.

    Args:
        node: the node.
        places: from the first input's shape, and the values of the other inputs.
        on_host: the same in numpy, for shapes and the like, which the host knows.
    """
    bench = Bench(node)

    def run(
        stream: DeviceStream,
        x: DeviceBuffer,
        *others: DeviceBuffer | None,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        numbers = [bench.ints(stream, item) for item in others]
        shape, block, start, steps = places(x.shape, numbers)
        if on_host is not None and x.values is not None:
            return bench.upload(stream, on_host(x.values, *numbers), out)
        with bench.writing(stream, shape, x.dtype, out) as y:
            move(bench, stream, Strided(x, start, steps), Strided(y, 0, strides_of(block)), block)
        return y

    return run


@TABLE.kernel("Transpose", types={"T": _ANY}, writes_out=True)
def _transpose(node: KernelNode) -> Kernel:
    named = node.attr("perm")

    def places(shape: Shape, _: list[list[int] | None]) -> _Places:
        order = tuple(range(len(shape)))[::-1] if named is None else tuple(named)
        if sorted(order) != list(range(len(shape))):
            raise RunError("perm doesn't fit the input", expected=f"rank {len(shape)}", got=order)
        steps = strides_of(shape)
        turned = tuple(shape[axis] for axis in order)
        return turned, turned, 0, [steps[axis] for axis in order]

    return _reading(node, places)


@TABLE.kernel("Expand", since=8, types={"T": _ANY}, writes_out=True)
def _expand(node: KernelNode) -> Kernel:
    def places(shape: Shape, numbers: list[list[int] | None]) -> _Places:
        whole = broadcast([shape, tuple(numbers[0] or ())])
        added = len(whole) - len(shape)
        steps = [0] * added + [
            step if length > 1 else 0 for length, step in zip(shape, strides_of(shape), strict=True)
        ]
        return whole, whole, 0, steps

    return _reading(node, places)


@TABLE.kernel("Tile", since=6, types={"T": _ANY}, writes_out=True)
def _tile(node: KernelNode) -> Kernel:
    def places(shape: Shape, numbers: list[list[int] | None]) -> _Places:
        repeats = numbers[0] or []
        if len(repeats) != len(shape):
            raise RunError("one repeat for each axis", expected=len(shape), got=repeats)
        block: list[int] = []
        steps: list[int] = []
        for length, step, count in zip(shape, strides_of(shape), repeats, strict=True):
            block += [count, length]
            steps += [0, step]
        whole = tuple(length * count for length, count in zip(shape, repeats, strict=True))
        return whole, tuple(block), 0, steps

    return _reading(node, places)


@TABLE.kernel("Slice", since=10, types={"T": _ANY}, writes_out=True)
def _slice(node: KernelNode) -> Kernel:
    def places(shape: Shape, numbers: list[list[int] | None]) -> _Places:
        return _sliced(shape, _ranges(shape, *numbers))

    def on_host(x: Any, *numbers: list[int] | None) -> Any:
        return x[_ranges(x.shape, *numbers)]

    return _reading(node, places, on_host)


@TABLE.kernel("Slice", until=9, types={"T": _ANY}, writes_out=True)
def _slice_1(node: KernelNode) -> Kernel:
    """Ranges are attributes."""
    numbers = list(node.attr("starts")), list(node.attr("ends")), node.attr("axes")
    return _reading(node, lambda shape, _: _sliced(shape, _ranges(shape, *numbers)))


def _ranges(
    shape: Shape,
    starts: Sequence[int] | None,
    ends: Sequence[int] | None,
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> tuple[slice, ...]:
    """Bounds are clamped as in Python."""
    starts, ends = starts or [], ends or []
    named = range(len(starts)) if axes is None else axes
    jumps = [1] * len(starts) if steps is None else steps
    found = [slice(None)] * len(shape)
    for axis, start, end, step in zip(named, starts, ends, jumps, strict=True):
        if not step:
            raise RunError("a step of Slice is 0")
        found[positive_axis(axis, len(shape))] = slice(start, end, step)
    return tuple(found)


def _sliced(shape: Shape, ranges: tuple[slice, ...]) -> _Places:
    start = 0
    lengths: list[int] = []
    steps: list[int] = []
    for part, length, step in zip(ranges, shape, strides_of(shape), strict=True):
        first, end, jump = part.indices(length)
        count = len(range(first, end, jump))
        lengths.append(count)
        steps.append(step * jump)
        start += first * step if count else 0
    return tuple(lengths), tuple(lengths), start, steps


def _four_dimensions(node: KernelNode) -> str | None:
    kind = node.input_types[0]
    shape = getattr(kind, "shape", None)
    return None if shape is not None and len(shape) == 4 else "the input isn't known to have rank 4"


@TABLE.kernel("SpaceToDepth", types={"T": _ANY}, writes_out=True, predicate=_four_dimensions)
def _space_to_depth(node: KernelNode) -> Kernel:
    size = node.attr("blocksize")
    channels_first = text_attribute(node, "mode", "DCR") == "CRD"

    def where(shape: Shape, _: list[list[int] | None]) -> _Places:
        n, c, h, w = shape
        if h % size or w % size:
            raise RunError("lengths aren't multiples of blocksize", got=shape)
        places = ((size, w), (size, 1), (c, h * w))
        if channels_first:
            places = (places[2], *places[:2])
        block = (n, *(length for length, _ in places), h // size, w // size)
        steps = (c * h * w, *(step for _, step in places), w * size, size)
        return (n, c * size * size, h // size, w // size), block, 0, steps

    return _reading(node, where)


@TABLE.kernel("DepthToSpace", types={"T": _ANY}, writes_out=True, predicate=_four_dimensions)
def _depth_to_space(node: KernelNode) -> Kernel:
    size = node.attr("blocksize")
    columns_first = text_attribute(node, "mode", "DCR") == "CRD"

    def places(shape: Shape, _: list[list[int] | None]) -> _Places:
        n, c, h, w = shape
        if c % (size * size):
            raise RunError("channels aren't a multiple of blocksize squared", got=shape)
        depth = c // (size * size)
        channel = size * size if columns_first else 1
        inner = 1 if columns_first else depth
        block = (n, depth, h, size, w, size)
        plane = h * w
        steps = (c * plane, channel * plane, w, size * inner * plane, 1, inner * plane)
        return (n, depth, h * size, w * size), block, 0, steps

    return _reading(node, places)
