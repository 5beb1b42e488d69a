"""Where each element of a resized axis comes from: positions and weights, worked out on the host.

Formulas are those of the Resize operator's specification. Nothing here touches a device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError

__all__ = ["ResizedAxis", "Sampling", "axes_from_scales", "axes_from_sizes", "find_taps"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """Lengths before and after, and the scale between them, which needn't be their ratio."""

    source: int
    target: int
    scale: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """The attributes that say how values between elements are found.

    Attributes:
        mode: `nearest`, `linear` or `cubic`.
        coordinates: coordinate_transformation_mode; `legacy` before version 11.
        nearest: nearest_mode; `legacy` before version 11.
    """

    mode: str
    coordinates: str
    nearest: str
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


def axes_from_scales(lengths: Sequence[int], scales: Sequence[float]) -> list[ResizedAxis]:
    """One resized axis for each length.

    Raises:
        RunError: numbers of lengths and scales differ, or a scale isn't positive.
    """
    if len(lengths) != len(scales) or not all(scale > 0 for scale in scales):
        raise RunError("scales of Resize", expected=f"{len(lengths)} above 0", got=list(scales))
    return [
        ResizedAxis(length, math.floor(length * scale), scale)
        for length, scale in zip(lengths, scales, strict=True)
    ]


def axes_from_sizes(lengths: Sequence[int], sizes: Sequence[int], policy: str) -> list[ResizedAxis]:
    """One resized axis for each length; the policy is keep_aspect_ratio_policy.

    Raises:
        RunError: numbers of lengths and sizes differ, or a size is negative.
    """
    if len(lengths) != len(sizes) or min(sizes, default=0) < 0:
        raise RunError("sizes of Resize", expected=f"{len(lengths)} lengths", got=list(sizes))
    scales = [size / max(1, length) for size, length in zip(sizes, lengths, strict=True)]
    targets = list(sizes)
    if policy != "stretch":
        one = min(scales) if policy == "not_larger" else max(scales)
        scales = [one] * len(scales)
        targets = [math.floor(one * length + 0.5) for length in lengths]
    return [ResizedAxis(*item) for item in zip(lengths, targets, scales, strict=True)]


def find_taps(axis: ResizedAxis, how: Sampling) -> tuple[Array, Array | None]:
    """Positions in the source, `[target, taps]`, and their weights; none for `nearest`."""
    places = _places(axis, how.coordinates)
    if how.mode == "nearest":
        index = _nearest(places, how.nearest, axis.scale)
        return np.clip(index, 0, axis.source - 1).astype(np.int32)[:, None], None
    reach = 1 if how.mode == "linear" else 2
    # Shrinking with antialias widens the kernel, so that every element counts.
    stretch = min(axis.scale, 1.0) if how.antialias else 1.0
    first = math.floor(-reach / stretch) + 1
    offsets = np.arange(first, 2 - first)
    base = np.floor(places)
    distance = np.abs(offsets - (places - base)[:, None]) * stretch
    weights = np.clip(1 - distance, 0, 1) if how.mode == "linear" else _keys(distance, how.cubic_a)
    index = base[:, None] + offsets
    if how.exclude_outside:
        weights = np.where((index >= 0) & (index < axis.source), weights, 0)
    if how.exclude_outside or how.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(index, 0, axis.source - 1).astype(np.int32), weights


def _places(axis: ResizedAxis, mode: str) -> Array:
    """Where each element of the result lies in the source."""
    index = np.arange(axis.target, dtype=np.float64)
    length = axis.scale * axis.source
    if mode == "half_pixel":
        return (index + 0.5) / axis.scale - 0.5
    if mode == "pytorch_half_pixel":
        return np.zeros_like(index) if length <= 1 else (index + 0.5) / axis.scale - 0.5
    if mode == "half_pixel_symmetric":
        shift = axis.source / 2 * (1 - axis.target / length)
        return shift + (index + 0.5) / axis.scale - 0.5
    if mode == "align_corners":
        return np.zeros_like(index) if length == 1 else index * (axis.source - 1) / (length - 1)
    if mode in ("asymmetric", "legacy"):
        return index / axis.scale
    if mode == "tf_half_pixel_for_nn":
        return (index + 0.5) / axis.scale
    raise RunError("unknown coordinate_transformation_mode of Resize", got=mode)


def _nearest(places: Array, mode: str, scale: float) -> Array:
    if mode == "legacy":
        mode = "ceil" if scale < 1 else "floor"
    if mode == "round_prefer_floor":
        return np.ceil(places - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(places + 0.5)
    if mode == "floor":
        return np.floor(places)
    if mode == "ceil":
        return np.ceil(places)
    raise RunError("unknown nearest_mode of Resize", got=mode)


def _keys(distance: Array, a: float) -> Array:
    """Cubic convolution (Keys 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
