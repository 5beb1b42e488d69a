"""Convolution and pooling over one or two axes, and Resize.

Their steps are written for ONNX's layout; `layout` turns them to channels innermost, the only one
that the native operations know.
"""

from __future__ import annotations

from typing import Any

from ep_core.types import DataType
from ep_cpu.native.steps import NativeStep, shape_of
from ep_cpu.native.table import NOT_FLOAT, Answer, all_floats, operator, rank_of
from ep_sdk.kernels import KernelNode

_RANKS = (3, 4)
"""Of sequences and pictures, with batch and channels."""


def _numbers(node: KernelNode, name: str, default: int, count: int) -> list[int]:
    return [int(value) for value in node.attr(name, (default,) * count)]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def window_of(node: KernelNode, kernel: list[int], axes: int) -> dict[str, list[int]] | str:
    """Attributes of a window over two axes, or why it can't be native.

    A sequence is a picture of height 1.
    """
    strides = _numbers(node, "strides", 1, axes)
    dilations = _numbers(node, "dilations", 1, axes)
    pads = _numbers(node, "pads", 0, 2 * axes)
    lengths = (len(kernel), len(strides), len(dilations), len(pads) // 2)
    if lengths != (axes,) * 4 or min(kernel + strides + dilations) < 1 or min(pads) < 0:
        return "an odd window"
    automatic = _text(node.attr("auto_pad", "NOTSET"))
    if automatic == "VALID":
        pads = [0] * (2 * axes)
    elif automatic in ("SAME_UPPER", "SAME_LOWER"):
        shape = shape_of(node.input_types[0])
        if shape is None or not all(isinstance(length, int) for length in shape[2:]):
            return "padding by an unknown shape"
        pads = _same_pads(shape[2:], kernel, strides, dilations, automatic == "SAME_UPPER")
    elif automatic not in ("NOTSET", ""):
        return f"auto_pad {automatic!r}"
    if axes == 1:
        kernel, strides, dilations = [1, *kernel], [1, *strides], [1, *dilations]
        pads = [0, pads[0], 0, pads[1]]
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads}


