"""Pools: maximum, average and Lp, over windows and over everything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.device_kernels.vectors import int4
from ep_sdk.device_kernels.windows import Geometry, spatial_rank, window_geometry
from ep_sdk.kernels import Kernel, KernelNode

__all__: list[str] = []

_MAXIMUM, _AVERAGE, _POWERS = 0, 1, 2
_PLAIN_NUMBERS = 2
_COMPARED = FLOATS | {DataType.INT8, DataType.UINT8}


def _pooling(node: KernelNode, kind: int) -> Kernel:
    bench = Bench(node)
    dtype = node.input_dtype(0)
    assert dtype is not None
    window = tuple(node.attr("kernel_shape"))
    rounds_up = bool(node.attr("ceil_mode", 0))
    counts_padding = np.int32(node.attr("count_include_pad", 0))
    order = np.int32(node.attr("p", 2))

    def pool(
        stream: DeviceStream, x: DeviceBuffer, *, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        geometry = window_geometry(node, x.shape, window, rounds_up=rounds_up)
        return _run(bench, stream, x, geometry, kind, (counts_padding, order), out)

    return pool


def _run(
    bench: Bench,
    stream: DeviceStream,
    x: DeviceBuffer,
    geometry: Geometry,
    kind: int,
    numbers: tuple[Any, ...],
    out: DeviceBuffer | None,
) -> DeviceBuffer:
    planes = math.prod(x.shape[:2])
    shape = geometry.result_shape(x.shape, x.shape[1])
    defines: dict[str, object] = {"T": ELEMENTS[x.dtype].code, "KIND": kind}
    if len(numbers) > _PLAIN_NUMBERS:
        defines["POSITIONS"] = 1
    with bench.writing(stream, shape, x.dtype, out) as y:
        kernel = bench.kernel("pools.cl", "pool", defines)
        depth, height, width = geometry.output
        arguments = [x.handle, y.handle, *geometry.arguments(), int4(geometry.after)]
        kernel.launch(stream, (width, height, planes * depth), None, [*arguments, *numbers])
    return y


def _no_indices(node: KernelNode) -> str | None:
    if node.wants_output(1):
        return "the positions of the maxima are asked for"
    return spatial_rank(node)


@TABLE.kernel("MaxPool", types={"T": _COMPARED}, writes_out=True, predicate=_no_indices)
def _max_pool(node: KernelNode) -> Kernel:
    return _pooling(node, _MAXIMUM)


@TABLE.kernel("MaxPool", since=8, types={"T": _COMPARED}, predicate=spatial_rank)
def _max_pool_with_positions(node: KernelNode) -> Kernel:
    bench = Bench(node)
    dtype = node.input_dtype(0)
    assert dtype is not None
    window = tuple(node.attr("kernel_shape"))
    rounds_up = bool(node.attr("ceil_mode", 0))
    by_columns = np.int32(node.attr("storage_order", 0))

    def pool(stream: DeviceStream, x: DeviceBuffer) -> tuple[DeviceBuffer, DeviceBuffer]:
        geometry = window_geometry(node, x.shape, window, rounds_up=rounds_up)
        shape = geometry.result_shape(x.shape, x.shape[1])
        with bench.writing(stream, shape, DataType.INT64) as positions:
            numbers = (np.int32(0), np.int32(0), positions.handle, by_columns)
            y = _run(bench, stream, x, geometry, _MAXIMUM, numbers, None)
        return y, positions

    return pool


@TABLE.kernel("AveragePool", types={"T": FLOATS}, writes_out=True, predicate=spatial_rank)
def _average_pool(node: KernelNode) -> Kernel:
    return _pooling(node, _AVERAGE)


@TABLE.kernel("LpPool", since=11, types={"T": FLOATS}, writes_out=True, predicate=spatial_rank)
def _lp_pool(node: KernelNode) -> Kernel:
    return _pooling(node, _POWERS)
