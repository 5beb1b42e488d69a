"""Boxes and regions: NonMaxSuppression, RoiAlign, MaxRoiPool."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.gather import check_indices
from ep_cpu.kernels.support import Array, scalar, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes [n, 4] as the smaller and larger corner: y1, x1, y2, x2."""
    if centred:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], axis=1)
    low = np.minimum(boxes[:, :2], boxes[:, 2:])
    high = np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], axis=1)


def keep_boxes(corners: Array, scores: Array, most: int, overlap: float, least: float) -> Array:
    """Indices of the boxes that survive, best first; of equal scores the first box wins."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > least]
    sides = corners[:, 2:] - corners[:, :2]
    area = sides[:, 0] * sides[:, 1]
    kept: list[int] = []
    while order.size and len(kept) < most:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        low = np.maximum(corners[best, :2], corners[order, :2])
        high = np.minimum(corners[best, 2:], corners[order, 2:])
        inner = np.maximum(high - low, 0).prod(axis=1)
        union = area[best] + area[order] - inner
        shared = np.where(union > 0, inner / np.where(union > 0, union, 1), 0)
        order = order[shared <= overlap]
    return np.array(kept, np.int64)


@TABLE.kernel("NonMaxSuppression", since=10)
def _non_max_suppression(node: KernelNode) -> Kernel:
    centred = bool(node.attr("center_point_box", 0))

    def run(
        boxes: Array,
        scores: Array,
        most: Array | None = None,
        overlap: Array | None = None,
        least: Array | None = None,
    ) -> Array:
        if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4:
            raise RunError(
                "NonMaxSuppression needs [batch, n, 4] and [batch, classes, n]",
                got=(boxes.shape, scores.shape),
            )
        count = 0 if most is None else int(scalar(most, "max_output_boxes_per_class"))
        limit = 0.0 if overlap is None else float(scalar(overlap, "iou_threshold"))
        lowest = -math.inf if least is None else float(scalar(least, "score_threshold"))
        if not 0 <= limit <= 1:
            raise RunError("iou_threshold out of range", expected="0 to 1", got=limit)
        found = [np.empty((0, 3), np.int64)]
        for batch, category in np.ndindex(scores.shape[0], scores.shape[1]):
            corners = _corners(boxes[batch], centred)
            kept = keep_boxes(corners, scores[batch, category], count, limit, lowest)
            where = np.array([[batch, category]], np.int64).repeat(kept.size, axis=0)
            found.append(np.concatenate([where, kept[:, None]], axis=1))
        return np.concatenate(found)

    return run


# ---------------------------------------------------------------- regions


def _axis_samples(start: float, size: float, bins: int, ratio: int, length: int) -> tuple[Any, ...]:
    """Sample places of one region on one axis: neighbours and weights, each [bins, samples]."""
    step = size / bins
    count = ratio if ratio > 0 else max(1, math.ceil(step))
    places = start + (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / count) * step
    outside = (places < -1) | (places > length)
    places = np.clip(places, 0, None)
    low = np.floor(places).astype(np.intp)
    past = low >= length - 1
    low = np.where(past, length - 1, low)
    high = np.where(past, length - 1, low + 1)
    share = np.where(past, 0.0, places - low)
    return low, high, np.where(outside, 0, 1 - share), np.where(outside, 0, share)


@TABLE.kernel("RoiAlign", since=10)
def _roi_align(node: KernelNode) -> Kernel:
    bins = (int(node.attr("output_height", 1)), int(node.attr("output_width", 1)))
    ratio = int(node.attr("sampling_ratio", 0))
    scale = float(node.attr("spatial_scale", 1.0))
    maximum = text(node.attr("mode", "avg")) == "max"
    # Before version 16 there was no half-pixel shift.
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    half = text(node.attr("coordinate_transformation_mode", default)) == "half_pixel"

    def run(x: Array, rois: Array, batch_indices: Array) -> Array:
        wide = widen(x)
        batches = check_indices(batch_indices, x.shape[0])
        result = np.zeros((rois.shape[0], x.shape[1], *bins), wide.dtype)
        for number, (roi, batch) in enumerate(zip(widen(rois), batches, strict=True)):
            left, top, right, bottom = (float(v) * scale - (0.5 if half else 0.0) for v in roi)
            height, width = bottom - top, right - left
            if not half:
                height, width = max(height, 1.0), max(width, 1.0)
            rows = _axis_samples(top, height, bins[0], ratio, x.shape[2])
            columns = _axis_samples(left, width, bins[1], ratio, x.shape[3])
            result[number] = _pool_region(wide[batch], rows, columns, maximum)
        return result.astype(x.dtype, copy=False)

    return run


def _pool_region(
    image: Array, rows: tuple[Any, ...], columns: tuple[Any, ...], maximum: bool
) -> Array:
    """Combine samples of image [C, H, W] into [C, row bins, column bins]."""
    corners = []
    for r in range(2):
        for c in range(2):
            values = image[:, rows[r][:, :, None, None], columns[c][None, None]]
            weight = rows[2 + r][:, :, None, None] * columns[2 + c][None, None]
            corners.append(values * weight)
    stacked = np.stack(corners)
    if maximum:
        # The operator takes the largest weighted corner, not the largest interpolated sample.
        return np.asarray(stacked.max(axis=0).max(axis=(2, 4)))
    return np.asarray(stacked.sum(axis=0).mean(axis=(2, 4)))


@TABLE.kernel("MaxRoiPool")
def _max_roi_pool(node: KernelNode) -> Kernel:
    bins = tuple(int(value) for value in node.attr("pooled_shape"))
    scale = float(node.attr("spatial_scale", 1.0))

    def run(x: Array, rois: Array) -> Array:
        batches = check_indices(rois[:, 0].astype(np.int64), x.shape[0])
        result = np.zeros((rois.shape[0], x.shape[1], *bins), x.dtype)
        for number, batch in enumerate(batches):
            left, top, right, bottom = (
                math.floor(float(value) * scale + 0.5) for value in rois[number, 1:]
            )
            spans = (max(bottom - top + 1, 1), max(right - left + 1, 1))
            for place in np.ndindex(*bins):
                part = [
                    slice(
                        min(max(math.floor(at * span / count) + first, 0), length),
                        min(max(math.ceil((at + 1) * span / count) + first, 0), length),
                    )
                    for at, span, count, first, length in zip(
                        place, spans, bins, (top, left), x.shape[2:], strict=True
                    )
                ]
                window = x[(batch, slice(None), *part)]
                if window.size:
                    result[(number, slice(None), *place)] = window.max(axis=(1, 2))
        return result

    return run
