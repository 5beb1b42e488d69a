"""Operators that move elements and compute nothing: Transpose, Concat, Split, Slice, Pad, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_opencl.elements import ELEMENTS
from ep_opencl.expression import broadcast
from ep_opencl.launch import TABLE, Bench, Shape, positive_axis, text_attribute
from ep_opencl.memory import OpenCLBuffer
from ep_opencl.moving import MOST_DIMENSIONS, Strided, move, strides_of, unit_of
from ep_opencl.stream import OpenCLStream
from ep_opencl.vectors import long8
from ep_sdk.kernels import Kernel, KernelNode

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
        stream: OpenCLStream,
        x: OpenCLBuffer,
        *others: OpenCLBuffer | None,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        numbers = [_ints(bench, stream, item) for item in others]
        shape, block, start, steps = places(x.shape, numbers)
        if on_host is not None and x.values is not None:
            return bench.upload(stream, on_host(x.values, *numbers), out)
        with bench.writing(stream, shape, x.dtype, out) as y:
            move(bench, stream, Strided(x, start, steps), Strided(y, 0, strides_of(block)), block)
        return y

    return run


def _ints(bench: Bench, stream: OpenCLStream, buffer: OpenCLBuffer | None) -> list[int] | None:
    if buffer is None:
        return None
    return [int(item) for item in bench.values(stream, buffer).reshape(-1)]


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


# ---------------------------------------------------------------- joining and splitting


@TABLE.kernel("Concat", since=4, types={"T": _ANY}, writes_out=True)
def _concat(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis")

    def concat(
        stream: OpenCLStream, *inputs: OpenCLBuffer, out: OpenCLBuffer | None = None
    ) -> OpenCLBuffer:
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
        stream: OpenCLStream, x: OpenCLBuffer, sizes: OpenCLBuffer | None = None
    ) -> tuple[OpenCLBuffer, ...]:
        axis = positive_axis(named, len(x.shape))
        given = _ints(bench, stream, sizes) if sizes is not None else attribute
        lengths = _split_lengths(x.shape[axis], given, count)
        steps = strides_of(x.shape)
        parts: list[OpenCLBuffer] = []
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


# ---------------------------------------------------------------- padding and triangles

_MODES = {"constant": 0, "edge": 1, "reflect": 2, "wrap": 3}


@TABLE.kernel("Pad", since=11, types={"T": _ANY}, writes_out=True)
def _pad(node: KernelNode) -> Kernel:
    bench = Bench(node)
    mode = _MODES[text_attribute(node, "mode", "constant")]
    dtype = node.input_dtype(0)
    assert dtype is not None
    zero = None if node.has_input(2) else bench.constant(np.zeros((), dtype.numpy))

    def pad(
        stream: OpenCLStream,
        x: OpenCLBuffer,
        pads: OpenCLBuffer,
        value: OpenCLBuffer | None = None,
        axes: OpenCLBuffer | None = None,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        amounts = _ints(bench, stream, pads) or []
        before, after = _pads_by_axis(len(x.shape), amounts, _ints(bench, stream, axes))
        return _padded(bench, stream, x, before, after, mode, value or zero, out)

    return pad


@TABLE.kernel("Pad", since=2, until=10, types={"T": _ANY}, writes_out=True)
def _pad_2(node: KernelNode) -> Kernel:
    """Amounts and value are attributes."""
    bench = Bench(node)
    mode = _MODES[text_attribute(node, "mode", "constant")]
    dtype = node.input_dtype(0)
    assert dtype is not None
    value = bench.constant(np.array(node.attr("value", 0.0), dtype.numpy))
    amounts = list(node.attr("pads"))

    def pad(
        stream: OpenCLStream, x: OpenCLBuffer, *, out: OpenCLBuffer | None = None
    ) -> OpenCLBuffer:
        before, after = _pads_by_axis(len(x.shape), amounts, None)
        return _padded(bench, stream, x, before, after, mode, value, out)

    return pad


def _pads_by_axis(
    rank: int, amounts: Sequence[int], axes: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    named = list(range(rank)) if axes is None else [positive_axis(axis, rank) for axis in axes]
    if len(amounts) != 2 * len(named):
        raise RunError("two amounts for each axis", expected=2 * len(named), got=len(amounts))
    before, after = [0] * rank, [0] * rank
    for number, axis in enumerate(named):
        before[axis] = amounts[number]
        after[axis] = amounts[number + len(named)]
    return before, after


def _padded(
    bench: Bench,
    stream: OpenCLStream,
    x: OpenCLBuffer,
    before: list[int],
    after: list[int],
    mode: int,
    value: OpenCLBuffer | None,
    out: OpenCLBuffer | None,
) -> OpenCLBuffer:
    shape = tuple(a + n + b for a, n, b in zip(before, x.shape, after, strict=True))
    if min(shape, default=0) < 0 or len(shape) > MOST_DIMENSIONS:
        raise RunError("can't pad", expected=f"up to {MOST_DIMENSIONS} axes", got=shape)
    if mode and 0 in x.shape and math.prod(shape):
        raise RunError("an axis without elements can't be continued", got=x.shape)
    assert value is not None
    with bench.writing(stream, shape, x.dtype, out) as y:
        defines: dict[str, object] = {"UNIT": unit_of(x), "RANK": len(shape), "MODE": mode}
        kernel = bench.kernel("moving.cl", "pad", defines)
        arguments = [x.cl_buffer, y.cl_buffer, value.cl_buffer]
        arguments += [long8(list(item)[::-1]) for item in (shape, x.shape, before)]
        kernel.launch(stream.queue, (math.prod(shape),), None, arguments)
    return y


@TABLE.kernel("Trilu", since=14, types={"T": _ANY}, writes_out=True)
def _trilu(node: KernelNode) -> Kernel:
    bench = Bench(node)
    upper = np.int32(node.attr("upper", 1))

    def trilu(
        stream: OpenCLStream,
        x: OpenCLBuffer,
        k: OpenCLBuffer | None = None,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        (diagonal,) = _ints(bench, stream, k) or [0]
        rows, columns = x.shape[-2:]
        with bench.writing(stream, x.shape, x.dtype, out) as y:
            defines: dict[str, object] = {"UNIT": unit_of(x), "RANK": 1, "MODE": 0}
            kernel = bench.kernel("moving.cl", "triangle", defines)
            numbers = [np.int64(rows), np.int64(columns), np.int64(diagonal), upper]
            size = (math.prod(x.shape),)
            kernel.launch(stream.queue, size, None, [x.cl_buffer, y.cl_buffer, *numbers])
        return y

    return trilu


def _known_value(node: KernelNode) -> str | None:
    dtype = node.output_dtype()
    return (
        None if dtype in _ANY else f"a value of type {'unknown' if dtype is None else dtype.text}"
    )


@TABLE.kernel(
    "ConstantOfShape",
    since=9,
    types={"T1": {DataType.INT64}},
    writes_out=True,
    predicate=_known_value,
)
def _constant_of_shape(node: KernelNode) -> Kernel:
    bench = Bench(node)
    value = node.attr("value")
    item = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    dtype = DataType.from_numpy(item.dtype)
    nbytes = item.dtype.itemsize
    bits = item.view(f"u{nbytes}")[0]

    def fill(
        stream: OpenCLStream, shape: OpenCLBuffer, *, out: OpenCLBuffer | None = None
    ) -> OpenCLBuffer:
        lengths = tuple(_ints(bench, stream, shape) or ())
        if min(lengths, default=0) < 0:
            raise RunError("a length is negative", got=lengths)
        with bench.writing(stream, lengths, dtype, out) as y:
            defines: dict[str, object] = {"UNIT": unit_of(y), "RANK": 1, "MODE": 0}
            kernel = bench.kernel("moving.cl", "fill", defines)
            kernel.launch(stream.queue, (math.prod(lengths),), None, [y.cl_buffer, bits])
        return y

    return fill
