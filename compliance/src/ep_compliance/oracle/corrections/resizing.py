"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_compliance.oracle.precision import Array
from ep_core.types import DataType

__all__: list[str] = []


@correct("Resize", since=11, reason="pytorch_half_pixel to length 1 isn't coordinate 0")
def resize(call: NodeCall) -> Sequence[Any] | None:
    """An axis that shrinks to one element takes the first; the others are left to the reference."""
    if call.attr("coordinate_transformation_mode", "half_pixel") != "pytorch_half_pixel":
        return None
    x, sizes = call.inputs[0], _target_sizes(call)
    ones = [a for a, size in enumerate(sizes) if size == 1 and x.shape[a] > 1]
    if not ones or call.attr("antialias", 0):
        return None
    first = tuple(slice(0, 1) if axis in ones else slice(None) for axis in range(x.ndim))
    return [_resized(call, np.ascontiguousarray(x[first]), sizes, ones)]


def _target_sizes(call: NodeCall) -> list[int]:
    x, scales, sizes = call.inputs[0], call.input(2), call.input(3)
    named = call.attr("axes")
    axes = range(x.ndim) if named is None else [axis % x.ndim for axis in named]
    target = list(x.shape)
    for place, axis in enumerate(axes):
        if sizes is not None and sizes.size:
            target[axis] = int(sizes[place])
        else:
            target[axis] = math.floor(x.shape[axis] * float(scales[place]))
    return target


def _resized(call: NodeCall, x: Array, sizes: list[int], ones: list[int]) -> Array:
    """The reference's answer for what is left, every axis named, scales where they were given."""
    scales = call.input(2)
    if scales is not None and scales.size and call.attr("axes") is None:
        factors = np.asarray(scales, np.float32).copy()
        factors[ones] = 1.0
        return _by_reference(call, {"x": x, "scales": factors})
    return _by_reference(call, {"x": x, "sizes": np.asarray(sizes, np.int64)})


def _by_reference(call: NodeCall, feeds: dict[str, Array]) -> Array:
    """The same Resize of `x` to other scales or sizes, one for each axis."""
    node = onnx.NodeProto()
    node.CopyFrom(call.node)
    kept = [a for a in node.attribute if a.name not in ("axes", "keep_aspect_ratio_policy")]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.input[:] = ["x", "", "scales"] if "scales" in feeds else ["x", "", "", "sizes"]
    infos = [
        onnx.helper.make_tensor_value_info(name, int(DataType.from_numpy(value.dtype)), None)
        for name, value in feeds.items()
    ]
    result = [onnx.ValueInfoProto(name=node.output[0])]
    graph = onnx.helper.make_graph([node], "one", infos, result)
    opset = onnx.helper.make_opsetid("", call.version)
    model = onnx.helper.make_model(graph, opset_imports=[opset])
    outputs = iter(ReferenceEvaluator(model).run(None, feeds))
    return np.asarray(next(outputs))


@correct("Resize", reason="types that aren't float fail, and version 10 is missing")
def nearest(call: NodeCall) -> Sequence[Any] | None:
    """Nearest only moves elements: ask the reference which, axis by axis, and move them."""
    x = call.inputs[0]
    if call.attr("mode", "nearest") != "nearest" or x.dtype.kind == "f":
        return None
    if call.version < 11:
        return [_enlarged(x, call.inputs[1])]
    for axis, size in enumerate(_target_sizes(call)):
        ramp = np.arange(x.shape[axis], dtype=np.float64)
        x = np.take(x, _moved(call, ramp, axis, size), axis=axis)
    return [x]


def _moved(call: NodeCall, ramp: Array, axis: int, size: int) -> Array:
    """Which input element each output element of an axis shows."""
    scales = call.input(2)
    if scales is not None and scales.size:
        named = call.attr("axes")
        rank = call.inputs[0].ndim
        axes = list(range(rank)) if named is None else [a % rank for a in named]
        scale = float(scales[axes.index(axis)]) if axis in axes else 1.0
        kept: dict[str, Array] = {"scales": np.array([scale], np.float32)}
    else:
        kept = {"sizes": np.array([size], np.int64)}
    return _by_reference(call, {"x": ramp, **kept}).astype(np.int64)


@correct("Upsample", reason="version 1 fails, and bilinear is wrong")
def upsample(call: NodeCall) -> Sequence[Any] | None:
    """Coordinates are output places over factors; nearest cuts them off."""
    x = call.inputs[0]
    if call.version == 1:
        scales = np.array([1, 1, call.attr("height_scale"), call.attr("width_scale")])
    else:
        scales = np.asarray(call.inputs[1] if call.version >= 9 else call.attr("scales"))
    if call.attr("mode", "nearest") == "nearest":
        return [_enlarged(x, scales)]
    return [_interpolated(x, scales)] if x.dtype.kind == "f" else None


@correct("Resize", until=10, reason="version 10 is missing")
def resize_10(call: NodeCall) -> Sequence[Any]:
    """Upsample under another name."""
    x, scales = call.inputs
    if call.attr("mode", "nearest") == "nearest":
        return [_enlarged(x, scales)]
    return [_interpolated(x, scales)]


def _enlarged(x: Array, scales: Array) -> Array:
    for axis, scale in enumerate(np.asarray(scales, np.float64)):
        places = np.floor(np.arange(math.floor(x.shape[axis] * scale)) / scale)
        x = np.take(x, places.astype(np.int64), axis=axis)
    return x


def _interpolated(x: Array, scales: Array) -> Array:
    for axis, scale in enumerate(np.asarray(scales, np.float64)):
        length = x.shape[axis]
        at = np.minimum(np.arange(math.floor(length * scale)) / scale, length - 1)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, length - 1)
        weight = (at - low).reshape([-1] + [1] * (x.ndim - axis - 1))
        x = np.take(x, low, axis=axis) * (1 - weight) + np.take(x, high, axis=axis) * weight
    return x
