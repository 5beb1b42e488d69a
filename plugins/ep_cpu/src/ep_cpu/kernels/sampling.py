"""Sampling images at computed places: GridSample and AffineGrid."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.support import Array, int_list, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_CUBIC_A = -0.75

# Places outside are zero or a weighted sum, which strings don't have.
_NUMBERS = frozenset(DataType) - {DataType.STRING}


def _to_samples(places: Array, length: int, align: bool) -> Array:
    """From [-1, 1] to samples; the ends are sample centres if `align`, else outer edges."""
    if align:
        return (places + 1) / 2 * (length - 1)
    return ((places + 1) * length - 1) / 2


def _reflect(places: Array, length: int, align: bool) -> Array:
    """Mirror at the ends until the place lies inside."""
    low, high = (0.0, length - 1.0) if align else (-0.5, length - 0.5)
    span = high - low
    if span <= 0:
        return np.zeros_like(places)
    distance = np.abs(places - low)
    turns = np.floor(distance / span)
    rest = distance - turns * span
    return np.where(turns % 2 == 0, low + rest, high - rest)


def _gather(image: Array, index: list[Array], padding: str, align: bool) -> Array:
    """Read image [C, *spatial] at whole indices that may lie outside. Returns [C, *places]."""
    inside = np.ones(index[0].shape, np.bool_)
    clipped: list[Any] = [slice(None)]
    for place, length in zip(index, image.shape[1:], strict=True):
        if padding == "reflection":
            place = _reflect(place, length, align)
        inside &= (place >= 0) & (place <= length - 1)
        clipped.append(np.clip(np.rint(place), 0, length - 1).astype(np.intp))
    values: Array = image[tuple(clipped)]
    if padding != "zeros":
        return values
    return np.where(inside, values, np.zeros((), image.dtype))


def _axis_taps(places: Array, mode: str) -> tuple[range, Array, list[Array]]:
    """Offsets from the base sample, the base, and the weight of each offset."""
    base = np.floor(places)
    share = places - base
    if mode == "linear":
        return range(2), base, [1 - share, share]
    weights = []
    for offset in range(-1, 3):
        x = np.abs(offset - share)
        near = ((_CUBIC_A + 2) * x - (_CUBIC_A + 3)) * x * x + 1
        far = ((_CUBIC_A * x - 5 * _CUBIC_A) * x + 8 * _CUBIC_A) * x - 4 * _CUBIC_A
        weights.append(np.where(x <= 1, near, far))
    return range(-1, 3), base, weights


def sample(image: Array, places: list[Array], mode: str, padding: str, align: bool) -> Array:
    """Interpolate image [C, *spatial] at places in samples, one array per spatial axis."""
    if padding == "border":
        places = [
            np.clip(p, 0, length - 1) if mode != "cubic" else p
            for p, length in zip(places, image.shape[1:], strict=True)
        ]
    elif padding == "reflection" and mode != "cubic":
        places = [
            _reflect(p, length, align) for p, length in zip(places, image.shape[1:], strict=True)
        ]
    if mode == "nearest":
        return _gather(image, [np.rint(place) for place in places], padding, align)
    axes = [_axis_taps(place, mode) for place in places]
    total = np.zeros((image.shape[0], *places[0].shape), image.dtype)
    for choice in itertools.product(*(range(len(offsets)) for offsets, _, _ in axes)):
        index = [
            base + offsets[pick] for pick, (offsets, base, _) in zip(choice, axes, strict=True)
        ]
        weight = np.ones(places[0].shape, places[0].dtype)
        for pick, (_, _, weights) in zip(choice, axes, strict=True):
            weight = weight * weights[pick]
        total += _gather(image, index, padding, align) * weight
    return total


@TABLE.kernel("GridSample", since=16, types={"T1": _NUMBERS})
def _grid_sample(node: KernelNode) -> Kernel:
    mode = text(node.attr("mode", "linear"))
    mode = _MODES.get(mode, mode)
    padding = text(node.attr("padding_mode", "zeros"))
    align = bool(node.attr("align_corners", 0))

    def run(x: Array, grid: Array) -> Array:
        rank = x.ndim - 2
        if grid.ndim != x.ndim or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
            raise RunError(
                "grid doesn't fit the input of GridSample",
                expected=f"[{x.shape[0]}, ..., {rank}]",
                got=grid.shape,
            )
        wide = widen(x)
        if wide.dtype.kind not in "fc":
            # The nearest element is taken as it is; only sums need floats.
            wide = wide if mode == "nearest" else wide.astype(np.float64)
        places = widen(grid).astype(np.float32 if wide.dtype == np.float32 else np.float64)
        result = np.empty((*x.shape[:2], *grid.shape[1:-1]), wide.dtype)
        for batch in range(x.shape[0]):
            # The grid names axes from the last to the first.
            axes = [
                _to_samples(places[batch, ..., rank - 1 - axis], x.shape[2 + axis], align)
                for axis in range(rank)
            ]
            result[batch] = sample(wide[batch], axes, mode, padding, align)
        return result.astype(x.dtype, copy=False)

    return run


@TABLE.kernel("AffineGrid", since=20)
def _affine_grid(node: KernelNode) -> Kernel:
    align = bool(node.attr("align_corners", 0))

    def run(theta: Array, size: Array) -> Array:
        batch, _, *spatial = int_list(size)
        rank = len(spatial)
        if theta.shape != (batch, rank, rank + 1):
            raise RunError(
                "theta doesn't fit the size of AffineGrid",
                expected=(batch, rank, rank + 1),
                got=theta.shape,
            )
        kind = widen(theta).dtype
        lines = []
        for length in spatial:
            if align:
                line = np.linspace(-1, 1, length) if length > 1 else np.zeros(length)
            else:
                line = (np.arange(length) * 2 + 1) / length - 1
            lines.append(line.astype(kind))
        mesh = np.meshgrid(*lines, indexing="ij")
        # Homogeneous coordinates from the last axis to the first: x, y, (z,) 1.
        points = np.stack([*reversed(mesh), np.ones_like(mesh[0])], axis=-1)
        flat = points.reshape(-1, rank + 1)
        moved: Array = np.matmul(flat, widen(theta).transpose(0, 2, 1))
        return moved.reshape(batch, *spatial, rank).astype(theta.dtype, copy=False)

    return run
