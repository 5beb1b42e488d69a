"""Transposed convolution."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_compliance.oracle.precision import Array

__all__: list[str] = []


@correct("ConvTranspose", reason="groups, output shapes and dilations are wrong or fail")
def conv_transpose(call: NodeCall) -> Sequence[Any]:
    """Each input element adds its multiple of the kernel into the output."""
    x, weights, bias = call.input(0), call.input(1), call.input(2)
    rank = x.ndim - 2
    strides = call.attr("strides", [1] * rank)
    dilations = call.attr("dilations", [1] * rank)
    kernel = weights.shape[2:]
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [(n - 1) * s + e for n, s, e in zip(x.shape[2:], strides, extent, strict=True)]
    full = _scatter(x, weights, call.attr("group", 1), strides, dilations, whole)
    result = _crop(call, full, whole, x.shape[2:], strides)
    if bias is not None:
        result = result + bias.reshape([1, -1] + [1] * rank)
    return [result]


def _scatter(
    x: Array,
    weights: Array,
    groups: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    whole: Sequence[int],
) -> Array:
    """The output before pads, shape `(N, groups * M, *whole)`."""
    per_group, channels = weights.shape[0] // groups, weights.shape[1]
    full = np.zeros((x.shape[0], groups * channels, *whole), x.dtype)
    for place in itertools.product(*map(range, weights.shape[2:])):
        target = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(place, dilations, x.shape[2:], strides, strict=True)
        )
        for group in range(groups):
            rows = slice(group * per_group, (group + 1) * per_group)
            tap = weights[rows][_last(place)]
            part = np.einsum("nc...,cm->nm...", x[:, rows], tap)
            columns = slice(group * channels, (group + 1) * channels)
            full[(slice(None), columns, *target)] += part
    return full


def _last(places: Sequence[Any]) -> tuple[Any, ...]:
    """An index of the last axes, with everything before them."""
    return (..., *places)


def _crop(
    call: NodeCall,
    full: Array,
    whole: Sequence[int],
    lengths: Sequence[int],
    strides: Sequence[int],
) -> Array:
    rank = len(whole)
    extra = call.attr("output_padding", [0] * rank)
    pads = list(call.attr("pads", [0] * (2 * rank)))
    mode = call.attr("auto_pad", "NOTSET")
    wanted = call.attr("output_shape")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(lengths, strides, strict=True)]
    if mode == "VALID":
        pads = [0] * (2 * rank)
    result = full
    for axis in range(rank):
        if wanted is not None:
            total = whole[axis] + extra[axis] - wanted[-rank:][axis]
            # SAME_UPPER puts the odd element at the end, and so has the smaller pad in front.
            begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
            end = total - begin
        else:
            begin, end = pads[axis], pads[axis + rank]
        result = _cut(result, axis + 2, begin, end - extra[axis])
    return result


def _cut(values: Array, axis: int, begin: int, end: int) -> Array:
    """Drop `begin` and `end` elements of an axis; negative counts add zeros."""
    widths = [(0, 0)] * values.ndim
    widths[axis] = (max(0, -begin), max(0, -end))
    padded = np.pad(values, widths)
    begin = max(0, begin)
    stop = padded.shape[axis] - max(0, end)
    return np.take(padded, range(begin, stop), axis=axis)
