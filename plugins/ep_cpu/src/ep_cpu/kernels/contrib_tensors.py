"""com.microsoft: shapes, ranges, samples, spectra, distances, hashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.gather import check_indices
from ep_cpu.kernels.standard import standard_kernel
from ep_cpu.kernels.support import (
    FLOATS,
    Array,
    as_array,
    check_axis,
    int_list,
    scalar,
    text,
    widen,
)
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_LEGACY_FLOATS = FLOATS - {DataType.BFLOAT16}

# ---------------------------------------------------------------- standard under an older name


@TABLE.kernel("Trilu", domain="com.microsoft")
@TABLE.kernel("GatherND", domain="com.microsoft")
@TABLE.kernel("GridSample", domain="com.microsoft", types={0: _LEGACY_FLOATS})
def _as_standard(node: KernelNode) -> Kernel:
    # Version 16 of GridSample calls its modes bilinear and bicubic, as this one does.
    version = 16 if node.node.op_type == "GridSample" else None
    return standard_kernel(node, node.node.op_type, inputs=(0, 1), version=version)


@TABLE.kernel("Range", domain="com.microsoft")
def _range(node: KernelNode) -> Kernel:
    kernel = standard_kernel(node, "Range", inputs=(0, 1, 2))

    def run(start: Array, limit: Array, delta: Array | None = None) -> Array:
        step = np.ones((), start.dtype) if delta is None else delta
        result: Array = kernel(start, limit, step)
        return result

    return run


@TABLE.kernel("Pad", domain="com.microsoft")
def _pad(node: KernelNode) -> Kernel:
    kernel = standard_kernel(node, "Pad", inputs=(0, 1, 2), version=13)

    def run(x: Array, pads: Array, value: Array | None = None) -> Array:
        result: Array = kernel(x, pads.reshape(-1), value)
        return result

    return run


@TABLE.kernel("Unique", domain="com.microsoft")
def _unique(node: KernelNode) -> Kernel:
    """Values in the order of their first appearance, where each element's is, and how often."""
    kernel = standard_kernel(node, "Unique", attributes={"sorted": 0})
    outputs = len(node.node.outputs)

    def run(x: Array) -> Any:
        if x.ndim != 1:
            raise RunError("Unique of com.microsoft needs one axis", got=x.shape)
        values, _, inverse, counts = kernel(x)
        return (values, inverse, counts)[:outputs] if outputs > 1 else values

    return run


@TABLE.kernel("ExpandDims", domain="com.microsoft", view=True)
def _expand_dims(node: KernelNode) -> Kernel:
    def run(x: Array, axis: Array) -> Array:
        return as_array(np.expand_dims(x, check_axis(int(scalar(axis, "axis")), x.ndim + 1)))

    return run


# ---------------------------------------------------------------- linear algebra and distances


@TABLE.kernel("Inverse", domain="com.microsoft", types={0: _LEGACY_FLOATS})
def _inverse(node: KernelNode) -> Kernel:
    def run(x: Array) -> Array:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise RunError("Inverse needs square matrices", got=x.shape)
        try:
            inverse = np.linalg.inv(widen(x))
        except np.linalg.LinAlgError:
            raise RunError("a matrix has no inverse", got="a singular matrix") from None
        return inverse.astype(x.dtype, copy=False)

    return run


def _metric_problem(node: KernelNode) -> str | None:
    metric = text(node.attr("metric", "sqeuclidean"))
    known = ("euclidean", "sqeuclidean")
    return None if metric in known else f"the metric {metric!r} isn't implemented"


@TABLE.kernel(
    "CDist",
    domain="com.microsoft",
    types={0: {DataType.FLOAT, DataType.DOUBLE}},
    predicate=_metric_problem,
)
def _distances(node: KernelNode) -> Kernel:
    """Distances of the rows of two matrices: a^2 + b^2 - 2 a b, kept from falling below 0."""
    root = text(node.attr("metric", "sqeuclidean")) == "euclidean"

    def run(a: Array, b: Array) -> Array:
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
            raise RunError("CDist needs two matrices of equal width", got=(a.shape, b.shape))
        squares = np.sum(a * a, axis=1)[:, None] + np.sum(b * b, axis=1)
        distances = squares - 2 * np.matmul(a, b.T)
        np.maximum(distances, 0, out=distances)
        return np.asarray(np.sqrt(distances)) if root else distances

    return run


