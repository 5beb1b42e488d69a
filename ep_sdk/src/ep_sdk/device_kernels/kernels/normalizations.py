"""Softmax and the normalisations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS
from ep_sdk.device_kernels.expression import Expression, Operation, literal
from ep_sdk.device_kernels.kernels.elementwise import ElementwiseKernel, dtype_of, elementwise_row
from ep_sdk.device_kernels.kernels.reductions import GROUP
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape, positive_axis

__all__: list[str] = []


# ---------------------------------------------------------------- softmax


def _softmax_of(node: KernelNode, formula: str) -> Kernel:
    """Along one axis from version 13 on; before it over all axes from `axis` on."""
    bench = Bench(node)
    flattens = node.version < 13
    named = node.attr("axis", 1 if flattens else -1)
    defines: dict[str, object] = {
        "T": ELEMENTS[dtype_of(node, 0)].code,
        "SOFTMAX(e, total)": formula,
    }

    def softmax(
        stream: DeviceStream, x: DeviceBuffer, *, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        rank = len(x.shape)
        axis = rank if named == rank and flattens else positive_axis(named, rank)
        end = rank if flattens else axis + 1
        outer, length = math.prod(x.shape[:axis]), math.prod(x.shape[axis:end])
        inner = math.prod(x.shape[end:])
        with bench.writing(stream, x.shape, x.dtype, out) as y:
            arguments = [x.handle, y.handle, np.int64(length)]
            if inner == 1:
                kernel = bench.kernel("rows.cl", "softmax_rows", defines)
                kernel.launch(stream, (outer * GROUP,), (GROUP,), arguments)
            else:
                kernel = bench.kernel("rows.cl", "softmax_columns", defines)
                kernel.launch(stream, (inner, outer), None, arguments)
        return y

    return softmax


@TABLE.kernel("Softmax", types={"T": FLOATS}, writes_out=True)
def _softmax(node: KernelNode) -> Kernel:
    return _softmax_of(node, "(exp(e) / (total))")


@TABLE.kernel("LogSoftmax", types={"T": FLOATS}, writes_out=True)
def _log_softmax(node: KernelNode) -> Kernel:
    return _softmax_of(node, "((e) - log(total))")


# ---------------------------------------------------------------- batch normalisation


def _along_channels(shape: Shape, operands: Any) -> Shape:
    """A vector over channels, which are the second axis of the first operand."""
    rank = len(operands[0])
    return (*shape, *(1 for _ in range(rank - 2)))


def _inference(node: KernelNode) -> str | None:
    if any(node.wants_output(number) for number in range(1, 5)):
        return "statistics are asked for"
    if node.attr("training_mode", 0):
        return "training_mode"
    return None


@elementwise_row("BatchNormalization", since=9, types={"T": FLOATS}, predicate=_inference)
def _batch_normalization(node: KernelNode) -> Kernel:
    """Elementwise, and so part of chains."""
    wide = DataType.DOUBLE if dtype_of(node, 0) is DataType.DOUBLE else DataType.FLOAT
    epsilon = literal(node.attr("epsilon", 1e-5), wide)
    aligns = (None, *([_along_channels] * 4))
    text = f"(({{0}} - {{3}}) / sqrt({{4}} + {epsilon}) * {{1}} + {{2}})"
    operation = Operation(text, (0, 1, 2, 3, 4), dtype_of(node, 0), aligns)
    kinds = tuple(dtype_of(node, number) for number in range(5))
    return ElementwiseKernel(Bench(node), Expression(kinds, (operation,)), range(5))


# ---------------------------------------------------------------- over rows


class _Normalizer:
    """Launches `normalize_rows`."""

    def __init__(self, node: KernelNode, scale_at: str, *, centered: bool, bias: bool) -> None:
        self.bench = Bench(node)
        dtype = dtype_of(node, 0)
        self._defines: dict[str, object] = {
            "T": ELEMENTS[dtype].code,
            "TW": ELEMENTS[dtype_of(node, 1)].code,
            "SCALE_AT(row, i)": scale_at,
            "STATISTICS": "",
            "KEEP_STATISTICS": "",
        }
        if centered:
            self._defines["CENTERED"] = 1
        if bias:
            self._defines["HAS_BIAS"] = 1
        epsilon = node.attr("epsilon", 1e-5)
        is_double = dtype is DataType.DOUBLE
        self._epsilon = np.float64(epsilon) if is_double else np.float32(epsilon)

    def run(
        self,
        stream: DeviceStream,
        x: DeviceBuffer,
        y: DeviceBuffer,
        scale: DeviceBuffer,
        bias: DeviceBuffer | None,
        length: int,
        channels: int = 1,
        plane: int = 1,
    ) -> None:
        """Normalise rows of `length`; see `SCALE_AT` for channels and plane."""
        if not math.prod(x.shape):
            return
        kernel = self.bench.kernel("rows.cl", "normalize_rows", self._defines)
        rows = math.prod(x.shape) // length
        second = scale if bias is None else bias
        kernel.launch(
            stream,
            (rows * GROUP,),
            (GROUP,),
            [
                x.handle,
                y.handle,
                scale.handle,
                second.handle,
                np.int64(length),
                self._epsilon,
                np.int64(channels),
                np.int64(plane),
            ],
        )


def _over_trailing_axes(node: KernelNode, *, centered: bool) -> Kernel:
    has_bias = node.has_input(2)
    normalizer = _Normalizer(node, "i", centered=centered, bias=has_bias)
    named = node.attr("axis", -1)

    def normalize(
        stream: DeviceStream,
        x: DeviceBuffer,
        scale: DeviceBuffer,
        bias: DeviceBuffer | None = None,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        axis = positive_axis(named, len(x.shape))
        length = math.prod(x.shape[axis:])
        for item in (scale, bias):
            if item is not None and math.prod(item.shape) != length:
                raise RunError(
                    "scale or bias don't have the shape of what is normalised",
                    expected=x.shape[axis:],
                    got=item.shape,
                )
        with normalizer.bench.writing(stream, x.shape, x.dtype, out) as y:
            normalizer.run(stream, x, y, scale, bias, length)
        return y

    return normalize


def _whole_scale(node: KernelNode) -> str | None:
    """Scale and bias cover what is normalised, and no statistics are asked for."""
    if node.wants_output(1) or node.wants_output(2):
        return "statistics are asked for"
    kind = getattr(node.input_types[0], "shape", None)
    if kind is None:
        return "the rank of the input isn't known"
    axis = node.attr("axis", -1) % len(kind)
    for position in (1, 2):
        if not node.has_input(position):
            continue
        shape = getattr(node.input_types[position], "shape", None)
        if shape is None or shape != kind[axis:]:
            return "scale or bias broadcast, or their shapes aren't known"
    return None


@TABLE.kernel(
    "LayerNormalization", since=17, types={"T": FLOATS}, writes_out=True, predicate=_whole_scale
)
def _layer_normalization(node: KernelNode) -> Kernel:
    return _over_trailing_axes(node, centered=True)


@TABLE.kernel(
    "RMSNormalization", since=23, types={"T": FLOATS}, writes_out=True, predicate=_whole_scale
)
def _rms_normalization(node: KernelNode) -> Kernel:
    return _over_trailing_axes(node, centered=False)


@TABLE.kernel("InstanceNormalization", since=6, types={"T": FLOATS}, writes_out=True)
def _instance_normalization(node: KernelNode) -> Kernel:
    normalizer = _Normalizer(node, "row % channels", centered=True, bias=True)

    def normalize(
        stream: DeviceStream,
        x: DeviceBuffer,
        scale: DeviceBuffer,
        bias: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        _check_channels(x.shape, scale, bias)
        with normalizer.bench.writing(stream, x.shape, x.dtype, out) as y:
            normalizer.run(stream, x, y, scale, bias, math.prod(x.shape[2:]), x.shape[1])
        return y

    return normalize


@TABLE.kernel("GroupNormalization", since=21, types={"T": FLOATS}, writes_out=True)
def _group_normalization(node: KernelNode) -> Kernel:
    groups = node.attr("num_groups")
    # `channels` is the number in a group; rows go through the groups of all images.
    scale_at = f"(row % {groups} * channels + i / plane)"
    normalizer = _Normalizer(node, scale_at, centered=True, bias=True)

    def normalize(
        stream: DeviceStream,
        x: DeviceBuffer,
        scale: DeviceBuffer,
        bias: DeviceBuffer,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        _check_channels(x.shape, scale, bias)
        if x.shape[1] % groups:
            raise RunError("channels aren't a multiple of num_groups", got=(x.shape[1], groups))
        own = x.shape[1] // groups
        plane = math.prod(x.shape[2:])
        with normalizer.bench.writing(stream, x.shape, x.dtype, out) as y:
            normalizer.run(stream, x, y, scale, bias, own * plane, own, plane)
        return y

    return normalize


def _check_channels(shape: Shape, *vectors: DeviceBuffer) -> None:
    for item in vectors:
        if item.shape != shape[1:2]:
            raise RunError("one number for each channel", expected=shape[1:2], got=item.shape)
