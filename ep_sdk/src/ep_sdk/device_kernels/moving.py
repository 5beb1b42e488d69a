"""Strided moves between two buffers: what Transpose, Slice, Concat, Expand and others come down to.

Knows buffers, strides and the kernel `move`; knows no operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ep_core.errors import NotSupportedError
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.launch import Bench
from ep_sdk.device_kernels.vectors import long8
from ep_sdk.shapes import Shape

__all__ = ["MOST_DIMENSIONS", "Strided", "move", "strides_of", "unit_of"]

MOST_DIMENSIONS = 8
_UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
_TILE = 32
_LARGE_ENOUGH = 64
"""Lengths from which a transposition goes through tiles."""


@dataclass(frozen=True, slots=True)
class Strided:
    """Where the elements of a block lie in a buffer.

    Attributes:
        buffer: the buffer.
        start: position of the first element, in elements.
        steps: by dimension, in elements; 0 repeats one, negative ones go backwards.
    """

    buffer: DeviceBuffer
    start: int
    steps: Sequence[int]


def strides_of(shape: Shape) -> tuple[int, ...]:
    """Steps of a dense tensor, in elements."""
    steps = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    return tuple(steps)


def unit_of(buffer: DeviceBuffer) -> str:
    """The integer type that carries an element of the buffer."""
    return _UNITS[ELEMENTS[buffer.dtype].nbytes]


def move(
    bench: Bench, stream: DeviceStream, source: Strided, target: Strided, shape: Shape
) -> None:
    """Copy a block of `shape` from one place to another.

    Raises:
        NotSupportedError: more than eight dimensions are left after joining.
    """
    if not math.prod(shape):
        return
    joined = _joined(shape, source.steps, target.steps)
    if len(joined) == 1 and joined[0][1:] == (1, 1):
        _copy_run(stream, source, target, joined[0][0])
        return
    if len(joined) > MOST_DIMENSIONS:
        raise NotSupportedError(f"a move over more than {MOST_DIMENSIONS} dimensions")
    if _is_transposition(joined, source, target):
        _transpose(bench, stream, source, target, joined)
        return
    lengths = [item[0] for item in joined]
    defines: dict[str, object] = {"UNIT": unit_of(source.buffer), "RANK": len(joined), "MODE": 0}
    if joined[0][1:] == (1, 1):
        defines["NEIGHBOURS"] = 1
    kernel = bench.kernel("moving.cl", "move", defines)
    size = (*lengths[:2], math.prod(lengths[2:])) if len(lengths) > 2 else tuple(lengths)
    kernel.launch(
        stream,
        size,
        None,
        [
            source.buffer.handle,
            target.buffer.handle,
            np.int64(source.start),
            np.int64(target.start),
            long8(lengths),
            long8([item[1] for item in joined]),
            long8([item[2] for item in joined]),
        ],
    )


def _joined(
    shape: Shape, source: Sequence[int], target: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Length and steps of each dimension, fastest first, neighbours in both joined."""
    joined: list[tuple[int, int, int]] = []
    for length, read, write in reversed(list(zip(shape, source, target, strict=True))):
        if length == 1:
            continue
        if joined:
            inner, inner_read, inner_write = joined[-1]
            if read == inner * inner_read and write == inner * inner_write:
                joined[-1] = (inner * length, inner_read, inner_write)
                continue
        joined.append((length, read, write))
    return joined or [(1, 1, 1)]


def _copy_run(stream: DeviceStream, source: Strided, target: Strided, count: int) -> None:
    nbytes = ELEMENTS[source.buffer.dtype].nbytes
    stream.copy_bytes(
        source.buffer.handle,
        source.start * nbytes,
        target.buffer.handle,
        target.start * nbytes,
        count * nbytes,
    )


def _is_transposition(joined: list[tuple[int, int, int]], source: Strided, target: Strided) -> bool:
    """Matrices one behind the other, of which rows become columns, dense on both sides."""
    if len(joined) not in (2, 3) or source.start or target.start:
        return False
    (rows, row_read, row_write), (columns, column_read, column_write) = joined[:2]
    dense = (row_read, row_write, column_read, column_write) == (columns, 1, 1, rows)
    if len(joined) == 3:
        dense = dense and joined[2][1:] == (rows * columns, rows * columns)
    return dense and min(rows, columns) >= _LARGE_ENOUGH


def _transpose(
    bench: Bench,
    stream: DeviceStream,
    source: Strided,
    target: Strided,
    joined: list[tuple[int, int, int]],
) -> None:
    rows, columns = joined[0][0], joined[1][0]
    batches = joined[2][0] if len(joined) == 3 else 1
    defines: dict[str, object] = {"UNIT": unit_of(source.buffer), "RANK": 2, "MODE": 0}
    kernel = bench.kernel("moving.cl", "transpose_tiled", defines)
    kernel.launch(
        stream,
        (-(-columns // _TILE) * _TILE, -(-rows // _TILE) * 8, batches),
        (_TILE, 8, 1),
        [
            source.buffer.handle,
            target.buffer.handle,
            np.int64(rows),
            np.int64(columns),
        ],
    )
