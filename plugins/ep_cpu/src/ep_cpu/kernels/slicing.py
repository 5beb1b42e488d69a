"""Cutting tensors out and growing them: Slice, Pad, CenterCropPad, Trilu, ReverseSequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, check_axis, int_list, scalar, text, unit_axes
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def slice_view(
    x: Array, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> Array:
    """A view of `x`; Python's slices clamp exactly as the operator asks for."""
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise RunError(
            "starts, ends, axes and steps of Slice must have one length",
            got=(len(starts), len(ends), len(axes), len(steps)),
        )
    if 0 in steps:
        raise RunError("a step of Slice must not be 0", got=steps)
    parts: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(unit_axes(axes, x.ndim), starts, ends, steps, strict=True):
        parts[axis] = slice(start, end, step)
    view: Array = x[tuple(parts)]
    return view


@TABLE.kernel("Slice", until=9, view=True)
def _slice_attributes(node: KernelNode) -> Kernel:
    starts = [int(value) for value in node.attr("starts")]
    ends = [int(value) for value in node.attr("ends")]
    axes = [int(value) for value in node.attr("axes", range(len(starts)))]
    return lambda x: slice_view(x, starts, ends, axes, [1] * len(starts))


@TABLE.kernel("Slice", since=10, view=True)
def _slice(node: KernelNode) -> Kernel:
    def run(
        x: Array,
        starts: Array,
        ends: Array,
        axes: Array | None = None,
        steps: Array | None = None,
    ) -> Array:
        first = int_list(starts)
        along = list(range(len(first))) if axes is None else int_list(axes)
        stride = [1] * len(first) if steps is None else int_list(steps)
        return slice_view(x, first, int_list(ends), along, stride)

    return run


# ---------------------------------------------------------------- pad


_NUMPY_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def pad(x: Array, before: list[int], after: list[int], mode: str, value: Any) -> Array:
    """Grow `x` at both ends of each axis; a negative amount crops first.

    `value` is what the mode "constant" fills in.
    """
    crop = tuple(
        slice(max(0, -low), length - max(0, -high))
        for low, high, length in zip(before, after, x.shape, strict=True)
    )
    if any(part.stop < part.start for part in crop):
        raise RunError(f"pads {before} and {after} crop more than shape {x.shape} has")
    inner = x[crop]
    low = [max(0, amount) for amount in before]
    high = [max(0, amount) for amount in after]
    if mode == "constant":
        shape = [a + n + b for a, n, b in zip(low, inner.shape, high, strict=True)]
        grown = np.full(shape, value, dtype=x.dtype)
        grown[tuple(slice(a, a + n) for a, n in zip(low, inner.shape, strict=True))] = inner
        return grown
    if mode not in _NUMPY_MODES:
        raise RunError("unknown mode of Pad", expected="constant, reflect, edge or wrap", got=mode)
    widths = list(zip(low, high, strict=True))
    for axis, (a, b) in enumerate(widths):
        if inner.shape[axis] == 0 and a + b > 0:
            raise RunError(f"axis {axis} is empty: nothing to fill in with mode {mode}")
    return np.pad(inner, widths, mode=_NUMPY_MODES[mode])  # type: ignore[call-overload, no-any-return]


def _split_pads(pads: list[int], axes: tuple[int, ...], rank: int) -> tuple[list[int], list[int]]:
    if len(pads) != 2 * len(axes):
        raise RunError("wrong number of pads", expected=2 * len(axes), got=len(pads))
    before = [0] * rank
    after = [0] * rank
    for index, axis in enumerate(axes):
        before[axis] = pads[index]
        after[axis] = pads[index + len(axes)]
    return before, after