def _same_pads(
    lengths: Any, kernel: list[int], strides: list[int], dilations: list[int], upper: bool
) -> list[int]:
    """Padding that gives ceil(length / stride) places; the odd one goes to the end or start."""
    before: list[int] = []
    after: list[int] = []
    for length, size, stride, dilation in zip(lengths, kernel, strides, dilations, strict=True):
        places = -(-length // stride)
        total = max((places - 1) * stride + (size - 1) * dilation + 1 - length, 0)
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    return before + after


@operator("Conv")
def _conv(node: KernelNode) -> Answer:
    rank = rank_of(node, 0)
    if not all_floats(node) or rank not in _RANKS:
        return NOT_FLOAT
    weights = node.constants[1]
    shape = shape_of(node.input_types[0])
    if weights is None or weights.ndim != rank or 0 in weights.shape:
        return "weights that aren't constant"
    group = int(node.attr("group", 1))
    if shape is None or (isinstance(shape[1], int) and shape[1] != weights.shape[1] * group):
        return "another number of channels"
    if [int(size) for size in node.attr("kernel_shape", weights.shape[2:])] != list(
        weights.shape[2:]
    ):
        return "a kernel_shape that isn't the weights'"
    window = window_of(node, [int(size) for size in weights.shape[2:]], weights.ndim - 2)
    if isinstance(window, str):
        return window
    if weights.shape[0] % group:
        return "groups of different sizes"
    is_depthwise = group > 1 and weights.shape[1] == 1 and weights.shape[0] == group
    kind = "depthwise" if is_depthwise else "conv"
    attributes: dict[str, Any] = window if is_depthwise else {**window, "group": group}
    if group == 1:
        attributes["winograd"] = _winograd_side(window, shape[2:], weights.shape)
    bias = node.node.inputs[2] if node.has_input(2) else ""
    if bias and shape_of(node.input_types[2]) != (weights.shape[0],):
        return "a bias of another length"
    inputs = (*node.node.inputs[:2], bias)
    return NativeStep(kind, inputs, node.node.outputs, attributes, (node.node,))


@operator("ConvTranspose")
def _conv_transpose(node: KernelNode) -> Answer:
    rank = rank_of(node, 0)
    weights = node.constants[1]
    if not all_floats(node) or rank not in _RANKS:
        return NOT_FLOAT
    if weights is None or weights.ndim != rank or 0 in weights.shape:
        return "weights that aren't constant"
    automatic = _text(node.attr("auto_pad", "NOTSET"))
    if automatic != "NOTSET" or node.attr("output_shape") or int(node.attr("group", 1)) != 1:
        return "auto_pad, output_shape or groups"
    kernel = [int(size) for size in node.attr("kernel_shape", weights.shape[2:])]
    if kernel != list(weights.shape[2:]):
        return "a kernel_shape that isn't the weights'"
    window = window_of(node, kernel, rank - 2)
    if isinstance(window, str):
        return window
    bias = node.node.inputs[2] if node.has_input(2) else ""
    if bias and shape_of(node.input_types[2]) != (weights.shape[1],):
        return "a bias of another length"
    more = _numbers(node, "output_padding", 0, rank - 2)
    pads = list(window["pads"])
    for axis, places in zip((1, 0), reversed(more), strict=False):
        pads[2 + axis] -= places
    attributes = {**window, "pads": pads}
    inputs = (*node.node.inputs[:2], bias)
    return NativeStep("conv_transpose", inputs, node.node.outputs, attributes, (node.node,))


_MOST_CHANNELS = {4: 160, 2: 320}
"""Up to how many channels tiles of 4 x 4 and 2 x 2 pay: beyond, weights leave the cache."""

_FEWEST_CHANNELS = 16
_SHORTEST_SIDE = 8


def _winograd_side(
    window: dict[str, list[int]], lengths: tuple[Any, ...], weights: tuple[int, ...]
) -> int:
    """Side of the tiles in which a convolution is computed by Winograd's method, or 0."""
    plain = (window["kernel"], window["strides"], window["dilations"]) == ([3, 3], [1, 1], [1, 1])
    outs, ins, *_ = weights
    if not plain or len(lengths) != 2 or min(outs, ins) < _FEWEST_CHANNELS:
        return 0
    if any(isinstance(length, int) and length < _SHORTEST_SIDE for length in lengths):
        return 0
    return next((side for side, most in _MOST_CHANNELS.items() if max(outs, ins) <= most), 0)


def _pooling(node: KernelNode, **attributes: int) -> Answer:
    rank = rank_of(node, 0)
    if node.input_dtype(0) is not DataType.FLOAT or rank not in _RANKS:
        return NOT_FLOAT
    if node.attr("ceil_mode", 0) or node.attr("storage_order", 0) or node.wants_output(1):
        return "ceil_mode, storage_order or indices"
    axes = rank - min(_RANKS) + 1
    window = window_of(node, _numbers(node, "kernel_shape", 0, axes), axes)
    if isinstance(window, str):
        return window
    pads, kernel = window["pads"], window["kernel"]
    reach = [(k - 1) * d for k, d in zip(kernel, window["dilations"], strict=True)]
    if any(pad > most for pad, most in zip(pads, reach * 2, strict=True)):
        return "windows that lie in the padding as a whole"
    outputs = node.node.outputs[:1]
    return NativeStep("pool", node.node.inputs[:1], outputs, {**window, **attributes}, (node.node,))


@operator("MaxPool")
def _max_pool(node: KernelNode) -> Answer:
    return _pooling(node, largest=1)


@operator("AveragePool")
def _average_pool(node: KernelNode) -> Answer:
    return _pooling(node, largest=0, count_padding=int(node.attr("count_include_pad", 0)))


def _global(kind: int) -> Any:
    def make(node: KernelNode) -> Answer:
        shape = shape_of(node.input_types[0])
        if not all_floats(node) or shape is None or len(shape) < 3 or 0 in shape:
            return NOT_FLOAT
        axes = list(range(2, len(shape)))
        attributes = {"kind": kind, "keep": 1, "axes": axes}
        inputs = (node.node.inputs[0], "")
        return NativeStep("reduce", inputs, node.node.outputs, attributes, (node.node,))

    return make


operator("GlobalAveragePool")(_global(1))
operator("GlobalMaxPool")(_global(2))


_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
_ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "legacy")


@operator("Resize", "Upsample")
def _resize(node: KernelNode) -> Answer:
    """Inputs of Resize since version 11 are x, roi, scales, sizes; before, x and scales."""
    if node.input_dtype(0) is not DataType.FLOAT or rank_of(node, 0) != max(_RANKS):
        return NOT_FLOAT
    is_old = node.node.op_type == "Upsample" or node.version < 11
    if is_old and len(node.node.inputs) != 2:
        return "scales that are attributes"
    if (
        node.attr("axes") is not None
        or node.attr("antialias", 0)
        or node.attr("exclude_outside", 0)
    ):
        return "chosen axes, antialias or exclude_outside"
    if _text(node.attr("keep_aspect_ratio_policy", "stretch")) != "stretch":
        return "keep_aspect_ratio_policy"
    mode = {"bilinear": "linear"}.get(_text(node.attr("mode", "nearest")))
    mode = mode or _text(node.attr("mode", "nearest"))
    coordinates = "asymmetric"
    rounding = "legacy"
    if not is_old:
        coordinates = _text(node.attr("coordinate_transformation_mode", "half_pixel"))
        rounding = _text(node.attr("nearest_mode", "round_prefer_floor"))
    if (
        mode not in ("nearest", "linear")
        or coordinates not in _COORDINATES
        or rounding not in _ROUNDING
    ):
        return f"mode {mode}, {coordinates}, {rounding}"
    scales, sizes = (1, 4) if is_old else (2, 3)
    names = [node.node.inputs[i] if node.has_input(i) else "" for i in (scales, sizes)]
    attributes = {
        "linear": int(mode == "linear"),
        "coordinates": _COORDINATES.index(coordinates),
        "rounding": _ROUNDING.index(rounding),
    }
    inputs = (node.node.inputs[0], *names)
    return NativeStep("resize", inputs, node.node.outputs, attributes, (node.node,))
