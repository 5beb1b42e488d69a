"""Convolution: as one matrix product where it can be, by window copies and products elsewhere.

`Convolution` is shared with the integer and quantised forms; only Conv has its row here.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from ep_core.errors import RunError
from ep_sdk.kernels import Kernel, KernelNode

from ep_cpu.kernels.support import Array, compute_dtype, from_constant, widen
from ep_cpu.kernels.windows import Geometry, Window, pad_spatial, window_view
from ep_cpu.table import TABLE

__all__ = ["Convolution"]

# Elements of the copied windows that are multiplied at once, and of a depthwise working set:
# measured on cores with 1 MiB of L2 cache; both leave room for the product.
_COLUMN_ELEMENTS = 1 << 19
_DEPTHWISE_ELEMENTS = 1 << 15


class Convolution:
    """One convolution with its attributes; the weight and the input come per call.

    Args:
        node: a node with the attributes of Conv.
    """

    def __init__(self, node: KernelNode) -> None:
        self._geometry = Geometry.of(node)
        self._groups = int(node.attr("group", 1))
        kernel = node.attr("kernel_shape")
        self._kernel = None if kernel is None else tuple(int(length) for length in kernel)

    def __call__(
        self, x: Array, weight: Array, bias: Array | None, out: Array | None = None
    ) -> Array:
        """Convolve x [N, C, D1, ...] with weight [M, C / groups, k1, ...] of the same type.

        Args:
            bias: [M] or None.
            out: memory of the result's shape and type, or None.

        Raises:
            RunError: the shapes don't go together.
        """
        self._check(x, weight, bias)
        window = self._geometry.window(x.shape[2:], weight.shape[2:])
        filters = weight.shape[0]
        shape = (x.shape[0], filters, *window.output)
        if out is None or out.dtype != x.dtype or not out.flags.c_contiguous:
            out = np.empty(shape, x.dtype)
        if out.size == 0:
            return out
        if self._groups == 1 and _is_pointwise(window):
            _pointwise(x, weight, bias, window, out)
        elif self._groups == x.shape[1] and weight.shape[1] == 1:
            _depthwise(pad_spatial(x, window, 0), weight, bias, window, out)
        else:
            _by_columns(pad_spatial(x, window, 0), weight, bias, window, self._groups, out)
        return out

    def _check(self, x: Array, weight: Array, bias: Array | None) -> None:
        if x.ndim < 2 or weight.ndim != x.ndim:
            raise RunError("input and weight of a convolution differ in rank",
                           expected="[N, C, ...] and [M, C / group, ...]",
                           got=(x.shape, weight.shape))
        if x.shape[1] != weight.shape[1] * self._groups or weight.shape[0] % self._groups:
            raise RunError(
                f"channels don't fit {self._groups} group(s)",
                expected=f"{weight.shape[1] * self._groups} input channels",
                got=(x.shape, weight.shape),
            )
        if self._kernel is not None and self._kernel != weight.shape[2:]:
            raise RunError("kernel_shape contradicts the weight", expected=weight.shape[2:],
                           got=self._kernel)
        if bias is not None and bias.shape != (weight.shape[0],):
            raise RunError("wrong shape of the bias", expected=(weight.shape[0],), got=bias.shape)


def _is_pointwise(window: Window) -> bool:
    padded = any((*window.before, *window.after))
    return all(length == 1 for length in window.kernel) and not padded


def _pointwise(x: Array, weight: Array, bias: Array | None, window: Window, out: Array) -> None:
    """A kernel of one element: the channels are mixed by one product per sample."""
    steps = tuple(slice(None, None, stride) for stride in window.strides)
    positions = x[(slice(None), slice(None), *steps)].reshape(x.shape[0], x.shape[1], -1)
    matrix = weight.reshape(weight.shape[:2])
    result = out.reshape(out.shape[0], out.shape[1], -1)
    np.matmul(matrix, positions, out=result)
    if bias is not None:
        np.add(result, bias[:, None], out=result)


def _depthwise(
    padded: Array, weight: Array, bias: Array | None, window: Window, out: Array
) -> None:
    """One filter set per channel: a weighted sum of shifted views, some channels at a time."""
    channels = padded.shape[1]
    multiplier = weight.shape[0] // channels
    rank = len(window.kernel)
    ones = (1,) * rank
    filters = weight.reshape(channels, multiplier, *window.kernel)
    result = out.reshape(out.shape[0], channels, multiplier, *window.output)
    source = padded[:, :, None]
    step = max(1, _DEPTHWISE_ELEMENTS // (math.prod(window.output) * multiplier))
    product = np.empty((min(step, channels), multiplier, *window.output), out.dtype)
    for sample, start in itertools.product(range(out.shape[0]), range(0, channels, step)):
        part = slice(start, start + step)
        target = result[sample, part]
        scratch = product[: target.shape[0]]
        if bias is None:
            target[...] = 0
        else:
            target[...] = bias.reshape(channels, multiplier, *ones)[part]
        for place in itertools.product(*map(range, window.kernel)):
            shifted = source[(sample, part, slice(None), *_shift(window, place))]
            factor = filters[(part, slice(None), *place)].reshape(-1, multiplier, *ones)
            np.multiply(shifted, factor, out=scratch)
            np.add(target, scratch, out=target)


def _shift(window: Window, place: tuple[int, ...]) -> tuple[slice, ...]:
    """The elements that the kernel element at `place` meets, one per window."""
    return tuple(
        slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
        for at, dilation, stride, count in zip(
            place, window.dilations, window.strides, window.output, strict=True
        )
    )


def _by_columns(
    padded: Array, weight: Array, bias: Array | None, window: Window, groups: int, out: Array
) -> None:
    """Copy windows into columns, a band of the first spatial axis at a time, and multiply."""
    filters = weight.shape[0]
    depth = math.prod(weight.shape[1:])
    matrix = weight.reshape(groups, filters // groups, depth)
    view = window_view(padded, window)
    bands, across = window.output[0], math.prod(window.output[1:])
    step = min(bands, max(1, _COLUMN_ELEMENTS // (depth * groups * across)))
    first_output = 2 + len(window.kernel)
    offset = None if bias is None else bias.reshape(groups, -1, 1)
    result = out.reshape(out.shape[0], groups, filters // groups, bands * across)
    for sample, start in itertools.product(range(out.shape[0]), range(0, bands, step)):
        part = (sample, *[slice(None)] * (first_output - 1), slice(start, start + step))
        columns = view[part].reshape(groups, depth, -1)
        target = result[sample, :, :, start * across : start * across + columns.shape[2]]
        product = np.matmul(matrix, columns)
        if offset is None:
            target[...] = product
        else:
            np.add(product, offset, out=target)


@TABLE.kernel("Conv", writes_out=True)
def _conv(node: KernelNode) -> Kernel:
    convolution = Convolution(node)
    wide_weight = from_constant(node, 1, lambda weight: np.ascontiguousarray(widen(weight)))

    def run(
        x: Array, weight: Array, bias: Array | None = None, *, out: Array | None = None
    ) -> Any:
        if x.dtype == compute_dtype(x.dtype):
            return convolution(x, wide_weight(weight), bias, out)
        wide_bias = None if bias is None else widen(bias)
        return convolution(widen(x), wide_weight(weight), wide_bias).astype(x.dtype)

    return run
