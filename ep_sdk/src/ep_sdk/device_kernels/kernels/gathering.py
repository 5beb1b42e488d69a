"""Gather, GatherElements and GatherND, and what scattering shares with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.device_kernels.moving import MOST_DIMENSIONS, strides_of, unit_of
from ep_sdk.device_kernels.vectors import long8
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape, positive_axis

__all__ = ["INDICES", "PLAIN", "code_of", "common_axis", "gather_slices", "with_fault"]

_ANY = frozenset(ELEMENTS)
INDICES = frozenset({DataType.INT32, DataType.INT64})


def code_of(buffer: DeviceBuffer) -> str:
    """The code of a buffer's element type."""
    return ELEMENTS[buffer.dtype].code


@TABLE.kernel("Gather", types={"T": _ANY, "Tind": INDICES}, writes_out=True)
def _gather(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", 0)

    def gather(
        stream: DeviceStream,
        data: DeviceBuffer,
        indices: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        axis = positive_axis(named, len(data.shape))
        length = data.shape[axis]
        if indices.values is not None:
            check_indices(indices.values, length)
            if data.values is not None:
                taken = np.take(data.values, indices.values, axis=axis)
                return bench.upload(stream, np.asarray(taken), out)
        return gather_slices(bench, stream, data, indices, axis, out)

    return gather


def gather_slices(
    bench: Bench,
    stream: DeviceStream,
    data: DeviceBuffer,
    indices: DeviceBuffer,
    axis: int,
    out: DeviceBuffer | None = None,
) -> DeviceBuffer:
    """The slices of `data` along an axis that the indices name.

    Raises:
        RunError: there is nothing to gather from.
    """
    length = data.shape[axis]
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    count = math.prod(indices.shape)
    if count and not length:
        raise RunError("nothing to gather from an axis without elements")
    with bench.writing(stream, shape, data.dtype, out) as y:
        kernel = bench.kernel(
            "indexing.cl", "gather", {**PLAIN, "UNIT": unit_of(data), "TI": code_of(indices)}
        )
        size = (math.prod(data.shape[axis + 1 :]), count, math.prod(data.shape[:axis]))
        arguments = with_fault(stream, data, indices, y)
        kernel.launch(stream, size, None, [*arguments, np.int64(length)])
    return y


PLAIN: dict[str, object] = {"RANK": 1, "AXIS": 0}


def check_indices(values: np.ndarray[Any, Any], length: int) -> None:
    if values.size and (values.min() < -length or values.max() >= length):
        raise RunError(
            "an index is out of range", expected=f"within {-length}..{length - 1}", got=values
        )


def with_fault(
    stream: DeviceStream, data: DeviceBuffer, indices: DeviceBuffer, target: DeviceBuffer
) -> list[Any]:
    """The first arguments of a kernel that can meet a bad index."""
    return [data.handle, indices.handle, target.handle, stream.fault_word()]


@TABLE.kernel("GatherElements", since=11, types={"T": _ANY, "Tind": INDICES}, writes_out=True)
def _gather_elements(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", 0)

    def gather(
        stream: DeviceStream,
        data: DeviceBuffer,
        indices: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        axis = common_axis(named, data.shape, indices.shape)
        rank = len(data.shape)
        steps = strides_of(data.shape)
        defines: dict[str, object] = {
            "UNIT": unit_of(data),
            "TI": code_of(indices),
            "RANK": rank,
            "AXIS": rank - 1 - axis,
        }
        with bench.writing(stream, indices.shape, data.dtype, out) as y:
            kernel = bench.kernel("indexing.cl", "gather_elements", defines)
            kernel.launch(
                stream,
                (math.prod(indices.shape),),
                None,
                [
                    *with_fault(stream, data, indices, y),
                    long8(indices.shape[::-1]),
                    long8(steps[::-1]),
                    np.int64(data.shape[axis]),
                    np.int64(steps[axis]),
                ],
            )
        return y

    return gather


def common_axis(named: int, data: Shape, indices: Shape) -> int:
    """The axis that indices replace, counted from the front.

    Raises:
        RunError: indices don't fit the data.
    """
    if len(data) != len(indices) or len(data) > MOST_DIMENSIONS:
        raise RunError("data and indices must have one rank, up to 8", got=(data, indices))
    axis = positive_axis(named, len(data))
    for other, (length, count) in enumerate(zip(data, indices, strict=True)):
        if count > length and other != axis:
            raise RunError("indices are longer than the data", got=(data, indices))
    if math.prod(indices) and not math.prod(data):
        raise RunError("nothing to gather from", got=data)
    return axis


@TABLE.kernel("GatherND", since=11, types={"T": _ANY}, writes_out=True)
def _gather_nd(node: KernelNode) -> Kernel:
    bench = Bench(node)
    batches = node.attr("batch_dims", 0)

    def gather(
        stream: DeviceStream,
        data: DeviceBuffer,
        indices: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        wide = indices.shape[-1]
        rest = data.shape[batches + wide :]
        if not 1 <= wide <= len(data.shape) - batches or wide > MOST_DIMENSIONS:
            raise RunError("tuples of indices don't fit the data", got=(data.shape, indices.shape))
        if data.shape[:batches] != indices.shape[:batches]:
            raise RunError("batches differ", got=(data.shape, indices.shape))
        shape = (*indices.shape[:-1], *rest)
        steps = strides_of(data.shape)
        count = math.prod(indices.shape[:-1])
        if count and math.prod(rest) and not math.prod(data.shape):
            raise RunError("nothing to gather from", got=data.shape)
        batch = max(1, math.prod(indices.shape[batches:-1]))
        with bench.writing(stream, shape, data.dtype, out) as y:
            kernel = bench.kernel(
                "indexing.cl", "gather_nd", {**PLAIN, "UNIT": unit_of(data), "TI": code_of(indices)}
            )
            kernel.launch(
                stream,
                (math.prod(rest), count),
                None,
                [
                    *with_fault(stream, data, indices, y),
                    np.int32(wide),
                    long8(data.shape[batches : batches + wide]),
                    long8(steps[batches : batches + wide]),
                    np.int64(batch),
                    np.int64(math.prod(data.shape[batches:])),
                ],
            )
        return y

    return gather
