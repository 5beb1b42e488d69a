"""Convolutions on the device, by whichever of three ways suits their shape.

- groups of few channels: element by element over padded planes;
- steps of 1: a product of matrices that reads the padded planes where they lie;
- anything else: the input unfolded into a matrix, then a product of matrices.

Knows geometry and element types, not operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceKernel, DeviceStream
from ep_sdk.device_kernels.convolution import Job, Shifts
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.launch import Bench
from ep_sdk.device_kernels.product import PART, Matrices, Packed, Product, Tail
from ep_sdk.device_kernels.sources import read_source
from ep_sdk.device_kernels.tiles import Tile
from ep_sdk.device_kernels.vectors import int4
from ep_sdk.device_kernels.windows import Geometry

__all__ = ["Convolver", "int32s", "is_narrow"]

_NARROW = 4
"""Channels of a group up to which a product of matrices doesn't pay."""

_MOST_UNFOLDED = 64 << 20
"""Bytes of unfolded input at a time; more images are taken one after the other."""

_UNFOLDING_PRICE = 40
"""Output channels whose work takes as long as unfolding the input for them, about."""


_MANY_CHANNELS = 192
"""Output channels from which a 1 x 1 convolution unfolds its input."""


def is_narrow(filters: int, channels: int) -> bool:
    """True for so few channels in a group, out and in, that each element is computed alone."""
    return filters <= _NARROW and channels <= _NARROW


