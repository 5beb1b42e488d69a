"""NonZero and Compress: results whose length depends on values, for which the host waits."""

from __future__ import annotations

import math

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.kernels.elementwise import dtype_of
from ep_sdk.device_kernels.kernels.gathering import gather_slices
from ep_sdk.device_kernels.launch import TABLE, Bench, signed
from ep_sdk.device_kernels.moving import strides_of
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import positive_axis

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)

_SHORTEST_BLOCK = 64
_MOST_BLOCKS = 4096
"""Counts that the host reads at most."""


class _Finder:
    """Finds the elements of a tensor that aren't zero."""

    def __init__(self, bench: Bench, dtype: DataType) -> None:
        self._bench = bench
        self._defines: dict[str, object] = {"T": ELEMENTS[dtype].code}

    def find(self, stream: DeviceStream, x: DeviceBuffer) -> tuple[DeviceBuffer, int]:
        """Their positions in the flat tensor, to be released by the caller, and how many.

        Raises:
            RunError: a rehearsal, in which nobody knows them.
        """
        bench = self._bench
        total = math.prod(x.shape)
        block = max(_SHORTEST_BLOCK, -(-total // _MOST_BLOCKS))
        blocks = -(-total // block)
        numbers = signed(total, block)
        with bench.scratch(stream, (blocks,), DataType.INT64) as counts:
            kernel = bench.kernel("selecting.cl", "count_found", self._defines)
            arguments = [x.handle, counts.handle, *numbers]
            kernel.launch(stream, (blocks,), None, arguments)
            ends = np.cumsum(bench.values(stream, counts), dtype=np.int64)
        count = int(ends[-1]) if blocks else 0
        with bench.writing(stream, (count,), DataType.INT64) as found:
            if count:
                starts = bench.upload(stream, np.concatenate([[0], ends[:-1]]))
                kernel = bench.kernel("selecting.cl", "write_found", self._defines)
                arguments = [x.handle, starts.handle, found.handle, *numbers]
                kernel.launch(stream, (blocks,), None, arguments)
                bench.release(stream, starts)
        return found, count


@TABLE.kernel("NonZero", since=9, types={"T": _ANY})
def _non_zero(node: KernelNode) -> Kernel:
    bench = Bench(node)
    finder = _Finder(bench, dtype_of(node, 0))
    defines: dict[str, object] = {"T": "i64"}

    def non_zero(stream: DeviceStream, x: DeviceBuffer) -> DeviceBuffer:
        found, count = finder.find(stream, x)
        try:
            with bench.writing(stream, (len(x.shape), count), DataType.INT64) as y:
                kernel = bench.kernel("selecting.cl", "split_positions", defines)
                for axis, step in enumerate(strides_of(x.shape)):
                    numbers = signed(step, x.shape[axis], axis * count)
                    arguments = [found.handle, y.handle, *numbers]
                    kernel.launch(stream, (count,), None, arguments)
        finally:
            bench.release(stream, found)
        return y

    return non_zero


@TABLE.kernel("Compress", since=9, types={"T": _ANY, "T1": {DataType.BOOL}})
def _compress(node: KernelNode) -> Kernel:
    """Slices along an axis, or elements of the flat tensor, where the condition is true."""
    bench = Bench(node)
    named = node.attr("axis")
    finder = _Finder(bench, DataType.BOOL)

    def compress(stream: DeviceStream, x: DeviceBuffer, condition: DeviceBuffer) -> DeviceBuffer:
        data = x.reshaped((math.prod(x.shape),)) if named is None else x
        axis = 0 if named is None else positive_axis(named, len(x.shape))
        if len(condition.shape) != 1 or condition.shape[0] > data.shape[axis]:
            raise RunError("condition of Compress", expected=data.shape[axis], got=condition.shape)
        found, _ = finder.find(stream, condition)
        try:
            return gather_slices(bench, stream, data, found, axis)
        finally:
            bench.release(stream, found)

    return compress
