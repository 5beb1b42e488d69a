"""Pad in all its modes, triangles of matrices, and tensors of one value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.launch import TABLE, Bench, text_attribute
from ep_sdk.device_kernels.moving import MOST_DIMENSIONS, unit_of
from ep_sdk.device_kernels.vectors import long8
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import positive_axis

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)


_MODES = {"constant": 0, "edge": 1, "reflect": 2, "wrap": 3}


@TABLE.kernel("Pad", since=11, types={"T": _ANY}, writes_out=True)
def _pad(node: KernelNode) -> Kernel:
    bench = Bench(node)
    mode = _MODES[text_attribute(node, "mode", "constant")]
    dtype = node.input_dtype(0)
    assert dtype is not None
    zero = None if node.has_input(2) else bench.constant(np.zeros((), dtype.numpy))

    def pad(
        stream: DeviceStream,
        x: DeviceBuffer,
        pads: DeviceBuffer,
        value: DeviceBuffer | None = None,
        axes: DeviceBuffer | None = None,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        amounts = bench.ints(stream, pads) or []
        before, after = _pads_by_axis(len(x.shape), amounts, bench.ints(stream, axes))
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
        stream: DeviceStream, x: DeviceBuffer, *, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
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
    stream: DeviceStream,
    x: DeviceBuffer,
    before: list[int],
    after: list[int],
    mode: int,
    value: DeviceBuffer | None,
    out: DeviceBuffer | None,
) -> DeviceBuffer:
    shape = tuple(a + n + b for a, n, b in zip(before, x.shape, after, strict=True))
    if min(shape, default=0) < 0 or len(shape) > MOST_DIMENSIONS:
        raise RunError("can't pad", expected=f"up to {MOST_DIMENSIONS} axes", got=shape)
    if mode and 0 in x.shape and math.prod(shape):
        raise RunError("an axis without elements can't be continued", got=x.shape)
    assert value is not None
    with bench.writing(stream, shape, x.dtype, out) as y:
        defines: dict[str, object] = {"UNIT": unit_of(x), "RANK": len(shape), "MODE": mode}
        kernel = bench.kernel("moving.cl", "pad", defines)
        arguments = [x.handle, y.handle, value.handle]
        arguments += [long8(list(item)[::-1]) for item in (shape, x.shape, before)]
        kernel.launch(stream, (math.prod(shape),), None, arguments)
    return y


@TABLE.kernel("Trilu", since=14, types={"T": _ANY}, writes_out=True)
def _trilu(node: KernelNode) -> Kernel:
    bench = Bench(node)
    upper = np.int32(node.attr("upper", 1))

    def trilu(
        stream: DeviceStream,
        x: DeviceBuffer,
        k: DeviceBuffer | None = None,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        (diagonal,) = bench.ints(stream, k) or [0]
        rows, columns = x.shape[-2:]
        with bench.writing(stream, x.shape, x.dtype, out) as y:
            defines: dict[str, object] = {"UNIT": unit_of(x), "RANK": 1, "MODE": 0}
            kernel = bench.kernel("moving.cl", "triangle", defines)
            numbers = [np.int64(rows), np.int64(columns), np.int64(diagonal), upper]
            size = (math.prod(x.shape),)
            kernel.launch(stream, size, None, [x.handle, y.handle, *numbers])
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
        stream: DeviceStream, shape: DeviceBuffer, *, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        lengths = tuple(bench.ints(stream, shape) or ())
        if min(lengths, default=0) < 0:
            raise RunError("a length is negative", got=lengths)
        with bench.writing(stream, lengths, dtype, out) as y:
            defines: dict[str, object] = {"UNIT": unit_of(y), "RANK": 1, "MODE": 0}
            kernel = bench.kernel("moving.cl", "fill", defines)
            kernel.launch(stream, (math.prod(lengths),), None, [y.handle, bits])
        return y

    return fill