# ---------------------------------------------------------------- spectra


def _spectrum_problem(node: KernelNode) -> str | None:
    if not node.attr("onesided", 1):
        return "only one-sided spectra are defined"
    if node.attr("normalized", 0):
        return "normalisation isn't defined"
    rank = int(node.attr("signal_ndim", 1))
    return None if 1 <= rank <= 3 else f"signal_ndim={rank} isn't 1, 2 or 3"


def _check_signal(x: Array, axes: int) -> None:
    if x.ndim < axes or 0 in x.shape[x.ndim - axes :]:
        raise RunError(f"a signal of {axes} axes, none empty, is needed", got=x.shape)


@TABLE.kernel(
    "Rfft", domain="com.microsoft", types={0: _LEGACY_FLOATS}, predicate=_spectrum_problem
)
def _rfft(node: KernelNode) -> Kernel:
    rank = int(node.attr("signal_ndim", 1))

    def run(x: Array) -> Array:
        _check_signal(x, rank)
        found = np.fft.rfftn(widen(x), axes=tuple(range(-rank, 0)))
        return np.stack([found.real, found.imag], axis=-1).astype(x.dtype)

    return run


@TABLE.kernel(
    "Irfft", domain="com.microsoft", types={0: _LEGACY_FLOATS}, predicate=_spectrum_problem
)
def _irfft(node: KernelNode) -> Kernel:
    rank = int(node.attr("signal_ndim", 1))

    def run(x: Array) -> Array:
        _check_signal(x, rank + 1)
        if x.shape[-1] != 2 or x.shape[-2] < 2:
            raise RunError("Irfft needs [..., at least 2, 2]", got=x.shape)
        wide = widen(x)
        spectrum = wide[..., 0] + 1j * wide[..., 1]
        return np.fft.irfftn(spectrum, axes=tuple(range(-rank, 0))).astype(x.dtype)

    return run


# ---------------------------------------------------------------- crops


def _crop_problem(node: KernelNode) -> str | None:
    mode = text(node.attr("mode", "bilinear"))
    return None if mode in ("bilinear", "nearest") else f"mode {mode!r} isn't implemented"


@TABLE.kernel(
    "CropAndResize", domain="com.microsoft", types={0: _LEGACY_FLOATS}, predicate=_crop_problem
)
def _crop_and_resize(node: KernelNode) -> Kernel:
    nearest = text(node.attr("mode", "bilinear")) == "nearest"
    outside = float(node.attr("extrapolation_value", 0.0))

    def run(x: Array, boxes: Array, images: Array, size: Array) -> Array:
        lengths = int_list(size)
        count = boxes.shape[0] if boxes.ndim else 0
        fits = x.ndim == 4 and boxes.shape == (count, 4) and images.shape == (count,)
        if not fits or len(lengths) != 2 or min(lengths) < 1 or 0 in x.shape:
            raise RunError(
                "CropAndResize needs images [N, C, H, W], boxes [R, 4], R indices and two lengths",
                got=(x.shape, boxes.shape, images.shape, lengths),
            )
        if images.size and int(images.min()) < 0:
            raise RunError("an image's index is negative", got=int(images.min()))
        picked = check_indices(images, x.shape[0])
        wide = widen(x)
        rows = _sampled_lines(widen(boxes)[:, 0::2], lengths[0], x.shape[2])
        columns = _sampled_lines(widen(boxes)[:, 1::2], lengths[1], x.shape[3])
        result = np.empty((count, x.shape[1], *lengths), wide.dtype)
        for index in range(count):
            image = wide[picked[index]]
            result[index] = _crop(image, rows[index], columns[index], nearest, outside)
        return result.astype(x.dtype, copy=False)

    return run


