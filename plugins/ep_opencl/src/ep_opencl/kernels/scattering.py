"""ScatterElements and ScatterND, with reductions."""

from __future__ import annotations

import math

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_opencl.elements import ELEMENTS
from ep_opencl.kernels.gathering import INDICES, PLAIN, code_of, common_axis, with_fault
from ep_opencl.launch import TABLE, Bench, text_attribute
from ep_opencl.memory import OpenCLBuffer
from ep_opencl.moving import MOST_DIMENSIONS, Strided, move, strides_of
from ep_opencl.stream import OpenCLStream
from ep_opencl.vectors import long8
from ep_sdk.kernels import Kernel, KernelNode

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)


_REDUCE = {
    "none": "(newer)",
    "add": "((older) + (newer))",
    "mul": "((older) * (newer))",
    "max": "LARGER(newer, older)",
    "min": "SMALLER(newer, older)",
}


def _reduction(node: KernelNode) -> str | None:
    """A predicate: sums and the like need numbers."""
    name = text_attribute(node, "reduction", "none")
    if name not in _REDUCE:
        return f"reduction {name}"
    if name != "none" and node.input_dtype(0) is DataType.BOOL:
        return f"reduction {name} of bool"
    return None


def _scatter_defines(node: KernelNode) -> dict[str, object]:
    name = text_attribute(node, "reduction", "none")
    return {"REDUCE(older, newer)": _REDUCE[name], "UNIT": "uchar"}


def _scatter_elements(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", 0)
    defines = _scatter_defines(node)

    def scatter(
        stream: OpenCLStream,
        data: OpenCLBuffer,
        indices: OpenCLBuffer,
        updates: OpenCLBuffer,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        if indices.shape != updates.shape:
            raise RunError("indices and updates differ", got=(indices.shape, updates.shape))
        axis = common_axis(named, data.shape, indices.shape)
        steps, index_steps = strides_of(data.shape), strides_of(indices.shape)
        lines = tuple(1 if a == axis else n for a, n in enumerate(indices.shape))
        own: dict[str, object] = {
            **defines,
            "T": code_of(data),
            "TI": code_of(indices),
            "RANK": len(data.shape),
            "AXIS": len(data.shape) - 1 - axis,
            "AXIS_STEP": steps[axis],
            "AXIS_INDEX_STEP": index_steps[axis],
        }
        with bench.writing(stream, data.shape, data.dtype, out) as y:
            _copy_all(bench, stream, data, y)
            if math.prod(indices.shape):
                kernel = bench.kernel("indexing.cl", "scatter_elements", own)
                kernel.launch(
                    stream.queue,
                    (math.prod(lines),),
                    None,
                    [
                        *with_fault(stream, updates, indices, y),
                        long8(lines[::-1]),
                        long8(steps[::-1]),
                        long8(index_steps[::-1]),
                        np.int64(indices.shape[axis]),
                        np.int64(data.shape[axis]),
                    ],
                )
        return y

    return scatter


_SCATTER_TYPES: dict[str | int, frozenset[DataType]] = {"T": _ANY, "Tind": INDICES}
TABLE.kernel(
    "ScatterElements", since=11, types=_SCATTER_TYPES, writes_out=True, predicate=_reduction
)(_scatter_elements)
TABLE.kernel("Scatter", since=9, until=10, types=_SCATTER_TYPES, writes_out=True)(_scatter_elements)


@TABLE.kernel("ScatterND", since=11, types={"T": _ANY}, writes_out=True, predicate=_reduction)
def _scatter_nd(node: KernelNode) -> Kernel:
    bench = Bench(node)
    defines = _scatter_defines(node)

    def scatter(
        stream: OpenCLStream,
        data: OpenCLBuffer,
        indices: OpenCLBuffer,
        updates: OpenCLBuffer,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        wide = indices.shape[-1]
        if wide > min(len(data.shape), MOST_DIMENSIONS):
            raise RunError("tuples of indices don't fit the data", got=(data.shape, indices.shape))
        inner = data.shape[wide:]
        if updates.shape != (*indices.shape[:-1], *inner):
            raise RunError("updates don't fit the indices", got=(updates.shape, indices.shape))
        count = math.prod(indices.shape[:-1])
        own = {**defines, **PLAIN, "T": code_of(data), "TI": code_of(indices)}
        own |= {"AXIS_STEP": 1, "AXIS_INDEX_STEP": 1}
        steps = strides_of(data.shape)
        with bench.writing(stream, data.shape, data.dtype, out) as y:
            _copy_all(bench, stream, data, y)
            if count and math.prod(data.shape):
                kernel = bench.kernel("indexing.cl", "scatter_nd", own)
                kernel.launch(
                    stream.queue,
                    (math.prod(inner),),
                    None,
                    [
                        *with_fault(stream, updates, indices, y),
                        np.int32(wide),
                        long8(data.shape[:wide]),
                        long8(steps[:wide]),
                        np.int64(count),
                    ],
                )
            elif count and math.prod(inner):
                raise RunError("nothing to scatter into", got=data.shape)
        return y

    return scatter


def _copy_all(
    bench: Bench, stream: OpenCLStream, source: OpenCLBuffer, target: OpenCLBuffer
) -> None:
    count = (math.prod(source.shape),)
    move(bench, stream, Strided(source, 0, (1,)), Strided(target, 0, (1,)), count)
