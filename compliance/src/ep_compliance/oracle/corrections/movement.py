"""Operators that move data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_compliance.oracle.precision import Array

__all__: list[str] = []


@correct("Flatten", reason="tensors without elements fail")
def flatten(call: NodeCall) -> Sequence[Any]:
    """Two dimensions: those before `axis`, and the others."""
    x = call.inputs[0]
    axis = call.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return [x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))]


@correct("ScatterElements", since=16, reason="min and max lose NaN")
def scatter_elements(call: NodeCall) -> Sequence[Any] | None:
    """Updates one by one, in order; `min` and `max` keep NaN as numpy's do."""
    how = call.attr("reduction", "none")
    if how not in ("min", "max"):
        return None
    data, indices, updates = call.inputs
    axis = call.attr("axis", 0)
    combine = np.minimum if how == "min" else np.maximum
    result = data.copy()
    for place in np.ndindex(*indices.shape):
        target = list(place)
        target[axis] = int(indices[place])
        result[tuple(target)] = combine(result[tuple(target)], updates[place])
    return [result]


@correct("Pad", reason="negative pads fail, and narrow types and strings are padded with 0")
def pad(call: NodeCall) -> Sequence[Any] | None:
    """Crop by the negative pads, then pad by the others, element by element through indices."""
    x = call.inputs[0]
    pads, value = _pads(call)
    mode = call.attr("mode", "constant")
    if x.size == 0 and mode != "constant":
        return None
    before, after = _by_axis(pads, call.input(3), x.ndim)
    places = np.arange(x.size).reshape(x.shape)
    slices = tuple(
        slice(max(0, -low), length - max(0, -high))
        for low, high, length in zip(before, after, x.shape, strict=True)
    )
    widths = [(max(0, low), max(0, high)) for low, high in zip(before, after, strict=True)]
    if mode == "constant":
        places = np.pad(places[slices], widths, constant_values=x.size)
    else:
        places = np.pad(places[slices], widths, mode=mode)
    fill = np.empty(1, x.dtype)
    fill[0] = value
    return [np.concatenate([x.reshape(-1), fill])[places]]


def _pads(call: NodeCall) -> tuple[list[int], Any]:
    x = call.inputs[0]
    if call.version < 11:
        pads = call.attr("pads", call.attr("paddings", []))
        return list(pads), call.attr("value", 0.0)
    given = call.input(2)
    nothing: Any = "" if x.dtype == object else 0
    value = nothing if given is None else given.reshape(-1)[0]
    return [int(p) for p in call.inputs[1]], value


def _by_axis(pads: list[int], axes: Array | None, rank: int) -> tuple[list[int], list[int]]:
    named = range(rank) if axes is None else [int(axis) % rank for axis in axes]
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(named):
        before[axis], after[axis] = pads[place], pads[place + len(pads) // 2]
    return before, after


@correct("Gather", reason="right, but ONNX Runtime errs on strings")
def gather(call: NodeCall) -> Sequence[Any]:
    """Slices by index along one axis."""
    return [np.take(call.inputs[0], call.inputs[1], axis=call.attr("axis", 0))]


@correct("GatherElements", reason="negative axes fail")
def gather_elements(call: NodeCall) -> Sequence[Any]:
    """Each index replaces its own place along one axis."""
    x, indices = call.inputs
    axis = call.attr("axis", 0)
    result = np.empty(indices.shape, x.dtype)
    for place in np.ndindex(*indices.shape):
        source = list(place)
        source[axis] = int(indices[place])
        result[place] = x[tuple(source)]
    return [result]


@correct("Where", reason="right, but ONNX Runtime loses the sign of zero")
def where(call: NodeCall) -> Sequence[Any]:
    """`x` where the condition holds, else `y`."""
    condition, x, y = call.inputs
    return [np.where(condition, x, y)]


@correct("Scatter", reason="there is no implementation")
def scatter(call: NodeCall) -> Sequence[Any]:
    """ScatterElements without a reduction."""
    data, indices, updates = call.inputs
    axis = call.attr("axis", 0)
    result = data.copy()
    for place in np.ndindex(*indices.shape):
        target = list(place)
        target[axis] = int(indices[place])
        result[tuple(target)] = updates[place]
    return [result]


@correct("OneHot", reason="bools and strings fail")
def one_hot(call: NodeCall) -> Sequence[Any]:
    """The second value at each index, the first elsewhere and for indices out of range."""
    indices, depth, values = call.inputs
    count = int(np.reshape(depth, ()))
    axis = call.attr("axis", -1)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    whole = np.asarray(indices).astype(np.int64)
    whole = np.where(whole < 0, whole + count, whole)
    shape = [1] * (indices.ndim + 1)
    shape[axis] = count
    hit = np.expand_dims(whole, axis) == np.arange(count).reshape(shape)
    return [values[hit.astype(np.int64)]]
