"""Resize and Upsample: one axis at a time, each as a few weighted gathers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, int_list, text, unit_axes, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


@dataclass(frozen=True)
class AxisResize:
    """One axis of a resize: lengths before and after, scale, and region of interest."""

    source: int
    target: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class Interpolation:
    """The attributes that say how values between samples are found.

    Attributes:
        mode: `nearest`, `linear` or `cubic`.
        coordinates: coordinate_transformation_mode, or `legacy` for versions below 11.
        nearest: nearest_mode, or `legacy`.
    """

    mode: str
    coordinates: str
    nearest: str
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


# ---------------------------------------------------------------- coordinates


def source_positions(axis: AxisResize, mode: str) -> Array:
    """Where each result element lies in the source, in source samples.

    Lengths in these formulas are `scale * source`, not rounded, as the reference has them.
    """
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
        if length == 1:
            return np.zeros_like(index)
        return index * (axis.source - 1) / (length - 1)
    if mode in ("asymmetric", "legacy"):
        return index / axis.scale
    if mode == "tf_half_pixel_for_nn":
        return (index + 0.5) / axis.scale
    if mode == "tf_crop_and_resize":
        last = axis.source - 1
        if length <= 1:
            return np.full_like(index, (axis.start + axis.end) * last / 2)
        return axis.start * last + index * (axis.end - axis.start) * last / (length - 1)
    raise RunError("unknown coordinate_transformation_mode of Resize", got=mode)


_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _nearest(positions: Array, mode: str, scale: float) -> Array:
    if mode == "legacy":
        # Before version 11 sizes were only scaled by whole steps; shrinking took the next sample.
        mode = "ceil" if scale < 1 else "floor"
    if mode not in _ROUNDING:
        raise RunError("unknown nearest_mode of Resize", expected=sorted(_ROUNDING), got=mode)
    return _ROUNDING[mode](positions)


# ---------------------------------------------------------------- weights


def _triangle(distance: Array) -> Array:
    result: Array = np.clip(1 - np.abs(distance), 0, 1)
    return result


def _keys(distance: Array, a: float) -> Array:
    """The cubic convolution kernel of Keys (1981)."""
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def taps(axis: AxisResize, how: Interpolation) -> tuple[Array, Array | None]:
    """Source indices [target, taps] and their weights; no weights for `nearest`."""
    positions = source_positions(axis, how.coordinates)
    if how.mode == "nearest":
        index = _nearest(positions, how.nearest, axis.scale)
        return np.clip(index, 0, axis.source - 1).astype(np.intp)[:, None], None
    reach = 1 if how.mode == "linear" else 2
    # Shrinking with antialias widens the kernel, so that every sample counts.
    stretch = min(axis.scale, 1.0) if how.antialias else 1.0
    first = math.floor(-reach / stretch) + 1
    offsets = np.arange(first, 2 - first)
    base = np.floor(positions)
    distance = (offsets - (positions - base)[:, None]) * stretch
    weights = _triangle(distance) if how.mode == "linear" else _keys(distance, how.cubic_a)
    index = base[:, None] + offsets
    if how.exclude_outside:
        weights = np.where((index >= 0) & (index < axis.source), weights, 0)
    if how.exclude_outside or how.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(index, 0, axis.source - 1).astype(np.intp), weights


def _apply(x: Array, along: int, index: Array, weights: Array | None) -> Array:
    if weights is None:
        return np.take(x, index[:, 0], axis=along)
    shape = (-1, *[1] * (x.ndim - along - 1))
    total: Array | None = None
    for tap in range(index.shape[1]):
        factor = weights[:, tap].astype(x.dtype)
        if not factor.any():
            continue
        part = np.take(x, index[:, tap], axis=along)
        np.multiply(part, factor.reshape(shape), out=part)
        total = part if total is None else np.add(total, part, out=total)
    if total is None:
        return np.zeros_like(np.take(x, index[:, 0], axis=along))
    return total


def resize(x: Array, axes: dict[int, AxisResize], how: Interpolation) -> Array:
    """Resize the given axes of `x`."""
    if how.mode not in ("nearest", "linear", "cubic"):
        raise RunError("unknown mode of Resize", expected="nearest, linear or cubic", got=how.mode)
    result = x if how.mode == "nearest" else widen(x)
    if result.dtype.kind in "iu" and how.mode != "nearest":
        result = result.astype(np.float32)
    outside: Array | None = None
    for along, axis in axes.items():
        if axis.source == 0 and axis.target > 0:
            raise RunError("can't resize an empty axis", got=f"shape {x.shape}")
        plain = axis.scale == 1 and axis.target == axis.source
        if plain and how.coordinates != "tf_crop_and_resize":
            continue
        index, weights = taps(axis, how)
        result = _apply(result, along, index, weights)
        if how.coordinates == "tf_crop_and_resize":
            positions = source_positions(axis, how.coordinates)
            off = (positions < 0) | (positions > axis.source - 1)
            off = off.reshape(-1, *[1] * (x.ndim - along - 1))
            outside = off if outside is None else outside | off
    if outside is not None:
        result = np.where(outside, result.dtype.type(how.extrapolation), result)
    return result.astype(x.dtype, copy=result is x)


# ---------------------------------------------------------------- rows


def _from_scales(x: Array, axes: tuple[int, ...], scales: list[float]) -> dict[int, AxisResize]:
    if len(scales) != len(axes):
        raise RunError("wrong number of scales", expected=len(axes), got=len(scales))
    if any(not scale > 0 for scale in scales):
        raise RunError("scales must be positive", got=scales)
    return {
        along: AxisResize(x.shape[along], math.floor(x.shape[along] * scale), scale)
        for along, scale in zip(axes, scales, strict=True)
    }


def _float_list(values: Array) -> list[float]:
    return [float(value) for value in values.reshape(-1)]


@TABLE.kernel("Upsample", until=8)
def _upsample_attributes(node: KernelNode) -> Kernel:
    mode = text(node.attr("mode", "nearest"))
    how = Interpolation("linear" if mode == "bilinear" else mode, "legacy", "legacy")
    if node.version < 7:
        plane = [float(node.attr("height_scale")), float(node.attr("width_scale"))]
        scales = [1.0, 1.0, *plane]
    else:
        scales = [float(scale) for scale in node.attr("scales")]
    return lambda x: resize(x, _from_scales(x, tuple(range(x.ndim)), scales), how)


@TABLE.kernel("Upsample", since=9)
@TABLE.kernel("Resize", since=10, until=10)
def _resize_10(node: KernelNode) -> Kernel:
    how = Interpolation(text(node.attr("mode", "nearest")), "legacy", "legacy")

    def run(x: Array, scales: Array) -> Array:
        return resize(x, _from_scales(x, tuple(range(x.ndim)), _float_list(scales)), how)

    return run


@TABLE.kernel("Resize", since=11)
def _resize(node: KernelNode) -> Kernel:
    how = Interpolation(
        mode=text(node.attr("mode", "nearest")),
        coordinates=text(node.attr("coordinate_transformation_mode", "half_pixel")),
        nearest=text(node.attr("nearest_mode", "round_prefer_floor")),
        cubic_a=float(node.attr("cubic_coeff_a", -0.75)),
        exclude_outside=bool(node.attr("exclude_outside", 0)),
        antialias=bool(node.attr("antialias", 0)),
        extrapolation=float(node.attr("extrapolation_value", 0.0)),
    )
    chosen = node.attr("axes")
    policy = text(node.attr("keep_aspect_ratio_policy", "stretch"))

    def run(
        x: Array,
        roi: Array | None = None,
        scales: Array | None = None,
        sizes: Array | None = None,
    ) -> Array:
        along = unit_axes(range(x.ndim) if chosen is None else chosen, x.ndim)
        region = _region(roi, len(along), how.coordinates)
        if sizes is not None and sizes.size:
            axes = _from_sizes(x, along, int_list(sizes), policy)
        elif scales is not None and scales.size:
            axes = _from_scales(x, along, _float_list(scales))
        else:
            raise RunError("Resize needs scales or sizes")
        if region is not None:
            axes = _with_region(axes, region, sizes is not None and sizes.size > 0)
        return resize(x, axes, how)

    return run


def _region(roi: Array | None, count: int, coordinates: str) -> list[tuple[float, float]] | None:
    if coordinates != "tf_crop_and_resize":
        return None
    if roi is None or roi.size != 2 * count:
        raise RunError(
            "tf_crop_and_resize needs a roi",
            expected=f"{2 * count} values",
            got=None if roi is None else roi.size,
        )
    values = _float_list(roi)
    return list(zip(values[:count], values[count:], strict=True))


def _with_region(
    axes: dict[int, AxisResize], region: list[tuple[float, float]], sized: bool
) -> dict[int, AxisResize]:
    found = {}
    for (along, axis), (start, end) in zip(axes.items(), region, strict=True):
        target = axis.target
        if not sized:
            target = math.floor(axis.source * (end - start) * axis.scale)
        # The length in the formula is that of the region.
        found[along] = AxisResize(axis.source, target, target / axis.source, start, end)
    return found


def _from_sizes(
    x: Array, axes: tuple[int, ...], sizes: list[int], policy: str
) -> dict[int, AxisResize]:
    if len(sizes) != len(axes) or min(sizes, default=0) < 0:
        raise RunError("wrong sizes for Resize", expected=f"{len(axes)} lengths", got=sizes)
    if any(x.shape[along] == 0 and size > 0 for along, size in zip(axes, sizes, strict=True)):
        raise RunError("can't resize an empty axis", got=f"shape {x.shape}")
    scales: list[Any] = [
        size / max(1, x.shape[along]) for along, size in zip(axes, sizes, strict=True)
    ]
    if policy != "stretch":
        if policy not in ("not_larger", "not_smaller"):
            raise RunError("unknown keep_aspect_ratio_policy", got=policy)
        one = min(scales) if policy == "not_larger" else max(scales)
        scales = [one] * len(axes)
        # Halves round up.
        sizes = [math.floor(one * x.shape[along] + 0.5) for along in axes]
    return {
        along: AxisResize(x.shape[along], size, scale)
        for along, size, scale in zip(axes, sizes, scales, strict=True)
    }
