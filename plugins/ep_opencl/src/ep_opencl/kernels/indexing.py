"""Gather and Scatter in all their forms, TopK, CumSum, OneHot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_opencl.elements import ELEMENTS, FLOATS, NUMBERS
from ep_opencl.launch import TABLE, Bench, Shape, positive_axis, text_attribute
from ep_opencl.memory import OpenCLBuffer
from ep_opencl.moving import MOST_DIMENSIONS, Strided, move, strides_of, unit_of
from ep_opencl.stream import OpenCLStream
from ep_opencl.vectors import long8
from ep_sdk.kernels import Kernel, KernelNode

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)
_INDICES = frozenset({DataType.INT32, DataType.INT64})
_LONGEST_SORT = 16384
"""Lengths of rows up to which comparing all pairs is taken; work grows with the square."""


def _code(buffer: OpenCLBuffer) -> str:
    return ELEMENTS[buffer.dtype].code


@TABLE.kernel("Gather", types={"T": _ANY, "Tind": _INDICES}, writes_out=True)
def _gather(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", 0)

    def gather(
        stream: OpenCLStream,
        data: OpenCLBuffer,
        indices: OpenCLBuffer,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        axis = positive_axis(named, len(data.shape))
        length = data.shape[axis]
        if indices.values is not None:
            _check_indices(indices.values, length)
            if data.values is not None:
                taken = np.take(data.values, indices.values, axis=axis)
                return bench.upload(stream, np.asarray(taken), out)
        shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
        count = math.prod(indices.shape)
        if count and not length:
            raise RunError("nothing to gather from an axis without elements")
        with bench.writing(stream, shape, data.dtype, out) as y:
            kernel = bench.kernel(
                "indexing.cl", "gather", {**_PLAIN, "UNIT": unit_of(data), "TI": _code(indices)}
            )
            size = (math.prod(data.shape[axis + 1 :]), count, math.prod(data.shape[:axis]))
            arguments = _with_fault(stream, data, indices, y)
            kernel.launch(stream.queue, size, None, [*arguments, np.int64(length)])
        return y

    return gather


_PLAIN: dict[str, object] = {"RANK": 1, "AXIS": 0}


def _check_indices(values: np.ndarray[Any, Any], length: int) -> None:
    if values.size and (values.min() < -length or values.max() >= length):
        raise RunError(
            "an index is out of range", expected=f"within {-length}..{length - 1}", got=values
        )


def _with_fault(
    stream: OpenCLStream, data: OpenCLBuffer, indices: OpenCLBuffer, target: OpenCLBuffer
) -> list[Any]:
    return [data.cl_buffer, indices.cl_buffer, target.cl_buffer, stream.fault_word()]


@TABLE.kernel("GatherElements", since=11, types={"T": _ANY, "Tind": _INDICES}, writes_out=True)
def _gather_elements(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", 0)

    def gather(
        stream: OpenCLStream,
        data: OpenCLBuffer,
        indices: OpenCLBuffer,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        axis = _common_axis(named, data.shape, indices.shape)
        rank = len(data.shape)
        steps = strides_of(data.shape)
        defines: dict[str, object] = {
            "UNIT": unit_of(data),
            "TI": _code(indices),
            "RANK": rank,
            "AXIS": rank - 1 - axis,
        }
        with bench.writing(stream, indices.shape, data.dtype, out) as y:
            kernel = bench.kernel("indexing.cl", "gather_elements", defines)
            kernel.launch(
                stream.queue,
                (math.prod(indices.shape),),
                None,
                [
                    *_with_fault(stream, data, indices, y),
                    long8(indices.shape[::-1]),
                    long8(steps[::-1]),
                    np.int64(data.shape[axis]),
                    np.int64(steps[axis]),
                ],
            )
        return y

    return gather


def _common_axis(named: int, data: Shape, indices: Shape) -> int:
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
        stream: OpenCLStream,
        data: OpenCLBuffer,
        indices: OpenCLBuffer,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
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
                "indexing.cl", "gather_nd", {**_PLAIN, "UNIT": unit_of(data), "TI": _code(indices)}
            )
            kernel.launch(
                stream.queue,
                (math.prod(rest), count),
                None,
                [
                    *_with_fault(stream, data, indices, y),
                    np.int32(wide),
                    long8(data.shape[batches : batches + wide]),
                    long8(steps[batches : batches + wide]),
                    np.int64(batch),
                    np.int64(math.prod(data.shape[batches:])),
                ],
            )
        return y

    return gather


# ---------------------------------------------------------------- scatter

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
        axis = _common_axis(named, data.shape, indices.shape)
        steps, index_steps = strides_of(data.shape), strides_of(indices.shape)
        lines = tuple(1 if a == axis else n for a, n in enumerate(indices.shape))
        own: dict[str, object] = {
            **defines,
            "T": _code(data),
            "TI": _code(indices),
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
                        *_with_fault(stream, updates, indices, y),
                        long8(lines[::-1]),
                        long8(steps[::-1]),
                        long8(index_steps[::-1]),
                        np.int64(indices.shape[axis]),
                        np.int64(data.shape[axis]),
                    ],
                )
        return y

    return scatter


_SCATTER_TYPES: dict[str | int, frozenset[DataType]] = {"T": _ANY, "Tind": _INDICES}
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
        own = {**defines, **_PLAIN, "T": _code(data), "TI": _code(indices)}
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
                        *_with_fault(stream, updates, indices, y),
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


# ---------------------------------------------------------------- order


def _short_rows(node: KernelNode) -> str | None:
    shape = getattr(node.input_types[0], "shape", None)
    if not shape:
        return "the shape of the input isn't known"
    length = shape[node.attr("axis", -1) % len(shape)]
    if not isinstance(length, int) or length > _LONGEST_SORT:
        return f"rows of {length} elements, more than {_LONGEST_SORT}, or of unknown length"
    return None


@TABLE.kernel("TopK", since=10, types={"T": NUMBERS}, predicate=_short_rows)
def _top_k(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", -1)
    sign = ">" if node.attr("largest", 1) else "<"
    dtype = node.input_dtype(0)
    assert dtype is not None
    test = f"((a) {sign} (b))"
    if dtype in FLOATS:
        # A NaN counts as larger than any number.
        other = "((a) != (a) && (b) == (b))" if sign == ">" else "((b) != (b) && (a) == (a))"
        test = f"({test} || {other})"
    defines: dict[str, object] = {
        **_PLAIN,
        "T": ELEMENTS[dtype].code,
        "TI": "i64",
        "UNIT": "uchar",
        "PRECEDES(a, b)": test,
        **_UNUSED,
    }

    def top_k(
        stream: OpenCLStream, x: OpenCLBuffer, k: OpenCLBuffer
    ) -> tuple[OpenCLBuffer, OpenCLBuffer]:
        axis = positive_axis(named, len(x.shape))
        length = x.shape[axis]
        kept = int(bench.values(stream, k).reshape(-1)[0])
        if not 0 <= kept <= length:
            raise RunError("k is out of range", expected=f"within 0..{length}", got=kept)
        shape = (*x.shape[:axis], kept, *x.shape[axis + 1 :])
        inner = math.prod(x.shape[axis + 1 :])
        rows = math.prod(x.shape) // max(length, 1)
        with (
            bench.writing(stream, shape, dtype) as values,
            bench.writing(stream, shape, DataType.INT64) as places,
        ):
            kernel = bench.kernel("indexing.cl", "top_places", defines)
            numbers = [np.int64(length), np.int64(inner), np.int64(kept)]
            buffers = [x.cl_buffer, values.cl_buffer, places.cl_buffer]
            kernel.launch(stream.queue, (length, rows), None, [*buffers, *numbers])
        return values, places

    return top_k


_UNUSED: dict[str, object] = {
    "REDUCE(older, newer)": "(newer)",
    "AXIS_STEP": 1,
    "AXIS_INDEX_STEP": 1,
}
"""Macros of kernels that stand in the same file."""


@TABLE.kernel("CumSum", since=11, types={"T": NUMBERS, "T2": _INDICES}, writes_out=True)
def _cum_sum(node: KernelNode) -> Kernel:
    bench = Bench(node)
    numbers = (np.int32(node.attr("exclusive", 0)), np.int32(node.attr("reverse", 0)))
    dtype = node.input_dtype(0)
    assert dtype is not None
    defines: dict[str, object] = {
        **_PLAIN,
        "T": ELEMENTS[dtype].code,
        "TI": "i64",
        "UNIT": "uchar",
        "PRECEDES(a, b)": "0",
        **_UNUSED,
    }

    def cum_sum(
        stream: OpenCLStream,
        x: OpenCLBuffer,
        axis_given: OpenCLBuffer,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        named = int(bench.values(stream, axis_given).reshape(-1)[0])
        axis = positive_axis(named, len(x.shape))
        size = (math.prod(x.shape[axis + 1 :]), math.prod(x.shape[:axis]))
        with bench.writing(stream, x.shape, dtype, out) as y:
            kernel = bench.kernel("indexing.cl", "running_sum", defines)
            arguments = [x.cl_buffer, y.cl_buffer, np.int64(x.shape[axis]), *numbers]
            kernel.launch(stream.queue, size, None, arguments)
        return y

    return cum_sum


@TABLE.kernel("OneHot", since=9, types={"T1": NUMBERS, "T3": _ANY}, writes_out=True)
def _one_hot(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", -1)

    def one_hot(
        stream: OpenCLStream,
        indices: OpenCLBuffer,
        depth_given: OpenCLBuffer,
        values: OpenCLBuffer,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        depth = int(bench.values(stream, depth_given).reshape(-1)[0])
        if depth < 0:
            raise RunError("depth is negative", got=depth)
        axis = positive_axis(named, len(indices.shape) + 1)
        shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
        size = (math.prod(indices.shape[axis:]), depth, math.prod(indices.shape[:axis]))
        defines: dict[str, object] = {
            **_PLAIN,
            "ONE_HOT": 1,
            "TI": _code(indices),
            "UNIT": unit_of(values),
        }
        with bench.writing(stream, shape, values.dtype, out) as y:
            kernel = bench.kernel("indexing.cl", "one_hot", defines)
            arguments = [indices.cl_buffer, values.cl_buffer, y.cl_buffer, np.int64(depth)]
            kernel.launch(stream.queue, size, None, arguments)
        return y

    return one_hot
