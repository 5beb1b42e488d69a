"""TopK, CumSum and OneHot."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS, NUMBERS
from ep_sdk.device_kernels.kernels.elementwise import dtype_of
from ep_sdk.device_kernels.kernels.gathering import INDICES, PLAIN, code_of
from ep_sdk.device_kernels.kernels.reductions import Rows
from ep_sdk.device_kernels.launch import TABLE, Bench, signed
from ep_sdk.device_kernels.moving import unit_of
from ep_sdk.device_kernels.vectors import long4
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import positive_axis

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)

_CHUNK = 128
"""Elements that are sorted by comparing all pairs."""


@TABLE.kernel("TopK", since=10, types={"T": NUMBERS})
def _top_k(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", -1)
    sorter = _Sorter(bench, dtype_of(node, 0), largest=bool(node.attr("largest", 1)))

    def top_k(
        stream: DeviceStream, x: DeviceBuffer, k: DeviceBuffer
    ) -> tuple[DeviceBuffer, DeviceBuffer]:
        axis = positive_axis(named, len(x.shape))
        length = x.shape[axis]
        kept = int(bench.values(stream, k).reshape(-1)[0])
        if not 0 <= kept <= length:
            raise RunError("k is out of range", expected=f"within 0..{length}", got=kept)
        shape = (*x.shape[:axis], kept, *x.shape[axis + 1 :])
        rows = Rows(math.prod(x.shape[:axis]), length, math.prod(x.shape[axis + 1 :]))
        with (
            bench.writing(stream, shape, x.dtype) as values,
            bench.writing(stream, shape, DataType.INT64) as places,
        ):
            if math.prod(shape):
                sorter.run(stream, x, _Lists(values, places), rows, kept)
        return values, places

    return top_k


@dataclass(frozen=True, slots=True)
class _Lists:
    """Sorted lists: elements, and where in their row they lay."""

    values: DeviceBuffer
    places: DeviceBuffer

    @property
    def arguments(self) -> tuple[Any, Any]:
        return self.values.handle, self.places.handle


class _Sorter:
    """Finds the first elements of rows in an order."""

    def __init__(self, bench: Bench, dtype: DataType, *, largest: bool) -> None:
        self._bench = bench
        self._dtype = dtype
        sign = ">" if largest else "<"
        test = f"((a) {sign} (b))"
        if dtype in FLOATS:
            # A NaN counts as larger than any number.
            other = "((a) != (a) && (b) == (b))" if largest else "((b) != (b) && (a) == (a))"
            test = f"({test} || {other})"
        self._defines: dict[str, object] = {
            "T": ELEMENTS[dtype].code,
            "PRECEDES(a, b)": test,
        }

    def run(
        self, stream: DeviceStream, x: DeviceBuffer, target: _Lists, rows: Rows, kept: int
    ) -> None:
        """Sort chunks, then merge lists in pairs; the last launch writes the target."""
        bench, count = self._bench, rows.outer * rows.inner
        final = long4((kept * rows.inner, 1, 0, rows.inner))
        covered, lists = _CHUNK, -(-rows.length // _CHUNK)
        capacity = min(kept, _CHUNK)
        with ExitStack() as taken:

            def between(lists: int, capacity: int) -> _Lists:
                shape = (count, lists, capacity)
                context = bench.scratch(stream, shape, self._dtype)
                places = bench.scratch(stream, shape, DataType.INT64)
                return _Lists(taken.enter_context(context), taken.enter_context(places))

            sorted_lists = target if lists == 1 else between(lists, capacity)
            kernel = bench.kernel("sorting.cl", "sort_chunks", self._defines)
            numbers = signed(rows.length, rows.inner, _CHUNK, capacity)
            steps = final if lists == 1 else _steps(lists, capacity, rows.inner)
            arguments = [x.handle, *sorted_lists.arguments, *numbers, steps]
            kernel.launch(stream, (rows.length, count), None, arguments)
            kernel = bench.kernel("sorting.cl", "merge_lists", self._defines)
            while lists > 1:
                left, larger = -(-lists // 2), min(kept, 2 * covered)
                merged = target if left == 1 else between(left, larger)
                numbers = signed(rows.length, rows.inner, covered, capacity, lists, larger)
                steps = final if left == 1 else _steps(left, larger, rows.inner)
                arguments = [*sorted_lists.arguments, *merged.arguments, *numbers, steps]
                kernel.launch(stream, (lists * capacity, count), None, arguments)
                sorted_lists, lists = merged, left
                capacity, covered = larger, 2 * covered


def _steps(lists: int, capacity: int, inner: int) -> Any:
    """Lists of one row behind each other."""
    row = lists * capacity
    return long4((row * inner, row, capacity, 1))


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
        "RUNNING_SUM": 1,
    }

    def cum_sum(
        stream: DeviceStream,
        x: DeviceBuffer,
        axis_given: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        named = int(bench.values(stream, axis_given).reshape(-1)[0])
        axis = positive_axis(named, len(x.shape))
        size = (math.prod(x.shape[axis + 1 :]), math.prod(x.shape[:axis]))
        with bench.writing(stream, x.shape, dtype, out) as y:
            kernel = bench.kernel("indexing.cl", "running_sum", defines)
            arguments = [x.handle, y.handle, np.int64(x.shape[axis]), *numbers]
            kernel.launch(stream, size, None, arguments)
        return y

    return cum_sum


@TABLE.kernel("OneHot", since=9, types={"T1": NUMBERS, "T3": _ANY}, writes_out=True)
def _one_hot(node: KernelNode) -> Kernel:
    bench = Bench(node)
    named = node.attr("axis", -1)

    def one_hot(
        stream: DeviceStream,
        indices: DeviceBuffer,
        depth_given: DeviceBuffer,
        values: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
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
            arguments = [indices.handle, values.handle, y.handle, np.int64(depth)]
            kernel.launch(stream, size, None, arguments)
        return y

    return one_hot
