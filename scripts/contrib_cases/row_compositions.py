"""Normalisations and spectra in standard operators; see `compositions`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from contrib_cases.compositions import Build, rule

__all__: list[str] = []

# ---------------------------------------------------------------- normalisations


def _mean_of_squares(b: Build, x: str, axis: str) -> str:
    return b("ReduceMean", b("Mul", x, x), axis)


def _layer_norm(b: Build, x: str, rows: Sequence[str], epsilon: float) -> tuple[str, str, str]:
    """The normalised rows, their means and the inverses of their deviations."""
    axis = b.constant([-1], np.int64)
    mean = b("ReduceMean", x, axis)
    centred = b("Sub", x, mean)
    spread = b("Sqrt", b("Add", _mean_of_squares(b, centred, axis), b.constant(epsilon)))
    y = b.sum(b("Mul", b("Div", centred, spread), rows[0]), *rows[1:])
    return y, mean, b("Reciprocal", spread)


def _rms_norm(b: Build, x: str, scale: str, axis: int, epsilon: float) -> tuple[str, str]:
    axes = b.constant(list(range(axis % len(b.shape(0)), len(b.shape(0)))), np.int64)
    spread = b("Sqrt", b("Add", _mean_of_squares(b, x, axes), b.constant(epsilon)))
    inverse = b("Reciprocal", spread)
    return b("Mul", b("Mul", x, inverse), scale), inverse


@rule("SkipLayerNormalization")
def _skip_layer_norm(b: Build) -> Sequence[str]:
    total = b.sum(b.input(0), b.input(1), b.input(4))
    rows = [b.input(2), b.input(3)]
    y, mean, inverse = _layer_norm(b, total, rows, b.attr("epsilon", 1e-12))
    return [y, mean, inverse, total]


@rule("SkipSimplifiedLayerNormalization")
def _skip_rms_norm(b: Build) -> Sequence[str]:
    total = b.sum(b.input(0), b.input(1), b.input(3))
    y, _ = _rms_norm(b, total, b.input(2), -1, b.attr("epsilon", 1e-12))
    return [y, "", "", total]


@rule("SimplifiedLayerNormalization")
def _simplified(b: Build) -> Sequence[str]:
    axis, epsilon = b.attr("axis", -1), b.attr("epsilon", 1e-5)
    return list(_rms_norm(b, b.input(0), b.input(1), axis, epsilon))


def _group_norm(b: Build, x: str) -> str:
    """Groups of channels, brought to one axis each."""
    last, groups = b.attr("channels_last", 1), b.attr("groups", 1)
    shape, rank = b.shape(0), len(b.shape(0))
    if last:
        x = b("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
        shape = (shape[0], shape[-1], *shape[1:-1])
    flat = b("Reshape", x, b.constant([shape[0], groups, -1], np.int64))
    normal = _layer_norm_without_scale(b, flat, b.attr("epsilon", 1e-5))
    whole = b("Reshape", normal, b.constant(shape, np.int64))
    column = b.constant([1, -1, *[1] * (rank - 2)], np.int64)
    scale, bias = (b("Reshape", b.input(place), column) for place in (1, 2))
    y = b("Add", b("Mul", whole, scale), bias)
    if b.attr("activation", 0):
        y = b("Mul", y, b("Sigmoid", y))
    return b("Transpose", y, perm=[0, *range(2, rank), 1]) if last else y


def _layer_norm_without_scale(b: Build, x: str, epsilon: float) -> str:
    return _layer_norm(b, x, [b.constant(1.0)], epsilon)[0]


@rule("GroupNorm")
def _plain_group_norm(b: Build) -> Sequence[str]:
    return [_group_norm(b, b.input(0))]


@rule("SkipGroupNorm")
def _skip_group_norm(b: Build) -> Sequence[str]:
    skip = b.input(3)
    if len(b.shape(3)) == 2:
        skip = b("Unsqueeze", skip, b.constant([1, 2], np.int64))
    total = b.sum(b.input(0), skip, b.input(4))
    return [_group_norm(b, total), total]


# ---------------------------------------------------------------- spectra


@rule("Rfft")
def _rfft(b: Build) -> Sequence[str]:
    """Of [..., n], as DFT wants it: one batch axis, n, and a last axis of 1."""
    shape = b.shape(0)
    column = b("Reshape", b.input(0), b.constant([-1, shape[-1], 1], np.int64))
    found = b("DFT", column, "", b.constant(1, np.int64), onesided=1)
    return [b("Reshape", found, b.constant([*shape[:-1], shape[-1] // 2 + 1, 2], np.int64))]


@rule("Irfft")
def _irfft(b: Build) -> Sequence[str]:
    """Sums of cosines and sines: the two ends count once, what lies between them twice."""
    shape = b.shape(0)
    bins = shape[-2]
    length = 2 * (bins - 1)
    angles = 2 * math.pi * np.outer(np.arange(bins), np.arange(length)) / length
    weights = np.full((bins, 1), 2.0 / length)
    weights[[0, -1]] = 1.0 / length
    table = np.stack([weights * np.cos(angles), -weights * np.sin(angles)], axis=1)
    flat = b("Reshape", b.input(0), b.constant([*shape[:-2], 2 * bins], np.int64))
    if len(shape) == 2:
        flat = b("Reshape", b.input(0), b.constant([1, 2 * bins], np.int64))
    product = b("MatMul", flat, b.constant(table.reshape(2 * bins, length)))
    return [b("Reshape", product, b.constant([*shape[:-2], length], np.int64))]
