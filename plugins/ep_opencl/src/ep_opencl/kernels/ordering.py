"""TopK, CumSum and OneHot."""

from __future__ import annotations

import math

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_opencl.elements import ELEMENTS, FLOATS, NUMBERS
from ep_opencl.kernels.gathering import INDICES, PLAIN, code_of
from ep_opencl.launch import TABLE, Bench
from ep_opencl.memory import OpenCLBuffer
from ep_opencl.moving import unit_of
from ep_opencl.stream import OpenCLStream
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import positive_axis

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)


_LONGEST_SORT = 16384
"""Lengths of rows up to which comparing all pairs is taken; work grows with the square."""


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
        **PLAIN,
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


@TABLE.kernel("CumSum", since=11, types={"T": NUMBERS, "T2": INDICES}, writes_out=True)
def _cum_sum(node: KernelNode) -> Kernel:
    bench = Bench(node)
    numbers = (np.int32(node.attr("exclusive", 0)), np.int32(node.attr("reverse", 0)))
    dtype = node.input_dtype(0)
    assert dtype is not None
    defines: dict[str, object] = {
        **PLAIN,
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
            **PLAIN,
            "ONE_HOT": 1,
            "TI": code_of(indices),
            "UNIT": unit_of(values),
        }
        with bench.writing(stream, shape, values.dtype, out) as y:
            kernel = bench.kernel("indexing.cl", "one_hot", defines)
            arguments = [indices.cl_buffer, values.cl_buffer, y.cl_buffer, np.int64(depth)]
            kernel.launch(stream.queue, size, None, arguments)
        return y

    return one_hot
