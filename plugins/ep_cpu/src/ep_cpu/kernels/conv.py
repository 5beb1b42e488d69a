"""Convolution: checks, the choice of a method, and the row of Conv.

`Convolution` is shared with the integer and quantised forms.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.conv_methods import (
    Filters,
    Phases,
    by_columns,
    by_places,
    by_windows,
    depthwise,
    pointwise,
)
from ep_cpu.kernels.support import Array, compute_dtype, from_constant, widen
from ep_cpu.kernels.windows import Geometry, Window, pad_spatial
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["Convolution"]

_MOST_PHASES = 16


class Convolution:
    """One convolution with its attributes; the filters and the input come per call.

    Args:
        node: a node with the attributes of Conv.
    """

    def __init__(self, node: KernelNode) -> None:
        self._geometry = Geometry.of(node)
        self._groups = int(node.attr("group", 1))
        kernel = node.attr("kernel_shape")
        self._kernel = None if kernel is None else tuple(int(length) for length in kernel)

    def filters(self, weight: Array) -> Filters:
        """Prepare a weight [M, C / groups, k1, ...].

        Raises:
            RunError: it doesn't fit the attributes.
        """
        if weight.ndim < 3 or weight.shape[0] % self._groups:
            raise RunError(
                "wrong shape of a convolution's weight",
                expected=f"[M, C / group, ...], M a multiple of {self._groups}",
                got=weight.shape,
            )
        if self._kernel is not None and self._kernel != weight.shape[2:]:
            raise RunError(
                "kernel_shape contradicts the weight", expected=weight.shape[2:], got=self._kernel
            )
        return Filters(weight, self._groups)

    def __call__(
        self, x: Array, filters: Filters, bias: Array | None, out: Array | None = None
    ) -> Array:
        """Convolve a batch.

        Args:
            x: [N, C, D1, ...], of the filters' type.
            filters: what `filters` prepared.
            bias: [M] or None.
            out: memory of the result's shape and type, or None.

        Raises:
            RunError: the shapes don't go together.
        """
        weight = filters.weight
        if x.ndim != weight.ndim or x.shape[1] != weight.shape[1] * self._groups:
            raise RunError(
                "the input of a convolution doesn't fit its weight",
                expected=f"rank {weight.ndim} and {weight.shape[1] * self._groups} channels",
                got=x.shape,
            )
        if bias is not None and bias.shape != (filters.count,):
            raise RunError("wrong shape of the bias", expected=(filters.count,), got=bias.shape)
        window = self._geometry.window(x.shape[2:], filters.kernel)
        shape = (x.shape[0], filters.count, *window.output)
        if out is None or not out.flags.c_contiguous:
            out = np.empty(shape, x.dtype)
        if out.size:
            for sample, target in zip(x, out, strict=True):
                _convolve(sample, filters, bias, window, target)
        return out


def _convolve(x: Array, filters: Filters, bias: Array | None, window: Window, out: Array) -> None:
    """Convolve one sample [C, *spatial] into out [M, *output] by the cheapest method."""
    groups = filters.groups
    padded = any((*window.before, *window.after))
    if groups == 1 and not padded and all(length == 1 for length in window.kernel):
        pointwise(x, filters, bias, window, out)
        return
    x = pad_spatial(x, window, 0)
    few_windows = math.prod(window.output) < window.kernel[-1]
    if few_windows or math.prod(window.strides) > _MOST_PHASES:
        by_windows(x, filters, bias, window, out)
        return
    phases = Phases(x, window)
    if groups > 1 and filters.weight.shape[1] == 1:
        depthwise(phases, filters, bias, out)
    elif groups == 1 and filters.count * 2 <= x.shape[0]:
        by_places(phases, filters, bias, out)
    else:
        by_columns(phases, filters, bias, out)


@TABLE.kernel("Conv", writes_out=True)
def _conv(node: KernelNode) -> Kernel:
    convolution = Convolution(node)
    prepare = from_constant(node, 1, lambda weight: convolution.filters(widen(weight)))

    def run(x: Array, weight: Array, bias: Array | None = None, *, out: Array | None = None) -> Any:
        if x.dtype == compute_dtype(x.dtype):
            return convolution(x, prepare(weight), bias, out)
        wide_bias = None if bias is None else widen(bias)
        return convolution(widen(x), prepare(weight), wide_bias).astype(x.dtype)

    return run
