"""Range, EyeLike and DynamicQuantizeLinear: what is made from a few numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.kernels.reductions import RANGE_REDUCTIONS, Rows, reducer_of
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.kernels import Kernel, KernelNode

__all__: list[str] = []

_RANGE_TYPES = frozenset(
    {DataType.FLOAT, DataType.DOUBLE, DataType.INT16, DataType.INT32, DataType.INT64}
)
_NUMBERS = {DataType.FLOAT: "float", DataType.DOUBLE: "double"}
_MOST_KNOWN = 64


@TABLE.kernel("Range", since=11, types={"T": _RANGE_TYPES}, writes_out=True)
def _range(node: KernelNode) -> Kernel:
    bench = Bench(node)
    dtype = node.input_dtype(0)
    assert dtype is not None
    defines: dict[str, object] = {
        "T": ELEMENTS[dtype].code,
        "NUMBER": _NUMBERS.get(dtype, "long"),
    }
    kind = np.dtype(np.int64) if dtype not in _NUMBERS else dtype.numpy

    def count_up(
        stream: DeviceStream,
        start: DeviceBuffer,
        limit: DeviceBuffer,
        delta: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        first, end, step = (
            bench.values(stream, item).reshape(-1)[0] for item in (start, limit, delta)
        )
        count = _count(first.item(), end.item(), step.item())
        if count <= _MOST_KNOWN and dtype not in _NUMBERS:
            steps = np.arange(count) * int(step) + int(first)
            return bench.upload(stream, steps.astype(dtype.numpy), out)
        with bench.writing(stream, (count,), dtype, out) as y:
            kernel = bench.kernel("generating.cl", "count_up", defines)
            numbers = [kind.type(first), kind.type(step)]
            kernel.launch(stream, (count,), None, [y.handle, *numbers])
        return y

    return count_up


def _count(first: float, end: float, step: float) -> int:
    """How many there are; whole numbers of any size are counted exactly."""
    if step == 0 or not all(map(math.isfinite, (first, end, step))):
        raise RunError("Range needs finite numbers and a step", got=(first, end, step))
    if isinstance(step, int):
        return max(0, -int((first - end) // step))
    return max(0, math.ceil((end - first) / step))


@TABLE.kernel("DynamicQuantizeLinear", since=11, types={0: {DataType.FLOAT}})
def _dynamic_quantize(node: KernelNode) -> Kernel:
    bench = Bench(node)
    find_low, find_high = (
        reducer_of(bench, DataType.FLOAT, reduction) for reduction in RANGE_REDUCTIONS
    )
    defines: dict[str, object] = {"T": "f32", "NUMBER": "float"}

    def quantize(
        stream: DeviceStream, x: DeviceBuffer
    ) -> tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer]:
        rows = Rows(1, math.prod(x.shape), 1)
        with (
            bench.writing(stream, x.shape, DataType.UINT8) as y,
            bench.writing(stream, (), DataType.FLOAT) as scale,
            bench.writing(stream, (), DataType.UINT8) as zero,
            bench.scratch(stream, (), DataType.FLOAT) as low,
            bench.scratch(stream, (), DataType.FLOAT) as high,
        ):
            find_low(stream, x, low, rows)
            find_high(stream, x, high, rows)
            parameters = [scale.handle, zero.handle]
            kernel = bench.kernel("generating.cl", "dynamic_parameters", defines)
            kernel.launch(stream, (1,), None, [low.handle, high.handle, *parameters])
            kernel = bench.kernel("generating.cl", "dynamic_quantize", defines)
            arguments: list[Any] = [x.handle, y.handle, *parameters]
            kernel.launch(stream, (math.prod(x.shape),), None, arguments)
        return y, scale, zero

    return quantize
