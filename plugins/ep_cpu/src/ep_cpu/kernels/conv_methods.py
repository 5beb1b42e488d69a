"""Ways to compute one convolution with numpy, for one sample each. No rows, no attributes.

All but the first work on *phase images*: with strides, the padded input is split into one image
per remainder, so that neighbouring windows read neighbouring elements. An image is then treated as
flat, and a window's element at a given place is a shifted run of it. Runs also cross line ends;
what is computed there is dropped at the end, which costs less than many short runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from ep_cpu.kernels.support import Array
from ep_cpu.kernels.windows import Window, window_view

__all__ = ["Filters", "Phases", "by_columns", "by_places", "by_windows", "depthwise", "pointwise"]

# Elements of copied windows multiplied at once, and of a depthwise working set; measured on cores
# with 1 MiB of L2 cache, and flat around the optimum.
_COLUMN_ELEMENTS = 1 << 19
_DEPTHWISE_ELEMENTS = 1 << 14

Place = tuple[int, ...]


class Filters:
    """A weight [M, C / groups, *kernel] with the layouts the methods want, each made once."""

    def __init__(self, weight: Array, groups: int) -> None:
        self.weight = np.ascontiguousarray(weight)
        self.groups = groups
        self.count = weight.shape[0]
        self.kernel = tuple(weight.shape[2:])

    @cached_property
    def matrices(self) -> Array:
        """[groups, M / groups, C / groups * places]."""
        return self.weight.reshape(self.groups, self.count // self.groups, -1)

    @cached_property
    def by_place(self) -> Array:
        """[*kernel, M, C / groups], contiguous."""
        order = (*range(2, self.weight.ndim), 0, 1)
        return np.ascontiguousarray(self.weight.transpose(order))


class Phases:
    """The phase images of one padded sample [C, *spatial].

    Attributes:
        steps: distance of neighbours in a flat image, per spatial axis.
        run: length of the flat run that holds an element of every window.
        lines: shape of a full-width result, of which only `window.output` counts.
    """

    def __init__(self, padded: Array, window: Window) -> None:
        self.window = window
        strides = window.strides
        lengths = [
            -(-length // stride) for length, stride in zip(padded.shape[1:], strides, strict=True)
        ]
        self.channels = padded.shape[0]
        self.steps = tuple(math.prod(lengths[axis + 1 :]) for axis in range(len(lengths)))
        last = zip(window.output, self.steps, strict=True)
        self.run = sum((count - 1) * step for count, step in last) + 1
        self.lines = (window.output[0], *lengths[1:])
        self._lengths = lengths
        self._padded = padded
        self._images: dict[Place, Array] = {}
        if all(stride == 1 for stride in strides):
            flat = np.ascontiguousarray(padded).reshape(self.channels, -1)
            self._images[(0,) * len(strides)] = flat

    @property
    def single(self) -> bool:
        """True if there is one image only."""
        return all(stride == 1 for stride in self.window.strides)

    def image(self, phase: Place) -> Array:
        """The flat image [C, length] of one remainder."""
        found = self._images.get(phase)
        if found is None:
            whole = np.zeros((self.channels, *self._lengths), self._padded.dtype)
            steps = zip(phase, self.window.strides, strict=True)
            part = self._padded[(slice(None), *(slice(at, None, by) for at, by in steps))]
            whole[(slice(None), *(slice(length) for length in part.shape[1:]))] = part
            found = whole.reshape(self.channels, -1)
            self._images[phase] = found
        return found

    def locate(self, place: Place) -> tuple[Place, int]:
        """The image that holds the window elements at `place`, and where their run starts."""
        window = self.window
        offsets = [at * by for at, by in zip(place, window.dilations, strict=True)]
        pairs = list(zip(offsets, window.strides, strict=True))
        phase = tuple(offset % stride for offset, stride in pairs)
        starts = (offset // stride for offset, stride in pairs)
        return phase, sum(at * step for at, step in zip(starts, self.steps, strict=True))

    def places(self) -> Iterator[Place]:
        """All elements of the kernel."""
        return itertools.product(*map(range, self.window.kernel))

    def full(self, rows: int) -> Array:
        """Memory [rows, *lines] for a result at full width."""
        return np.empty((rows, *self.lines), self._padded.dtype)

    def kept(self, full: Array) -> Array:
        """The part of a full-width result that counts: [rows, *output]."""
        return full[(slice(None), *(slice(count) for count in self.window.output))]


def _store(result: Array, bias: Array | None, out: Array) -> None:
    """Write result [M, *output] plus bias [M] into `out`."""
    if bias is None:
        np.copyto(out, result)
    else:
        np.add(result, bias.reshape(-1, *[1] * (out.ndim - 1)), out=out)


def pointwise(x: Array, filters: Filters, bias: Array | None, window: Window, out: Array) -> None:
    """A kernel of one element: one product mixes the channels of x [C, *spatial]."""
    steps = tuple(slice(None, None, stride) for stride in window.strides)
    positions = x[(slice(None), *steps)].reshape(x.shape[0], -1)
    result = out.reshape(filters.count, -1)
    np.matmul(filters.matrices[0], positions, out=result)
    if bias is not None:
        np.add(result, bias[:, None], out=result)


def depthwise(phases: Phases, filters: Filters, bias: Array | None, out: Array) -> None:
    """One filter set per channel: a weighted sum of runs, some channels at a time."""
    channels = phases.channels
    multiplier = filters.count // channels
    factors = filters.by_place.reshape(-1, channels, multiplier, 1)
    located = [phases.locate(place) for place in phases.places()]
    full = phases.full(channels * multiplier).reshape(channels, multiplier, -1)
    totals = full[:, :, : phases.run]
    step = max(1, _DEPTHWISE_ELEMENTS // (phases.run * multiplier))
    scratch = np.empty((min(step, channels), multiplier, phases.run), out.dtype)
    for start in range(0, channels, step):
        part = slice(start, start + step)
        total = totals[part]
        product = scratch[: total.shape[0]]
        target = total
        for (phase, begin), factor in zip(located, factors, strict=True):
            run = phases.image(phase)[part, None, begin : begin + phases.run]
            np.multiply(run, factor[part], out=target)
            if target is product:
                np.add(total, product, out=total)
            target = product
    _store(phases.kept(full.reshape(filters.count, *phases.lines)), bias, out)


def by_places(phases: Phases, filters: Filters, bias: Array | None, out: Array) -> None:
    """Multiply first, then add up runs, one per place. For fewer filters than channels."""
    count = filters.count
    full = phases.full(count)
    total = full.reshape(count, -1)[:, : phases.run]
    by_phase: dict[Place, list[tuple[Place, int]]] = {}
    for place in phases.places():
        phase, begin = phases.locate(place)
        by_phase.setdefault(phase, []).append((place, begin))
    first = True
    for phase, members in by_phase.items():
        matrix = np.concatenate([filters.by_place[place] for place, _ in members])
        products = np.matmul(matrix, phases.image(phase))
        for index, (_, begin) in enumerate(members):
            rows = products[index * count : (index + 1) * count, begin : begin + phases.run]
            if first:
                np.copyto(total, rows)
                first = False
            else:
                np.add(total, rows, out=total)
    _store(phases.kept(full), bias, out)


def by_columns(phases: Phases, filters: Filters, bias: Array | None, out: Array) -> None:
    """Copy the runs of all places into columns and multiply once, some lines at a time."""
    groups = filters.groups
    places = math.prod(filters.kernel)
    depth = phases.channels // groups * places
    line = phases.steps[0]
    lines = phases.window.output[0]
    tail = phases.run - (lines - 1) * line
    step = min(lines, max(1, _COLUMN_ELEMENTS // (depth * groups * line)))
    full = phases.full(filters.count)
    flat = full.reshape(groups, filters.count // groups, -1)
    columns = np.empty((phases.channels, *filters.kernel, step * line), out.dtype)
    for start in range(0, lines, step):
        count = min(step, lines - start)
        run = (count - 1) * line + tail
        part = columns[..., :run]
        _fill_columns(phases, part, start * line)
        stacked = columns.reshape(groups, depth, -1)[:, :, :run]
        target = flat[:, :, start * line : start * line + run]
        np.matmul(filters.matrices, stacked, out=target)
    _store(phases.kept(full), bias, out)


def _fill_columns(phases: Phases, columns: Array, begin: int) -> None:
    """Fill columns [C, *kernel, run] with the runs that start `begin` later than the first."""
    run = columns.shape[-1]
    if not phases.single:
        for place in phases.places():
            phase, at = phases.locate(place)
            at += begin
            target: Any = (slice(None), *place)
            columns[target] = phases.image(phase)[:, at : at + run]
        return
    image = phases.image((0,) * len(phases.window.kernel))[:, begin:]
    size = image.itemsize
    hops = zip(phases.steps, phases.window.dilations, strict=True)
    strides = (image.strides[0], *(step * by * size for step, by in hops), size)
    view = np.lib.stride_tricks.as_strided(image, columns.shape, strides, writeable=False)
    np.copyto(columns, view)


def by_windows(
    padded: Array, filters: Filters, bias: Array | None, window: Window, out: Array
) -> None:
    """Copy whole windows, one per row, and multiply: for long kernels and few windows."""
    groups = filters.groups
    rank = len(window.kernel)
    count = math.prod(window.output)
    view = window_view(padded, window)
    lead = (groups, padded.shape[0] // groups)
    strides = (view.strides[0] * lead[1], *view.strides)
    split = np.lib.stride_tricks.as_strided(
        view, (*lead, *view.shape[1:]), strides, writeable=False
    )
    order = (0, *range(2 + rank, 2 + 2 * rank), *range(1, 2 + rank))
    rows = split.transpose(order).reshape(groups, count, -1)
    result = np.matmul(filters.matrices, rows.transpose(0, 2, 1))
    _store(result.reshape(filters.count, *window.output), bias, out)
