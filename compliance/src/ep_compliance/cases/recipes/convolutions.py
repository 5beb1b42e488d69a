"""Convolutions of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.case import Level
from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.numbers import scattered
from ep_core.types import DataType

__all__: list[str] = []

_CONV: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 6, 7), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "no attributes": ((1, 2, 5, 5), (3, 2, 2, 3), {}),
    "pointwise": ((1, 3, 4, 5), (2, 3, 1, 1), {}),
    "strides": ((1, 2, 7, 8), (3, 2, 3, 3), {"strides": [2, 3]}),
    "dilations": ((1, 2, 9, 9), (2, 2, 3, 3), {"dilations": [2, 3]}),
    "uneven pads": ((1, 2, 5, 5), (2, 2, 3, 3), {"pads": [0, 1, 2, 1], "strides": [2, 2]}),
    "groups": ((1, 4, 5, 5), (6, 2, 3, 3), {"group": 2}),
    "depthwise": ((2, 3, 6, 6), (3, 1, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "same upper": ((1, 2, 5, 6), (2, 2, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 2, 5, 6), (2, 2, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "valid": ((1, 2, 5, 6), (2, 2, 3, 3), {"auto_pad": "VALID"}),
    "rank3": ((2, 3, 9), (4, 3, 3), {"pads": [1, 0], "strides": [2]}),
    "rank5": ((1, 2, 4, 4, 4), (3, 2, 2, 3, 2), {"pads": [0, 1, 1, 0, 1, 1]}),
    "whole image": ((2, 3, 4, 4), (5, 3, 4, 4), {}),
    "no batch": ((0, 2, 5, 5), (3, 2, 3, 3), {}),
}


@recipe("Conv")
def conv(ask: Ask) -> Iterator[Sample]:
    """Every attribute, ranks 3 to 5, with and without a bias."""
    for name, (image, kernel, attributes) in _CONV.items():
        inputs = [ask.random(*image), ask.random(*kernel)]
        core = name in ("plain", "groups", "strides")
        yield Sample(name, inputs, attributes, core=core)
    x, w, b = ask.random(2, 3, 6, 7), ask.random(4, 3, 3, 3), ask.random(4)
    yield Sample("bias", [x, w, b], {"kernel_shape": [3, 3]}, core=True)
    yield Sample("constant", [x, w, b], constants=[1, 2])
    yield Sample("symbolic", [x, w], symbolic=True, constants=[1])
    yield Sample("strided", [scattered(x), w])
    large = [ask.random(1, 32, 56, 56), ask.random(48, 32, 3, 3)]
    yield Sample("large", large, {"pads": [1, 1, 1, 1]}, level=Level.SOAK)
    if ask.is_float:
        spoilt = x.copy()
        spoilt[1, 2, 3, 3] = np.nan
        yield Sample("special", [spoilt, w])


@recipe("ConvTranspose")
def conv_transpose(ask: Ask) -> Iterator[Sample]:
    """Output padding, given output shapes, groups, dilations."""
    x, w = ask.random(1, 3, 4, 5), ask.random(3, 2, 3, 3)
    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "strides": {"strides": [2, 3]},
        "pads": {"pads": [1, 0, 1, 2]},
        "output padding": {"strides": [2, 2], "output_padding": [1, 1]},
        "output shape": {"strides": [2, 2], "output_shape": [10, 11]},
        "dilations": {"dilations": [2, 2]},
        "same upper": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    }
    for name, attributes in variants.items():
        yield Sample(name, [x, w], attributes, core=name in ("plain", "strides"))
    yield Sample("bias", [x, w, ask.random(2)], core=True)
    groups = [ask.random(1, 4, 3, 3), ask.random(4, 2, 2, 2)]
    yield Sample("groups", groups, {"group": 2}, core=True)
    yield Sample("rank3", [ask.random(1, 2, 5), ask.random(2, 3, 3)], {"strides": [2]})
    yield Sample("rank5", [ask.random(1, 2, 2, 3, 2), ask.random(2, 2, 2, 2, 2)])
    yield Sample("constant", [x, w], constants=[1])
    yield Sample("symbolic", [x, w], symbolic=True, constants=[1])


@recipe("ConvInteger")
def conv_integer(ask: Ask) -> Iterator[Sample]:
    """Zero points, which also fill the pads."""
    for kind in ask.types(1):
        x = ask.random(1, 2, 5, 5, low=-100, high=200)
        w = ask.numbers.random((3, 2, 3, 3), kind)
        attributes = {"pads": [1, 1, 1, 1]}
        yield Sample(f"with {kind.text}", [x, w], attributes, core=True)
        points = [ask.random(low=5, high=9), ask.numbers.random((), kind, 1, 4)]
        yield Sample(f"with {kind.text}, zero points", [x, w, *points], attributes, core=True)


@recipe("QLinearConv")
def qlinear_conv(ask: Ask) -> Iterator[Sample]:
    """Per tensor and per channel, with and without a bias, every choice of types."""
    kind = ask.dtype
    yield from _mixed_codes(ask)
    x, w = ask.random(1, 2, 5, 5, low=-90, high=90), ask.random(3, 2, 3, 3, low=-50, high=50)
    sx, sw, sy = (np.array(scale, np.float32) for scale in (0.05, 0.1, 0.3))
    point = np.array(3, kind.numpy)
    middle = np.array(0, kind.numpy)
    inputs = [x, sx, point, w, sw, middle, sy, point]
    yield Sample("plain", inputs, core=True)
    bias = ask.random(3, dtype=DataType.INT32, low=-900, high=900)
    yield Sample("bias", [*inputs, bias], {"pads": [1, 1, 1, 1]}, core=True)
    scales = np.array([0.1, 0.02, 0.3], np.float32)
    zeros = np.zeros(3, kind.numpy)
    channels = [x, sx, point, w, scales, zeros, sy, point]
    yield Sample("per channel", channels, constants=[3, 4, 5])


def _mixed_codes(ask: Ask) -> Iterator[Sample]:
    sx, sw, sy = (np.array(scale, np.float32) for scale in (0.0625, 0.125, 0.5))
    x = ask.random(1, 2, 4, 4, low=-90, high=90)
    bias = ask.random(3, dtype=DataType.INT32, low=-900, high=900)
    for kind in ask.types(3):
        w = ask.numbers.random((3, 2, 3, 3), kind, -50, 50)
        for target in ask.output_types():
            points = [np.array(value, k.numpy) for value, k in ((3, ask.dtype), (0, kind))]
            inputs = [x, sx, points[0], w, sw, points[1], sy, np.array(5, target.numpy), bias]
            yield Sample(f"{kind.text} to {target.text}", inputs, core=True)


@recipe("DeformConv")
def deform_conv(ask: Ask) -> Iterator[Sample]:
    """Offsets between pixels and beyond the edge, masks, groups."""
    x, w = ask.random(1, 2, 4, 4), ask.random(2, 2, 2, 2)
    offset = ask.random(1, 8, 3, 3, low=-1.4, high=1.4)
    yield Sample("plain", [x, w, offset], core=True)
    yield Sample("zero", [x, w, np.zeros_like(offset)])
    bias, mask = ask.random(2), ask.random(1, 4, 3, 3, low=0, high=1)
    yield Sample("bias and mask", [x, w, offset, bias, mask], core=True)


@recipe("CausalConvWithState")
def causal_conv(ask: Ask) -> Iterator[Sample]:
    """With and without the past."""
    x, w = ask.random(2, 3, 6), ask.random(3, 1, 4)
    yield Sample("plain", [x, w], outputs=2, core=True)
    yield Sample("past", [x, w, ask.random(3), ask.random(2, 3, 3)], outputs=2)
    yield Sample("silu", [x, w, ask.random(3)], {"activation": "silu"}, outputs=2)


@recipe("Col2Im")
def col2im(ask: Ask) -> Iterator[Sample]:
    """Overlapping blocks add up."""
    if ask.dtype in (DataType.BOOL, DataType.STRING):
        return
    image, block = ask.ints(5, 5), ask.ints(2, 2)
    yield Sample("plain", [ask.random(1, 8, 16), image, block], core=True)
    apart = {"strides": [2, 2], "pads": [0, 0, 1, 1]}
    yield Sample("strides", [ask.random(2, 4, 9), image, block], apart)
