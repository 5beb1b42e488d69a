"""ScatterElements and ScatterND, with reductions."""

from __future__ import annotations

import math

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.kernels.gathering import INDICES, PLAIN, code_of, common_axis, with_fault
from ep_sdk.device_kernels.launch import TABLE, Bench, signed, text_attribute
from ep_sdk.device_kernels.moving import MOST_DIMENSIONS, Strided, move, strides_of, unit_of
from ep_sdk.device_kernels.vectors import long8
from ep_sdk.kernels import Kernel, KernelNode

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)


_FEWEST_UPDATES = 64
_MOST_LINES = 4096
_MOST_CLAIMS = 1 << 31
"""When updates that replace elements are done all at once; see `_is_worth_claims`."""

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
    replaces = text_attribute(node, "reduction", "none") == "none"

    def scatter(
        stream: DeviceStream,
        data: DeviceBuffer,
        indices: DeviceBuffer,
        updates: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
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
            if replaces and _is_worth_claims(math.prod(lines), indices.shape[axis]):
                _claim_elements(bench, stream, (indices, updates, y), axis)
            elif math.prod(indices.shape):
                kernel = bench.kernel("indexing.cl", "scatter_elements", own)
                kernel.launch(
                    stream,
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
    replaces = text_attribute(node, "reduction", "none") == "none"

    def scatter(
        stream: DeviceStream,
        data: DeviceBuffer,
        indices: DeviceBuffer,
        updates: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
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
            is_there = count and math.prod(data.shape)
            if is_there and replaces and _is_worth_claims(math.prod(inner), count):
                _claim_slices(bench, stream, (indices, updates, y), wide)
            elif is_there:
                kernel = bench.kernel("indexing.cl", "scatter_nd", own)
                kernel.launch(
                    stream,
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
    bench: Bench, stream: DeviceStream, source: DeviceBuffer, target: DeviceBuffer
) -> None:
    count = (math.prod(source.shape),)
    move(bench, stream, Strided(source, 0, (1,)), Strided(target, 0, (1,)), count)


# ---------------------------------------------------------------- all at once


def _is_worth_claims(lines: int, updates: int) -> bool:
    """Few lines of many updates each: one work-item for a line would leave the device idle."""
    return updates >= _FEWEST_UPDATES and lines <= _MOST_LINES and lines * updates < _MOST_CLAIMS


def _claim_elements(
    bench: Bench,
    stream: DeviceStream,
    buffers: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer],
    axis: int,
) -> None:
    """Indices, updates and target of ScatterElements."""
    indices, updates, y = buffers
    rank, steps = len(y.shape), strides_of(y.shape)
    defines = _claim_defines(indices, y) | {"RANK": rank, "AXIS": rank - 1 - axis}
    numbers = [
        long8(indices.shape[::-1]),
        long8(steps[::-1]),
        *signed(y.shape[axis], steps[axis]),
    ]
    size = (math.prod(indices.shape),)
    with bench.scratch(stream, y.shape, DataType.INT32) as claims:
        _unclaim(bench, stream, claims)
        kernel = bench.kernel("indexing.cl", "claim_elements", defines)
        head = [indices.handle, claims.handle, stream.fault_word()]
        kernel.launch(stream, size, None, [*head, *numbers])
        kernel = bench.kernel("indexing.cl", "place_elements", defines)
        head = [*with_fault(stream, updates, indices, y), claims.handle]
        kernel.launch(stream, size, None, [*head, *numbers])


def _claim_slices(
    bench: Bench,
    stream: DeviceStream,
    buffers: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer],
    wide: int,
) -> None:
    """Indices, updates and target of ScatterND."""
    indices, updates, y = buffers
    slices = y.shape[:wide]
    defines = _claim_defines(indices, y) | PLAIN
    numbers = [np.int32(wide), long8(slices), long8(strides_of(slices))]
    count = math.prod(indices.shape[:-1])
    with bench.scratch(stream, slices, DataType.INT32) as claims:
        _unclaim(bench, stream, claims)
        kernel = bench.kernel("indexing.cl", "claim_slices", defines)
        head = [indices.handle, claims.handle, stream.fault_word()]
        kernel.launch(stream, (count,), None, [*head, *numbers])
        kernel = bench.kernel("indexing.cl", "place_slices", defines)
        head = [*with_fault(stream, updates, indices, y), claims.handle]
        size = (math.prod(y.shape[wide:]), count)
        kernel.launch(stream, size, None, [*head, *numbers])


def _claim_defines(indices: DeviceBuffer, y: DeviceBuffer) -> dict[str, object]:
    return {"CLAIMS": 1, "UNIT": unit_of(y), "TI": code_of(indices)}


def _unclaim(bench: Bench, stream: DeviceStream, claims: DeviceBuffer) -> None:
    """No update has claimed anything: -1 everywhere."""
    kernel = bench.kernel("moving.cl", "fill", {"UNIT": "int", "RANK": 1, "MODE": 0})
    size = (math.prod(claims.shape),)
    kernel.launch(stream, size, None, [claims.handle, np.int32(-1)])
