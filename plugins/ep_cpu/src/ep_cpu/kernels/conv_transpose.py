"""Transposed and deformable convolution, Col2Im, and the stateful causal convolution."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.compound import apply_formula, sigmoid
from ep_cpu.kernels.support import Array, from_constant, int_list, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_ADDABLE = frozenset(DataType) - {DataType.STRING}


def add_windows(
    columns: Array,
    output: tuple[int, ...],
    begin: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Array:
    """Add up overlapping windows: the reverse of cutting them out.

    Args:
        columns: [*lead, *kernel, *count], one window per count.
        output: spatial lengths of the result.
        begin: index of the result's first element in the full sum; may be negative.
        strides: distance of neighbouring windows, per spatial axis.
        dilations: distance of neighbouring elements of a window, per spatial axis.

    Returns:
        [*lead, *output].
    """
    rank = len(output)
    lead = columns.ndim - 2 * rank
    kernel = columns.shape[lead : lead + rank]
    counts = columns.shape[lead + rank :]
    margin = [max(0, -first) for first in begin]
    lengths = [
        max((count - 1) * stride + (size - 1) * dilation + 1 + front, first + front + length)
        for count, stride, size, dilation, front, first, length in zip(
            counts, strides, kernel, dilations, margin, begin, output, strict=True
        )
    ]
    full = np.zeros((*columns.shape[:lead], *lengths), columns.dtype)
    everything: tuple[Any, ...] = (slice(None),) * lead
    for place in itertools.product(*map(range, kernel)):
        target = tuple(
            slice(first, first + (count - 1) * stride + 1, stride)
            for first, count, stride in zip(
                (f + at * d for f, at, d in zip(margin, place, dilations, strict=True)),
                counts,
                strides,
                strict=True,
            )
        )
        full[(*everything, *target)] += columns[(*everything, *place)]
    kept = tuple(
        slice(front + first, front + first + length)
        for front, first, length in zip(margin, begin, output, strict=True)
    )
    return full[(*everything, *kept)]


@dataclass(frozen=True)
class _TransposeGeometry:
    """Attributes of ConvTranspose and the output size they give."""

    strides: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    output_padding: tuple[int, ...] | None
    output_shape: tuple[int, ...] | None
    auto_pad: str

    @classmethod
    def of(cls, node: KernelNode) -> _TransposeGeometry:
        def integers(name: str) -> tuple[int, ...] | None:
            value = node.attr(name)
            return None if value is None else tuple(int(item) for item in value)

        return cls(
            strides=integers("strides"),
            dilations=integers("dilations"),
            pads=integers("pads"),
            output_padding=integers("output_padding"),
            output_shape=integers("output_shape"),
            auto_pad=text(node.attr("auto_pad", "NOTSET")),
        )

    def place(
        self, spatial: tuple[int, ...], kernel: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the output lengths and the padding that is cut off in front."""
        rank = len(spatial)
        strides = self.strides or (1,) * rank
        dilations = self.dilations or (1,) * rank
        extra = self.output_padding or (0,) * rank
        pads = self.pads or (0,) * (2 * rank)
        if not len(kernel) == len(strides) == len(dilations) == len(extra) == len(pads) // 2:
            raise RunError(f"an attribute of ConvTranspose doesn't fit {rank} spatial axes")
        # The shape may be given with batch and channels in front of the spatial lengths.
        wanted = None if self.output_shape is None else self.output_shape[-rank:]
        same = self.auto_pad in ("SAME_UPPER", "SAME_LOWER")
        output = []
        begin = []
        for axis in range(rank):
            natural = (
                strides[axis] * (spatial[axis] - 1)
                + extra[axis]
                + (kernel[axis] - 1) * dilations[axis]
                + 1
            )
            if wanted is None and not same:
                low, high = (0, 0) if self.auto_pad == "VALID" else (pads[axis], pads[axis + rank])
                output.append(natural - low - high)
                begin.append(low)
                continue
            length = wanted[axis] if wanted is not None else spatial[axis] * strides[axis]
            total = max(0, natural - length)
            output.append(length)
            begin.append(total // 2 if self.auto_pad == "SAME_UPPER" else total - total // 2)
        if min(output, default=1) < 0:
            raise RunError("ConvTranspose would have a negative output length", got=tuple(output))
        return tuple(output), tuple(begin)


@TABLE.kernel("ConvTranspose")
def _conv_transpose(node: KernelNode) -> Kernel:
    geometry = _TransposeGeometry.of(node)
    groups = int(node.attr("group", 1))
    wide_weight = from_constant(node, 1, widen)

    def run(x: Array, weight: Array, bias: Array | None = None) -> Array:
        if x.ndim < 3 or weight.ndim != x.ndim or x.shape[1] != weight.shape[0]:
            raise RunError(
                "input and weight of ConvTranspose don't go together",
                expected="[N, C, ...] and [C, M / group, ...]",
                got=(x.shape, weight.shape),
            )
        batch, channels, *spatial = x.shape
        kernel = weight.shape[2:]
        rank = len(spatial)
        per_group = weight.shape[1]
        filters = wide_weight(weight).reshape(groups, channels // groups, -1)
        values = widen(x).reshape(batch, groups, channels // groups, -1)
        columns = np.matmul(filters.transpose(0, 2, 1), values)
        columns = columns.reshape(batch, groups * per_group, *kernel, *spatial)
        output, begin = geometry.place(tuple(spatial), kernel)
        strides = geometry.strides or (1,) * rank
        dilations = geometry.dilations or (1,) * rank
        result = add_windows(columns, output, begin, strides, dilations)
        if bias is not None:
            result = result + widen(bias).reshape(-1, *[1] * rank)
        return result.astype(x.dtype, copy=False)

    return run


@TABLE.kernel("Col2Im", since=18, types={"T": _ADDABLE})
def _col2im(node: KernelNode) -> Kernel:
    def run(x: Array, image_shape: Array, block_shape: Array) -> Array:
        image = tuple(int_list(image_shape))
        block = tuple(int_list(block_shape))
        rank = len(image)
        strides = tuple(node.attr("strides", (1,) * rank))
        dilations = tuple(node.attr("dilations", (1,) * rank))
        pads = tuple(node.attr("pads", (0,) * (2 * rank)))
        counts = [
            (length + pads[axis] + pads[axis + rank] - dilations[axis] * (block[axis] - 1) - 1)
            // strides[axis]
            + 1
            for axis, length in enumerate(image)
        ]
        columns = x.reshape(x.shape[0], -1, *block, *counts)
        wide = add_windows(widen(columns), image, pads[:rank], strides, dilations)
        return wide.astype(x.dtype, copy=False)

    return run


# ---------------------------------------------------------------- deformable


def _sample_bilinear(image: Array, rows: Array, columns: Array) -> Array:
    """Bilinear samples of image [C, H, W] at the given places; 0 outside. Returns [C, *places]."""
    height, width = image.shape[1:]
    top = np.floor(rows)
    left = np.floor(columns)
    result = np.zeros((image.shape[0], *rows.shape), image.dtype)
    for row in (top, top + 1):
        for column in (left, left + 1):
            weight = (1 - np.abs(rows - row)) * (1 - np.abs(columns - column))
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at_row = np.clip(row, 0, height - 1).astype(np.intp)
            at_column = np.clip(column, 0, width - 1).astype(np.intp)
            result += image[:, at_row, at_column] * np.where(inside, weight, 0)
    return result


@TABLE.kernel("DeformConv", since=19)
def _deform_conv(node: KernelNode) -> Kernel:
    groups = int(node.attr("group", 1))
    offset_groups = int(node.attr("offset_group", 1))
    strides = tuple(node.attr("strides", (1, 1)))
    dilations = tuple(node.attr("dilations", (1, 1)))
    pads = tuple(node.attr("pads", (0, 0, 0, 0)))

    def run(
        x: Array,
        weight: Array,
        offset: Array,
        bias: Array | None = None,
        mask: Array | None = None,
    ) -> Array:
        if x.ndim != 4:
            raise RunError("DeformConv is computed for images", expected="rank 4", got=x.shape)
        batch, channels = x.shape[:2]
        kernel = weight.shape[2:]
        taps = kernel[0] * kernel[1]
        out_h, out_w = offset.shape[2:]
        kind = widen(x).dtype
        shifts = widen(offset).reshape(batch, offset_groups, taps, 2, out_h, out_w)
        scale = np.ones((batch, offset_groups, taps, out_h, out_w), kind)
        if mask is not None:
            scale = widen(mask).reshape(scale.shape)
        base_row = np.arange(out_h)[:, None] * strides[0] - pads[0]
        base_column = np.arange(out_w)[None, :] * strides[1] - pads[1]
        columns = np.empty((batch, channels, taps, out_h, out_w), kind)
        per_group = channels // offset_groups
        for n, g, tap in itertools.product(range(batch), range(offset_groups), range(taps)):
            rows = base_row + (tap // kernel[1]) * dilations[0] + shifts[n, g, tap, 0]
            cols = base_column + (tap % kernel[1]) * dilations[1] + shifts[n, g, tap, 1]
            part = slice(g * per_group, (g + 1) * per_group)
            sampled = _sample_bilinear(widen(x)[n, part], rows, cols)
            columns[n, part, tap] = sampled * scale[n, g, tap]
        filters = widen(weight).reshape(groups, weight.shape[0] // groups, -1)
        product = np.matmul(filters, columns.reshape(batch, groups, -1, out_h * out_w))
        result: Array = product.reshape(batch, weight.shape[0], out_h, out_w)
        if bias is not None:
            result = result + widen(bias)[:, None, None]
        return result.astype(x.dtype, copy=False)

    return run


# ---------------------------------------------------------------- causal


@TABLE.kernel("CausalConvWithState", since=27)
def _causal_conv(node: KernelNode) -> Kernel:
    activation = text(node.attr("activation", "none"))

    def run(
        x: Array, weight: Array, bias: Array | None = None, past: Array | None = None
    ) -> tuple[Array, Array]:
        batch, channels, length = x.shape
        taps = weight.shape[2]
        wide = widen(x)
        if past is None:
            past = np.zeros((batch, channels, taps - 1), x.dtype)
        joined = np.concatenate([widen(past), wide], axis=2)
        result = np.zeros(wide.shape, wide.dtype)
        for tap in range(taps):
            result += joined[:, :, tap : tap + length] * widen(weight)[:, 0, tap][:, None]
        if bias is not None:
            result += widen(bias)[:, None]
        if activation in ("silu", "swish"):
            result *= apply_formula(sigmoid, result)
        state = joined[:, :, joined.shape[2] - (taps - 1) :]
        return result.astype(x.dtype, copy=False), state.astype(x.dtype)

    return run
