"""The geometry that convolution and pooling share: strides, pads, output lengths, window views.

No operator lives here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, text
from ep_sdk.kernels import KernelNode

__all__ = ["Geometry", "Window", "pad_spatial", "window_view"]


@dataclass(frozen=True)
class Window:
    """How a kernel slides over the spatial axes of one input.

    Attributes:
        kernel, strides, dilations: per spatial axis.
        before, after: padding per spatial axis, as the operator states it.
        extra: further positions behind `after` that the last windows reach with ceil_mode.
        output: number of windows per spatial axis.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    extra: tuple[int, ...]
    output: tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """The window attributes of a node, before the input's size is known."""

    auto_pad: str
    strides: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    ceil_mode: bool

    @classmethod
    def of(cls, node: KernelNode) -> Geometry:
        """Read the attributes that Conv and the pools have in common."""

        def integers(name: str) -> tuple[int, ...] | None:
            value = node.attr(name)
            return None if value is None else tuple(int(item) for item in value)

        return cls(
            auto_pad=text(node.attr("auto_pad", "NOTSET")),
            strides=integers("strides"),
            dilations=integers("dilations"),
            pads=integers("pads"),
            ceil_mode=bool(node.attr("ceil_mode", 0)),
        )

    def window(self, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
        """Work out pads and output lengths for an input of the given spatial lengths.

        Raises:
            RunError: attributes of the wrong length, or a kernel larger than the padded input.
        """
        rank = len(spatial)
        strides = self.strides or (1,) * rank
        dilations = self.dilations or (1,) * rank
        pads = self.pads or (0,) * (2 * rank)
        lengths = (len(kernel), len(strides), len(dilations), len(pads))
        if lengths != (rank, rank, rank, 2 * rank):
            raise RunError(
                f"kernel_shape, strides, dilations and pads don't fit {rank} spatial axes",
                expected=(rank, rank, rank, 2 * rank),
                got=lengths,
            )
        if min((*kernel, *strides, *dilations), default=1) < 1:
            raise RunError(
                "kernel_shape, strides and dilations must be positive",
                got=(tuple(kernel), strides, dilations),
            )
        columns = []
        for axis, length in enumerate(spatial):
            reach = dilations[axis] * (kernel[axis] - 1) + 1
            low, high = self._pads(length, reach, strides[axis], pads[axis], pads[axis + rank])
            count = self._count(length + low + high - reach, strides[axis], length + low)
            extra = max(0, (count - 1) * strides[axis] + reach - (length + low + high))
            columns.append((low, high, extra, count))
        before, after, extras, output = zip(*columns, strict=True) if columns else ((),) * 4
        return Window(
            kernel=tuple(kernel),
            strides=strides,
            dilations=dilations,
            before=before,
            after=after,
            extra=extras,
            output=output,
        )

    def _pads(self, length: int, reach: int, stride: int, low: int, high: int) -> tuple[int, int]:
        if self.auto_pad == "VALID":
            return 0, 0
        if self.auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
            return low, high
        count = -(-length // stride)
        total = max(0, (count - 1) * stride + reach - length)
        small = total // 2
        if self.auto_pad == "SAME_UPPER":
            return small, total - small
        return total - small, small

    def _count(self, room: int, stride: int, end_of_input: int) -> int:
        if room < 0:
            raise RunError(f"the kernel is longer than the padded input, by {-room}")
        if not self.ceil_mode:
            return room // stride + 1
        count = -(-room // stride) + 1
        # A window that would start in the padding behind the input is dropped.
        return count - 1 if (count - 1) * stride >= end_of_input else count


def pad_spatial(x: Array, window: Window, value: float) -> Array:
    """`x` with its spatial axes padded so that every window lies inside; `x` itself if none."""
    if not any((*window.before, *window.after, *window.extra)):
        return x
    rank = len(window.kernel)
    if min((*window.before, *window.after)) < 0:
        raise RunError("pads must not be negative", got=(window.before, window.after))
    lead = x.shape[: x.ndim - rank]
    spatial = x.shape[x.ndim - rank :]
    lengths = [
        low + length + high + extra
        for low, length, high, extra in zip(
            window.before, spatial, window.after, window.extra, strict=True
        )
    ]
    padded = np.full((*lead, *lengths), value, dtype=x.dtype)
    inner: Any = tuple(
        slice(low, low + length) for low, length in zip(window.before, spatial, strict=True)
    )
    padded[(..., *inner)] = x
    return padded


def window_view(padded: Array, window: Window) -> Array:
    """View [*lead, *spatial] as [*lead, *kernel, *output] without a copy."""
    rank = len(window.kernel)
    lead = padded.ndim - rank
    steps = padded.strides[lead:]
    shape = (*padded.shape[:lead], *window.kernel, *window.output)
    strides = (
        *padded.strides[:lead],
        *(step * dilation for step, dilation in zip(steps, window.dilations, strict=True)),
        *(step * stride for step, stride in zip(steps, window.strides, strict=True)),
    )
    return np.lib.stride_tricks.as_strided(padded, shape, strides, writeable=False)