@TABLE.kernel("Pad", until=10)
def _pad_attributes(node: KernelNode) -> Kernel:
    amounts = [int(value) for value in node.attr("pads" if node.version >= 2 else "paddings")]
    mode = text(node.attr("mode", "constant"))
    value = float(node.attr("value", 0.0))

    def run(x: Array) -> Array:
        before, after = _split_pads(amounts, tuple(range(x.ndim)), x.ndim)
        return pad(x, before, after, mode, value)

    return run


@TABLE.kernel("Pad", since=11)
def _pad(node: KernelNode) -> Kernel:
    mode = text(node.attr("mode", "constant"))

    def run(x: Array, pads: Array, value: Array | None = None, axes: Array | None = None) -> Array:
        along = tuple(range(x.ndim)) if axes is None else unit_axes(int_list(axes), x.ndim)
        before, after = _split_pads(int_list(pads), along, x.ndim)
        if value is None or value.size == 0:
            fill: Any = "" if x.dtype == object else np.zeros((), x.dtype)
        else:
            fill = value.reshape(-1)[0]
        return pad(x, before, after, mode, fill)

    return run


@TABLE.kernel("CenterCropPad", since=18)
def _center_crop_pad(node: KernelNode) -> Kernel:
    axes = node.attr("axes")

    def run(x: Array, shape: Array) -> Array:
        along = unit_axes(range(x.ndim) if axes is None else axes, x.ndim)
        lengths = int_list(shape)
        if len(lengths) != len(along):
            raise RunError("wrong length of shape", expected=len(along), got=lengths)
        before = [0] * x.ndim
        after = [0] * x.ndim
        for axis, length in zip(along, lengths, strict=True):
            extra = length - x.shape[axis]
            # An odd difference leaves the smaller part in front, whether it is cut or added.
            front = extra // 2 if extra >= 0 else -(-extra // 2)
            before[axis] = front
            after[axis] = extra - front
        return pad(x, before, after, "constant", nothing(x.dtype))

    return run


# ---------------------------------------------------------------- triangles and reversal


def nothing(dtype: np.dtype[Any]) -> Array:
    """What fills the places without a value: zero, or the empty string."""
    return np.full((), "" if dtype == np.dtype(object) else 0, dtype)


@TABLE.kernel("Trilu", since=14)
def _trilu(node: KernelNode) -> Kernel:
    upper = bool(node.attr("upper", 1))

    def run(x: Array, k: Array | None = None) -> Array:
        if x.ndim < 2:
            raise RunError("Trilu needs matrices", got=f"shape {x.shape}")
        rows, columns = x.shape[-2:]
        # Offsets beyond the matrix mean the same as its edge; clamping keeps them small.
        offset = 0 if k is None else max(-rows, min(columns, int(scalar(k, "k"))))
        mask = np.tri(rows, columns, offset - 1 if upper else offset, dtype=np.bool_)
        kept = ~mask if upper else mask
        return np.where(kept, x, nothing(x.dtype))

    return run


@TABLE.kernel("ReverseSequence", since=10)
def _reverse_sequence(node: KernelNode) -> Kernel:
    batch_axis = int(node.attr("batch_axis", 1))
    time_axis = int(node.attr("time_axis", 0))

    def run(x: Array, lengths: Array) -> Array:
        batch = check_axis(batch_axis, x.ndim)
        time = check_axis(time_axis, x.ndim)
        if {batch, time} != {0, 1}:
            raise RunError("batch_axis and time_axis must be 0 and 1", got=(batch, time))
        counts = int_list(lengths)
        if len(counts) != x.shape[batch]:
            raise RunError(
                "wrong number of sequence lengths", expected=x.shape[batch], got=len(counts)
            )
        longest = x.shape[time]
        result = x.copy()
        source = x.swapaxes(0, batch)
        target = result.swapaxes(0, batch)
        for index, count in enumerate(counts):
            if not 0 <= count <= longest:
                raise RunError(
                    "sequence length out of range", expected=f"0 to {longest}", got=count
                )
            target[index, :count] = source[index, :count][::-1]
        return result

    return run
