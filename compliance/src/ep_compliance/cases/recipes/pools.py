"""Pools, local and global."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.numbers import scattered
from ep_core.types import DataType

__all__: list[str] = []

_POOL: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 6, 7), {"kernel_shape": [3, 2], "strides": [2, 2]}),
    "no strides": ((1, 2, 5, 5), {"kernel_shape": [2, 2]}),
    "pads": ((1, 2, 5, 5), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2]}),
    "same upper": ((1, 2, 5, 6), {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"}),
    "same lower": ((1, 2, 5, 6), {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER"}),
    "rank3": ((2, 3, 9), {"kernel_shape": [3], "strides": [2]}),
    "rank5": ((1, 2, 4, 4, 4), {"kernel_shape": [2, 3, 2]}),
    "whole": ((1, 2, 3, 4), {"kernel_shape": [3, 4]}),
}


@recipe("AveragePool LpPool MaxPool")
def pool(ask: Ask) -> Iterator[Sample]:
    """Every attribute that the version has."""
    for name, (shape, attributes) in _POOL.items():
        core = name in ("plain", "pads")
        yield Sample(name, [ask.random(*shape)], attributes, core=core)
    x = ask.random(1, 2, 7, 7)
    kernel = {"kernel_shape": [3, 3], "strides": [2, 2]}
    yield Sample("symbolic", [x], kernel, symbolic=True)
    yield Sample("strided", [scattered(x)], kernel)
    if ask.has("ceil_mode"):
        up = {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1}
        yield Sample("ceil", [ask.random(1, 1, 8, 8)], up, core=True)
    if ask.has("dilations"):
        yield Sample("dilations", [x], {"kernel_shape": [2, 2], "dilations": [2, 3]}, core=True)
    if ask.has("count_include_pad"):
        counted = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}
        yield Sample("count pads", [x], counted, core=True)
    if ask.has("p"):
        yield Sample("p 3", [np.abs(x)], {"kernel_shape": [2, 2], "p": 3}, core=ask.version > 1)
    if ask.op_type == "MaxPool":
        yield from _indices(ask)


def _indices(ask: Ask) -> Iterator[Sample]:
    x = ask.numbers.distinct((1, 2, 5, 5), ask.dtype)
    kernel = {"kernel_shape": [2, 2], "strides": [2, 2]}
    if ask.version >= 8:
        yield Sample("indices", [x], kernel, outputs=2, core=True)
        yield Sample("column major", [x], {**kernel, "storage_order": 1}, outputs=2)
    if ask.is_float:
        low = np.full((1, 1, 4, 4), -np.inf, ask.dtype.numpy)
        yield Sample("all -inf", [low], kernel)


@recipe("GlobalAveragePool GlobalLpPool GlobalMaxPool")
def global_pool(ask: Ask) -> Iterator[Sample]:
    """Ranks 3 to 5."""
    yield Sample("plain", [ask.random(2, 3, 4, 5)], core=True)
    yield Sample("rank3", [ask.random(2, 3, 7)])
    yield Sample("rank5", [ask.random(1, 2, 3, 2, 2)])
    yield Sample("one", [ask.random(1, 3, 1, 1)])
    yield Sample("symbolic", [ask.random(2, 3, 4, 5)], symbolic=True)
    yield Sample("no batch", [ask.random(0, 3, 2, 2)])
    if ask.op_type == "GlobalLpPool":
        p = 1.0 if ask.version == 1 else 1
        yield Sample("p 1", [ask.random(1, 2, 3, 3)], {"p": p}, core=True)


@recipe("MaxUnpool")
def max_unpool(ask: Ask) -> Iterator[Sample]:
    """Places of a pool with stride 2, with and without a given output shape."""
    x = ask.random(1, 1, 2, 2)
    places = ask.ints(0, 3, 8, 10).reshape(1, 1, 2, 2)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Sample("plain", [x, places], attributes, core=True)
    yield Sample("output shape", [x, places, ask.ints(1, 1, 5, 5)], attributes, core=True)


@recipe("MaxRoiPool")
def max_roi_pool(ask: Ask) -> Iterator[Sample]:
    """Whole-pixel regions of two images."""
    x = ask.random(2, 2, 6, 6)
    rois = np.array([[0, 0, 0, 3, 3], [1, 2, 1, 5, 4]], ask.dtype.numpy)
    yield Sample("plain", [x, rois], {"pooled_shape": [2, 2]}, core=True)


@recipe("RoiAlign")
def roi_align(ask: Ask) -> Iterator[Sample]:
    """Both modes and sampling ratios."""
    x = ask.random(2, 2, 6, 6)
    rois = np.array([[0.5, 0.5, 3.5, 4.0], [1.0, 2.0, 5.5, 4.5]], ask.dtype.numpy)
    batches = ask.ints(0, 1)
    size = {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
    yield Sample("plain", [x, rois, batches], size, core=True)
    yield Sample("adaptive", [x, rois, batches], {**size, "sampling_ratio": 0})
    yield Sample("scaled", [x, rois, batches], {**size, "spatial_scale": 0.5})
    if ask.has("coordinate_transformation_mode"):
        older = {**size, "coordinate_transformation_mode": "output_half_pixel"}
        yield Sample("output half pixel", [x, rois, batches], older, core=True)


@recipe("NonMaxSuppression")
def non_max_suppression(ask: Ask) -> Iterator[Sample]:
    """Overlaps, thresholds, limits; both box formats."""
    boxes = np.array(
        [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3.05]]], np.float32
    )
    scores = np.array([[[0.9, 0.75, 0.6, 0.95]]], np.float32)
    limit = ask.ints(3)
    overlap, lowest = (np.array([value], np.float32) for value in (0.5, 0.65))
    yield Sample("plain", [boxes, scores, limit, overlap], core=True)
    yield Sample("score threshold", [boxes, scores, limit, overlap, lowest], core=True)
    centres = {"center_point_box": 1}
    yield Sample("centre boxes", [boxes + np.float32(0.5), scores, limit, overlap], centres)


@recipe("GridSample")
def grid_sample(ask: Ask) -> Iterator[Sample]:
    """Modes, paddings, corners, and types of grids; values that aren't floats are only moved."""
    if ask.dtype is DataType.STRING:
        return  # what lies outside isn't specified
    x = ask.random(1, 2, 4, 5)
    if not ask.is_float:
        for kind in ask.types(1):
            # Odd sixteenths: no middle between two pixels is hit.
            places = 2 * ask.random(1, 3, 3, 2, dtype=DataType.INT64, low=-10, high=9) + 1
            grid = (places / 16).astype(kind.numpy)
            yield Sample(f"grid {kind.text}", [x, grid], {"mode": "nearest"}, core=True)
        return
    modes = (
        ("bilinear", "nearest", "bicubic") if ask.version < 20 else ("linear", "nearest", "cubic")
    )
    for kind in ask.types(1):
        grid = ask.random(1, 3, 3, 2, dtype=kind, low=-0.93, high=0.93)
        yield Sample(f"grid {kind.text}", [x, grid], core=True)
    beyond = ask.random(1, 3, 3, 2, dtype=ask.type_of(1, DataType.FLOAT), low=-1.7, high=1.7)
    for mode in modes:
        for padding in ("zeros", "border", "reflection"):
            if mode == "cubic" and padding == "border":
                # Whether the border holds for single taps or for the centre isn't defined.
                continue
            attributes = {"mode": mode, "padding_mode": padding}
            yield Sample(f"{mode} {padding}", [x, beyond], attributes)
    yield Sample("align corners", [x, beyond], {"align_corners": 1})


@recipe("AffineGrid")
def affine_grid(ask: Ask) -> Iterator[Sample]:
    """Two and three dimensions, both conventions."""
    flat = [ask.random(2, 2, 3), ask.ints(2, 1, 3, 4)]
    deep = [ask.random(1, 3, 4), ask.ints(1, 1, 2, 3, 2)]
    for corners in (0, 1):
        attributes = {"align_corners": corners}
        yield Sample(f"2d corners {corners}", flat, attributes, core=True)
        yield Sample(f"3d corners {corners}", deep, attributes)
