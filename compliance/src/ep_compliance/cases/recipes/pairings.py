"""Attributes that meet each other: each alone may be right and two of them together wrong.

The samples of the operators' families take attributes one by one for the most part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe

__all__: list[str] = []

_Shape = tuple[int, ...]

_CONV: dict[str, tuple[_Shape, _Shape, dict[str, Any]]] = {
    "groups, strides, dilations": (
        (1, 4, 9, 10),
        (6, 2, 3, 2),
        {"group": 2, "strides": [2, 1], "dilations": [1, 3], "pads": [1, 2, 0, 1]},
    ),
    "dilations, strides": (
        (2, 2, 11, 9),
        (3, 2, 3, 3),
        {"strides": [2, 2], "dilations": [2, 1], "pads": [2, 0, 2, 0]},
    ),
    "depthwise, more outputs": ((1, 3, 6, 6), (6, 1, 3, 3), {"group": 3, "strides": [2, 2]}),
    "rank3 groups": ((2, 4, 9), (4, 2, 3), {"group": 2, "pads": [1, 1], "dilations": [2]}),
    "rank5 strides": ((1, 2, 5, 4, 6), (3, 2, 2, 2, 3), {"strides": [2, 1, 2]}),
    "same upper, uneven strides": (
        (1, 2, 7, 8),
        (2, 2, 3, 3),
        {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
    ),
    "same lower, dilations": (
        (1, 2, 9, 8),
        (2, 2, 3, 2),
        {"auto_pad": "SAME_LOWER", "dilations": [2, 3]},
    ),
}


@recipe("Conv")
def conv(ask: Ask) -> Iterator[Sample]:
    """With a bias, so that it too meets every one."""
    for name, (image, kernel, attributes) in _CONV.items():
        inputs = [ask.random(*image), ask.random(*kernel), ask.random(kernel[0])]
        yield Sample(name, inputs, attributes)


@recipe("ConvTranspose")
def conv_transpose(ask: Ask) -> Iterator[Sample]:
    """Groups, strides, dilations and pads at once."""
    attributes = {"group": 2, "strides": [2, 3], "dilations": [2, 1], "pads": [1, 0, 0, 2]}
    inputs = [ask.random(1, 4, 4, 3), ask.random(4, 3, 3, 2), ask.random(6)]
    yield Sample("groups, strides, dilations", inputs, attributes)


@recipe("MaxPool")
def max_pool(ask: Ask) -> Iterator[Sample]:
    """Pads with rounding up, with dilations and with indices."""
    x = ask.numbers.distinct((1, 2, 7, 8), ask.dtype)
    kernel = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}
    if ask.version >= 10:
        yield Sample("ceil, pads", [x], {**kernel, "ceil_mode": 1})
        yield Sample("dilations, pads", [x], {**kernel, "dilations": [2, 3]})
    if ask.version >= 8:
        yield Sample("indices, pads", [x], kernel, outputs=2)
        line = ask.numbers.distinct((2, 3, 9), ask.dtype)
        yield Sample("indices, rank3", [line], {"kernel_shape": [3], "strides": [2]}, outputs=2)


@recipe("AveragePool")
def average_pool(ask: Ask) -> Iterator[Sample]:
    """Which elements are counted, with pads that are given and that are found."""
    x = ask.random(1, 2, 6, 7)
    kernel = {"kernel_shape": [3, 2], "strides": [2, 2]}
    same = {**kernel, "auto_pad": "SAME_UPPER"}
    if ask.version >= 7:
        yield Sample("same upper, count pads", [x], {**same, "count_include_pad": 1})
    if ask.version >= 19:
        pads = {**kernel, "pads": [1, 0, 0, 1], "ceil_mode": 1}
        yield Sample("ceil, pads", [x], pads)


@recipe("Gemm")
def gemm(ask: Ask) -> Iterator[Sample]:
    """One transpose alone, and factors without a bias or with transposes."""
    a, b, c = ask.random(5, 3), ask.random(5, 4), ask.random(3, 4)
    factors = {"alpha": 2.0, "beta": 3.0}
    yield Sample("transA", [a, b, c], {"transA": 1})
    yield Sample("transA, factors", [a, b, c], {"transA": 1, **factors})
    if ask.version >= 11:
        yield Sample("no bias, factor", [a.T.copy(), b], {"alpha": 2.0})


@recipe("ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum")
def reduction(ask: Ask) -> Iterator[Sample]:
    """Without the dimensions that are reduced: the first, the middle one, all."""
    x = ask.random(2, 3, 4)
    for axis in (0, 1):
        inputs = [x, ask.ints(axis)] if ask.takes(1) else [x]
        axes: dict[str, Any] = {} if ask.takes(1) else {"axes": [axis]}
        yield Sample(f"axis {axis}, no keepdims", inputs, {**axes, "keepdims": 0})
    yield Sample("all, no keepdims", [x], {"keepdims": 0})


@recipe("Transpose")
def transpose(ask: Ask) -> Iterator[Sample]:
    """Channels first and last, heads, and a rank beyond the usual."""
    x = ask.random(2, 3, 4, 5)
    for perm in ([0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3], [0, 1, 3, 2]):
        yield Sample("perm " + "".join(map(str, perm)), [x], {"perm": perm})
    yield Sample("rank6", [ask.random(2, 3, 2, 1, 3, 2)], {"perm": [5, 0, 3, 1, 4, 2]})


@recipe("Slice")
def slices(ask: Ask) -> Iterator[Sample]:
    """Several axes backwards, and steps without axes."""
    if ask.version < 10:
        return
    x = ask.random(5, 6, 7)
    bounds = [ask.ints(-1, 4), ask.ints(0, -99), ask.ints(0, 2), ask.ints(-2, -1)]
    yield Sample("backwards, two axes", [x, *bounds])
    yield Sample("backwards, two axes, constant", [x, *bounds], constants=[1, 2, 3, 4])
    whole = [ask.ints(0, 1, 2), ask.ints(5, 6, 7), None, ask.ints(2, 1, 3)]
    yield Sample("steps, no axes", [x, *whole])


@recipe("Gather")
def gather(ask: Ask) -> Iterator[Sample]:
    """An axis in the middle."""
    yield Sample("middle axis", [ask.random(2, 5, 3), ask.ints(4, 0, 2)], {"axis": 1})


@recipe("Concat")
def concat(ask: Ask) -> Iterator[Sample]:
    """More parts than a kernel takes arguments."""
    yield Sample("very many", [ask.random(2, 1) for _ in range(70)], {"axis": 1})


@recipe("Einsum")
def einsum(ask: Ask) -> Iterator[Sample]:
    """Heads, sums over letters of one side, three operands."""
    q, k = ask.random(1, 2, 3, 4), ask.random(1, 2, 5, 4)
    yield Sample("heads", [q, k], {"equation": "bhid,bhjd->bhij"})
    yield Sample("one side", [ask.random(2, 3), ask.random(4)], {"equation": "ij,k->ik"})
    three = [ask.random(2, 3), ask.random(3, 4), ask.random(4, 2)]
    yield Sample("three", three, {"equation": "ij,jk,kl->il"})


@recipe("LayerNormalization")
def layer_normalization(ask: Ask) -> Iterator[Sample]:
    """An axis in the middle, without a bias."""
    kind = ask.type_of(1, ask.dtype)
    inputs = [ask.random(2, 3, 4), ask.random(3, 4, dtype=kind)]
    yield Sample("axis 1, no bias", inputs, {"axis": 1})


@recipe("Add And Div Equal Greater Less Mul Or Sub Xor")
def old_broadcast(ask: Ask) -> Iterator[Sample]:
    """Before version 7 the right side broadcasts only if asked, and from an axis on."""
    if ask.version >= 7:
        return
    x = ask.random(2, 3, 4, 5)
    for name, shape, axis in (
        ("broadcast suffix", (4, 5), None),
        ("broadcast middle", (3, 4), 1),
        ("broadcast first", (2,), 0),
        ("broadcast number", (), None),
    ):
        y = ask.random(*shape, low=1, high=7)
        attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
        yield Sample(name, [x, np.asarray(y)], attributes, core=True)