def _sampled_lines(ends: Array, count: int, length: int) -> Array:
    """Places [R, count] between two relative ends [R, 2], both included; one lies in the middle."""
    first, last = ends[:, :1], ends[:, 1:]
    span = ends.dtype.type(length - 1)
    if count == 1:
        return np.asarray((first + last) * span / 2)
    step = (last - first) * span / ends.dtype.type(count - 1)
    return np.asarray(first * span + np.arange(count, dtype=ends.dtype) * step)


def _crop(image: Array, rows: Array, columns: Array, nearest: bool, outside: float) -> Array:
    """Sample image [C, H, W] at rows x columns."""
    height, width = image.shape[1:]
    inside = ((rows >= 0) & (rows <= height - 1))[:, None] & (columns >= 0) & (columns <= width - 1)
    at_row, at_column = np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)
    if nearest:
        chosen_rows = np.floor(at_row + 0.5).astype(np.intp)
        chosen_columns = np.floor(at_column + 0.5).astype(np.intp)
        values = image[:, chosen_rows[:, None], chosen_columns]
    else:
        top, left = np.floor(at_row).astype(np.intp), np.floor(at_column).astype(np.intp)
        bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
        down, across = (at_row - top)[:, None], at_column - left
        upper = image[:, top[:, None], left] * (1 - across) + image[:, top[:, None], right] * across
        lower = (
            image[:, bottom[:, None], left] * (1 - across)
            + image[:, bottom[:, None], right] * across
        )
        values = upper * (1 - down) + lower * down
    return np.where(inside, values, image.dtype.type(outside))


# ---------------------------------------------------------------- hashes


@TABLE.kernel("MurmurHash3", domain="com.microsoft")
def _murmur_hash(node: KernelNode) -> Kernel:
    """MurmurHash3_x86_32 (Appleby 2011) of each element's bytes."""
    seed = int(node.attr("seed", 0)) & 0xFFFFFFFF
    dtype = np.dtype(np.uint32 if node.attr("positive", 1) else np.int32)

    def run(x: Array) -> Array:
        if x.dtype == object:
            hashes = [_hash_bytes(text(value).encode(), seed) for value in x.reshape(-1)]
            return np.array(hashes, np.uint32).view(dtype).reshape(x.shape)
        if x.dtype.itemsize not in (4, 8):
            raise RunError("MurmurHash3 takes 32- and 64-bit numbers and strings", got=x.dtype)
        words = np.ascontiguousarray(x).reshape(-1).view(np.uint32).reshape(x.size, -1)
        return _hash_words(words, seed, x.dtype.itemsize).view(dtype).reshape(x.shape)

    return run


def _rotated_left(value: Array, bits: int) -> Array:
    return np.asarray(value << np.uint32(bits) | value >> np.uint32(32 - bits))


def _hash_words(words: Array, seed: int, length: int, tail: Array | None = None) -> Array:
    """Hash each row of 32-bit words of `length` bytes; `tail` is what doesn't fill a word."""
    found = np.full(words.shape[0], seed, np.uint32)
    for index in range(words.shape[1]):
        found ^= _mixed(words[:, index])
        found = _rotated_left(found, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    if tail is not None:
        found ^= _mixed(tail)
    found ^= np.uint32(length)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found ^= found >> np.uint32(shift)
        found = found * np.uint32(factor)
    return np.asarray(found ^ found >> np.uint32(16))


def _mixed(word: Array) -> Array:
    scattered = _rotated_left(word * np.uint32(0xCC9E2D51), 15)
    return np.asarray(scattered * np.uint32(0x1B873593))


def _hash_bytes(data: bytes, seed: int) -> int:
    whole = len(data) // 4 * 4
    words = np.frombuffer(data[:whole], "<u4").astype(np.uint32).reshape(1, -1)
    rest = int.from_bytes(data[whole:], "little")
    tail = np.array([rest], np.uint32) if whole < len(data) else None
    return int(_hash_words(words, seed, len(data), tail)[0])
