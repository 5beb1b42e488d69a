"""Pools, window by window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_compliance.oracle.precision import Array

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial axis of a pool."""

    length: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    count: int

    def taps(self, place: int) -> list[int]:
        """Input positions under the window at `place`, those in the pads included."""
        start = place * self.stride - self.before
        return [start + tap * self.dilation for tap in range(self.kernel)]


def _axes(call: NodeCall) -> list[_Axis]:
    lengths = call.inputs[0].shape[2:]
    rank = len(lengths)
    kernel = call.attr("kernel_shape")
    strides = call.attr("strides") or [1] * rank
    dilations = call.attr("dilations") or [1] * rank
    pads = list(call.attr("pads") or [0] * (2 * rank))
    found = []
    for axis in range(rank):
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        before, after = pads[axis], pads[axis + rank]
        mode = call.attr("auto_pad", "NOTSET")
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-lengths[axis] // strides[axis])
            total = max(0, (count - 1) * strides[axis] + extent - lengths[axis])
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
            after = total - before
        room = lengths[axis] + before + after - extent
        count = room // strides[axis] + 1
        if call.attr("ceil_mode", 0) and room % strides[axis]:
            # A window may not begin in the pads at the end.
            count += int(count * strides[axis] < lengths[axis] + before)
        found.append(
            _Axis(lengths[axis], kernel[axis], strides[axis], dilations[axis], before, after, count)
        )
    return found


def _windows(axes: Sequence[_Axis]) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Each output place with the input positions under it that lie inside the image."""
    for place in itertools.product(*(range(axis.count) for axis in axes)):
        taps = [
            [tap for tap in axis.taps(at) if 0 <= tap < axis.length]
            for axis, at in zip(axes, place, strict=True)
        ]
        yield place, list(itertools.product(*taps))


def _last(places: Sequence[Any]) -> tuple[Any, ...]:
    """An index of the last axes, with everything before them."""
    return (..., *places)


def _counted(axes: Sequence[_Axis], place: Sequence[int]) -> int:
    """Positions under a window that lie in the image or its pads."""
    return math.prod(
        sum(-axis.before <= tap < axis.length + axis.after for tap in axis.taps(at))
        for axis, at in zip(axes, place, strict=True)
    )


def _values(x: Array, taps: Sequence[tuple[int, ...]]) -> Array:
    """Values at positions, shape `(N, C, positions)`."""
    index = tuple(np.array(column) for column in zip(*taps, strict=True))
    return np.asarray(x[_last(index)])


@correct("AveragePool", reason="old versions, dilations and ceil mode divide by wrong counts")
def average_pool(call: NodeCall) -> Sequence[Any]:
    """The mean of each window; pads count only where that is asked."""
    x, axes = call.inputs[0], _axes(call)
    y = np.zeros((*x.shape[:2], *(axis.count for axis in axes)), x.dtype)
    for place, taps in _windows(axes):
        count = _counted(axes, place) if call.attr("count_include_pad", 0) else len(taps)
        y[_last(place)] = _values(x, taps).sum(axis=-1) / count
    return [y]


@correct("LpPool", reason="ceil mode scales the windows at the end")
def lp_pool(call: NodeCall) -> Sequence[Any]:
    """The p-norm of each window."""
    x, axes, p = call.inputs[0], _axes(call), call.attr("p", 2)
    y = np.zeros((*x.shape[:2], *(axis.count for axis in axes)), x.dtype)
    for place, taps in _windows(axes):
        total = (np.abs(_values(x, taps)) ** p).sum(axis=-1)
        y[_last(place)] = total ** (1.0 / p)
    return [y]


@correct("MaxPool", reason="integers fail, and auto_pad and pads give wrong shapes in old versions")
def max_pool(call: NodeCall) -> Sequence[Any]:
    """The largest value of each window, and where it lies in the flat input."""
    x, axes = call.inputs[0], _axes(call)
    shape = (*x.shape[:2], *(axis.count for axis in axes))
    y, places = np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    order: Literal["C", "F"] = "F" if call.attr("storage_order", 0) else "C"
    size = math.prod(x.shape[2:])
    images = np.arange(math.prod(x.shape[:2])).reshape(x.shape[:2]) * size
    for place, taps in _windows(axes):
        values = _values(x, taps)
        best = values.argmax(axis=-1)
        flat = np.ravel_multi_index(tuple(np.transpose(taps)), x.shape[2:], order=order)
        here = _last(place)
        y[here] = np.take_along_axis(values, best[..., None], axis=-1)[..., 0]
        places[here] = images + flat[best]
    return [y, places][: len(call.node.output)]


@correct("MaxRoiPool", reason="there is no implementation")
def max_roi_pool(call: NodeCall) -> Sequence[Any]:
    """The largest value in each of the bins that a whole-pixel region is split into."""
    x, rois = call.inputs
    rows, columns = call.attr("pooled_shape")
    scale = call.attr("spatial_scale", 1.0)
    y = np.zeros((len(rois), x.shape[1], rows, columns), x.dtype)
    for number, roi in enumerate(rois):
        left, top, right, bottom = (math.floor(v * scale + 0.5) for v in roi[1:])
        height, width = max(bottom - top + 1, 1), max(right - left + 1, 1)
        for i, j in itertools.product(range(rows), range(columns)):
            vertical = _bin(i, height / rows, top, x.shape[2])
            horizontal = _bin(j, width / columns, left, x.shape[3])
            part = x[int(roi[0]), :, vertical, horizontal]
            if part.size:
                y[number, :, i, j] = part.max(axis=(1, 2))
    return [y]


def _bin(index: int, size: float, start: int, length: int) -> slice:
    low = math.floor(index * size) + start
    high = math.ceil((index + 1) * size) + start
    return slice(min(max(low, 0), length), min(max(high, 0), length))


@correct("GlobalAveragePool", reason="a batch of nothing fails")
def global_average_pool(call: NodeCall) -> Sequence[Any]:
    """The mean of each channel."""
    x = call.inputs[0]
    return [x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)]


@correct("GlobalLpPool", reason="there is no implementation")
def global_lp_pool(call: NodeCall) -> Sequence[Any]:
    """The p-norm of each channel."""
    x, p = call.inputs[0], call.attr("p", 2)
    total = (np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
    return [total ** (1.0 / p)]
