"""Resize and Upsample: one axis at a time, with tables of positions and weights."""

from __future__ import annotations

import contextlib
import math

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS, NARROW_FLOATS
from ep_sdk.device_kernels.launch import TABLE, Bench, text_attribute
from ep_sdk.device_kernels.moving import unit_of
from ep_sdk.device_kernels.resize_taps import (
    ResizedAxis,
    Sampling,
    axes_from_scales,
    axes_from_sizes,
    find_taps,
)
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import positive_axis

__all__: list[str] = []

_ANY = frozenset(ELEMENTS)


class _Resizer:
    """Resizes axes one after the other."""

    def __init__(self, node: KernelNode, how: Sampling) -> None:
        self.bench = Bench(node)
        self.how = how

    def run(
        self,
        stream: DeviceStream,
        x: DeviceBuffer,
        axes: dict[int, ResizedAxis],
        out: DeviceBuffer | None,
    ) -> DeviceBuffer:
        """Resize; axes that stay as they are cost nothing."""
        shape = tuple(axes[a].target if a in axes else n for a, n in enumerate(x.shape))
        if math.prod(shape) and not math.prod(x.shape):
            raise RunError("can't resize an axis without elements", got=x.shape)
        changed = [
            (along, axis)
            for along, axis in axes.items()
            if axis.scale != 1 or axis.target != axis.source
        ] or list(axes.items())[:1]
        wide = x.dtype
        if self.how.mode != "nearest" and (x.dtype in NARROW_FLOATS or x.dtype not in FLOATS):
            wide = DataType.FLOAT
        with self.bench.writing(stream, shape, x.dtype, out) as y, contextlib.ExitStack() as stack:
            source = x
            for number, (along, axis) in enumerate(changed):
                lengths = list(source.shape)
                lengths[along] = axis.target
                is_last = number == len(changed) - 1
                target = (
                    y
                    if is_last
                    else stack.enter_context(self.bench.scratch(stream, tuple(lengths), wide))
                )
                self._resize_axis(stream, source, target, along, axis)
                source = target
        return y

    def _resize_axis(
        self,
        stream: DeviceStream,
        source: DeviceBuffer,
        target: DeviceBuffer,
        along: int,
        axis: ResizedAxis,
    ) -> None:
        index, weights = find_taps(axis, self.how)
        outer = math.prod(source.shape[:along])
        inner = math.prod(source.shape[along + 1 :])
        defines: dict[str, object] = {
            "T": ELEMENTS[source.dtype].code,
            "TC": ELEMENTS[target.dtype].code,
            "UNIT": unit_of(source),
        }
        size: tuple[int, ...] = (inner, axis.target, outer)
        if not math.prod(size):
            return
        if inner == 1:
            size = (axis.target, outer)
            defines["LAST"] = 1
        positions = self.bench.upload(stream, index)
        try:
            buffers = [source.handle, target.handle, positions.handle]
            if weights is None:
                kernel = self.bench.kernel("resize.cl", "pick_axis", defines)
                kernel.launch(stream, size, None, [*buffers, np.int64(axis.source)])
                return
            is_double = source.dtype is DataType.DOUBLE
            wide = np.float64 if is_double else np.float32
            factors = self.bench.upload(stream, weights.astype(wide))
            try:
                kernel = self.bench.kernel("resize.cl", "resize_axis", defines)
                numbers = [np.int32(index.shape[1]), np.int64(axis.source)]
                kernel.launch(stream, size, None, [*buffers, factors.handle, *numbers])
            finally:
                self.bench.release(stream, factors)
        finally:
            self.bench.release(stream, positions)


def _floats(bench: Bench, stream: DeviceStream, buffer: DeviceBuffer) -> list[float]:
    return [float(item) for item in bench.values(stream, buffer).reshape(-1)]


@TABLE.kernel("Upsample", since=9, types={0: _ANY}, writes_out=True)
@TABLE.kernel("Resize", since=10, until=10, types={0: _ANY}, writes_out=True)
def _resize_10(node: KernelNode) -> Kernel:
    resizer = _Resizer(node, Sampling(text_attribute(node, "mode", "nearest"), "legacy", "legacy"))

    def resize(
        stream: DeviceStream,
        x: DeviceBuffer,
        scales: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        factors = _floats(resizer.bench, stream, scales)
        axes = dict(enumerate(axes_from_scales(x.shape, factors)))
        return resizer.run(stream, x, axes, out)

    return resize


def _known_coordinates(node: KernelNode) -> str | None:
    name = text_attribute(node, "coordinate_transformation_mode", "half_pixel")
    return "tf_crop_and_resize" if name == "tf_crop_and_resize" else None


@TABLE.kernel("Resize", since=11, types={0: _ANY}, writes_out=True, predicate=_known_coordinates)
def _resize(node: KernelNode) -> Kernel:
    how = Sampling(
        mode=text_attribute(node, "mode", "nearest"),
        coordinates=text_attribute(node, "coordinate_transformation_mode", "half_pixel"),
        nearest=text_attribute(node, "nearest_mode", "round_prefer_floor"),
        cubic_a=float(node.attr("cubic_coeff_a", -0.75)),
        exclude_outside=bool(node.attr("exclude_outside", 0)),
        antialias=bool(node.attr("antialias", 0)),
    )
    resizer = _Resizer(node, how)
    chosen = node.attr("axes")
    policy = text_attribute(node, "keep_aspect_ratio_policy", "stretch")

    def resize(
        stream: DeviceStream,
        x: DeviceBuffer,
        roi: DeviceBuffer | None = None,
        scales: DeviceBuffer | None = None,
        sizes: DeviceBuffer | None = None,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        rank = len(x.shape)
        along = [positive_axis(axis, rank) for axis in (range(rank) if chosen is None else chosen)]
        lengths = [x.shape[axis] for axis in along]
        if sizes is not None and 0 not in sizes.shape:
            wanted = [int(item) for item in _floats(resizer.bench, stream, sizes)]
            found = axes_from_sizes(lengths, wanted, policy)
        elif scales is not None and 0 not in scales.shape:
            found = axes_from_scales(lengths, _floats(resizer.bench, stream, scales))
        else:
            raise RunError("Resize needs scales or sizes")
        return resizer.run(stream, x, dict(zip(along, found, strict=True)), out)

    return resize