class Convolver:
    """Convolves with fixed element types.

    Args:
        bench: of the node.
        x, weight, y: element types.
        total: of the sums.
        tail: text with `value`, the output channel `CHANNEL` and the position `at`; its parameters.
        shifts: see there.
    """

    def __init__(
        self,
        bench: Bench,
        x: DataType,
        weight: DataType,
        y: DataType,
        total: DataType,
        tail: Tail,
        shifts: Shifts | None = None,
    ) -> None:
        self._bench = bench
        self._input = x
        self._result = y
        self._tail = tail
        self._shifts = shifts or Shifts()
        channel = "(min((long)(m), rows - 1) + get_global_id(2) % groups * rows)"
        inner = Tail(
            tail.text.replace("CHANNEL", channel),
            f"{self._shifts.parameters}{tail.parameters}, const long groups",
            self._shifts.weight.replace("CHANNEL", channel),
            head=tail.head,
        )
        self._product = Product(bench, weight, x, y, total, inner)
        self._defines: dict[str, object] = {
            "T": ELEMENTS[x].code,
            "TW": ELEMENTS[weight].code,
            "TC": ELEMENTS[y].code,
            **self._product.sums(None),
            "X_SHIFT": self._shifts.x,
            "W_SHIFT(m)": self._shifts.weight.replace("CHANNEL", "(m)"),
            "SHIFT_PARAMETERS": self._shifts.parameters,
            "TAIL_PARAMETERS": tail.parameters,
            "TAIL(value, m, at)": f"({tail.text.replace('CHANNEL', '(m)')})",
        }
        if self._product.in_parts:
            self._defines |= {"NUMBER": "float", "IS_FLOATING": 1}

    def __call__(
        self,
        stream: DeviceStream,
        x: DeviceBuffer,
        weight: DeviceBuffer,
        geometry: Geometry,
        groups: int,
        out: DeviceBuffer | None,
        tail_arguments: Sequence[Any] = (),
        shift_arguments: Sequence[Any] = (),
    ) -> DeviceBuffer:
        """Convolve; arguments are those of the tail and of the shifts.

        Raises:
            RunError: channels don't fit the weights.
        """
        filters = weight.shape[0]
        if weight.shape[1] * groups != x.shape[1] or filters % groups:
            raise RunError("channels don't fit the weights", got=(x.shape, weight.shape, groups))
        shape = geometry.result_shape(x.shape, filters)
        with self._bench.writing(stream, shape, self._result, out) as y:
            job = Job(stream, x, weight, y, geometry, groups, tail_arguments, shift_arguments)
            if math.prod(shape):
                self._choose(job)
        return y

    def _choose(self, job: Job) -> None:
        geometry = job.geometry
        own = job.filters // job.groups
        area = math.prod(geometry.window)
        fits = not self._product.in_parts or job.channels * area <= PART
        if (is_narrow(own, job.channels) and fits) or not job.channels:
            self._one_by_one(job)
            return
        padded = geometry.padded
        waste = math.prod(padded) / math.prod(geometry.output) - 1
        suits = set(geometry.strides) == {1} and waste * own < _UNFOLDING_PRICE
        suits = suits and (not self._product.in_parts or area <= PART)
        if area == 1:
            # Every element is read once: for many output channels it pays to lay them closely.
            suits = suits and own < _MANY_CHANNELS
        if suits and self._bench.device.is_cpu:
            self._by_planes(job)
        else:
            self._unfolded(job)

    # ------------------------------------------------------------ over padded planes

    def _one_by_one(self, job: Job) -> None:
        padded = job.geometry.padded
        shape = (job.x.shape[0] * job.x.shape[1], *padded)
        defines = dict(self._defines)
        if job.geometry.strides[2] == 1:
            defines["STEP_1"] = 1
        depth, height, width = job.geometry.output
        with self._bench.scratch(job.stream, shape, self._product.packed_type) as planes:
            self._pad(job, planes)
            kernel = self._planes_kernel("convolve_planes", defines)
            kernel.launch(
                job.stream,
                (width, height, job.images * job.filters * depth),
                None,
                [
                    planes.handle,
                    job.weight.handle,
                    job.y.handle,
                    *int32s(job.channels, job.filters, job.groups),
                    int4(padded),
                    int4(job.geometry.output),
                    int4(job.geometry.window),
                    int4(job.geometry.strides),
                    int4(job.geometry.dilations),
                    *job.shifts,
                    *job.tail,
                ],
            )

    def _by_planes(self, job: Job) -> None:
        geometry = job.geometry
        padded = geometry.padded
        depth, height, width = geometry.output
        # Positions along padded rows, up to the last one that is wanted.
        count = ((depth - 1) * padded[1] + height - 1) * padded[2] + width
        own = job.filters // job.groups
        tile = self._product.tile_for(own, count)
        if self._reads_in_place(job, count, tile):
            self._multiply(job, job.x, count, tile)
            return
        elements = job.images * job.x.shape[1] * math.prod(padded) + tile.panel
        with self._bench.scratch(job.stream, (elements,), self._product.packed_type) as planes:
            self._pad(job, planes)
            self._multiply(job, planes, count, tile)

    def _reads_in_place(self, job: Job, count: int, tile: Tile) -> bool:
        """The input has no padding, is of the right type, and ends where a tile does."""
        return (
            job.geometry.padded == job.geometry.input
            and self._input is self._product.packed_type
            and not self._shifts.x
            and math.prod(job.geometry.window) == 1
            and count % tile.panel == 0
        )

    def _pad(self, job: Job, planes: DeviceBuffer) -> None:
        geometry = job.geometry
        depth, height, width = geometry.padded
        kernel = self._planes_kernel("pad_planes", self._defines)
        kernel.launch(
            job.stream,
            (width, height, job.images * job.x.shape[1] * depth),
            None,
            [
                job.x.handle,
                planes.handle,
                int4(geometry.input),
                int4(geometry.padded),
                int4(geometry.before),
                *job.shifts,
            ],
        )

    def _planes_kernel(self, name: str, defines: dict[str, object]) -> DeviceKernel:
        head = read_source("tile.cl") + self._tail.head
        return self._bench.kernel("planes.cl", name, defines, head=head)

    def _multiply(self, job: Job, planes: DeviceBuffer, count: int, tile: Tile) -> None:
        own = job.filters // job.groups
        defines = self._defines | self._product.sums(tile)
        if not self._product.in_parts:
            self._launch_product(job, planes, job.weight, count, tile, defines)
            return
        depth = math.prod(job.weight.shape[1:])
        defines |= {"TW": "f32", "W_SHIFT(m)": ""}
        defines["PART_CHANNELS"] = PART // math.prod(job.geometry.window)
        weight = Matrices(job.weight, depth, 1, (own * depth,))
        arguments = (*job.shifts, *job.tail, np.int64(job.groups))
        stack = (job.groups,)
        with self._product.widened(job.stream, weight, tile, own, depth, stack, arguments) as wide:
            self._launch_product(job, planes, wide.buffer, count, tile, defines)

    def _launch_product(
        self,
        job: Job,
        planes: DeviceBuffer,
        weight: DeviceBuffer,
        count: int,
        tile: Tile,
        defines: dict[str, object],
    ) -> None:
        own = job.filters // job.groups
        kernel = self._planes_kernel("multiply_planes", defines)
        kernel.launch(
            job.stream,
            (-(-own // tile.rows), -(-count // tile.panel), job.images * job.groups),
            (1, 1, 1),
            [
                planes.handle,
                weight.handle,
                job.y.handle,
                *int32s(job.channels, job.filters, job.groups),
                int4(job.geometry.padded),
                int4(job.geometry.output),
                int4(job.geometry.window),
                int4(job.geometry.dilations),
                *job.shifts,
                *job.tail,
            ],
        )

    # ------------------------------------------------------------ unfolded

    def _unfolded(self, job: Job) -> None:
        product = self._product
        rows = job.filters // job.groups
        depth = math.prod(job.weight.shape[1:])
        columns = math.prod(job.geometry.output)
        tile = product.tile_for(rows, columns)
        on_cpu = self._bench.device.is_cpu
        panel = tile.panel if on_cpu else columns
        matrix = -(-columns // panel) * depth * panel
        nbytes = matrix * job.groups * ELEMENTS[product.packed_type].nbytes
        together = max(1, min(job.images, _MOST_UNFOLDED // max(nbytes, 1)))
        shape = (together * job.groups * matrix,)
        left = Matrices(job.weight, depth, 1, (0, rows * depth))
        steps = (job.groups * matrix, matrix)
        with self._bench.scratch(job.stream, shape, product.packed_type) as packed:
            right = Packed(packed, tile, steps) if on_cpu else Matrices(packed, columns, 1, steps)
            for first in range(0, job.images, together):
                count = min(together, job.images - first)
                self._unfold(job, packed, first, count, panel)
                product.run(
                    job.stream,
                    left,
                    right,
                    job.y,
                    rows,
                    columns,
                    depth,
                    (count, job.groups),
                    (*job.shifts, *job.tail, np.int64(job.groups)),
                    first * job.filters * columns,
                )

    def _unfold(self, job: Job, packed: DeviceBuffer, first: int, count: int, panel: int) -> None:
        start = first * job.x.shape[1] * math.prod(job.geometry.input)
        panels = -(-math.prod(job.geometry.output) // panel)
        kernel = self._bench.kernel("windows.cl", "unfold", self._defines, head=self._tail.head)
        kernel.launch(
            job.stream,
            (panel, panels, count * job.x.shape[1]),
            None,
            [
                job.x.handle,
                packed.handle,
                np.int64(start),
                *int32s(job.channels),
                *job.geometry.arguments(),
                *int32s(panel),
                *job.shifts,
            ],
        )


def int32s(*values: int) -> list[Any]:
    """Kernel arguments of type int."""
    return [np.int32(value) for value in values]
