"""Questions: activations, biases, softmax, products, convolutions, normalisations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from contrib_cases.asking import Asked, Values, question

__all__: list[str] = []

_ACTIVATIONS: dict[str, list[float]] = {
    "Relu": [],
    "Tanh": [],
    "Sigmoid": [],
    "LeakyRelu": [0.25],
    "Clip": [-0.5, 0.75],
    "HardSigmoid": [0.25, 0.5],
}
"""Activations of convolutions, with their parameters."""


@question
def activations() -> Iterator[Asked]:
    """GELU in its forms."""
    v = Values("activations")
    for name in ("Gelu", "QuickGelu", "FastGelu"):
        yield Asked(name, "plain", [v.floats(2, 3, 8, low=-4, high=4)])
        yield Asked(name, "far out", [v.floats(24, low=-16, high=16)])
        yield Asked(name, "one", [v.floats(1, 1)])
        yield Asked(name, "odd", [v.floats(5, 7)])
    yield Asked("QuickGelu", "slope", [v.floats(3, 8)], attributes={"alpha": 1.0})
    yield Asked("FastGelu", "bias", [v.floats(2, 3, 8), v.floats(8)], constants=(1,))
    yield Asked("BiasGelu", "plain", [v.floats(2, 3, 8), v.floats(8)], constants=(1,))
    yield Asked("BiasGelu", "rank1", [v.floats(8), v.floats(8)])
    yield Asked("BiasSplitGelu", "plain", [v.floats(2, 3, 16), v.floats(16)], constants=(1,))
    yield Asked("BiasSplitGelu", "narrow", [v.floats(1, 5, 2), v.floats(2)])
    whole = [v.floats(2, 3, 8), v.floats(8), v.floats(2, 3, 8)]
    yield Asked("BiasAdd", "plain", whole, constants=(1,))
    yield Asked("BiasAdd", "one", [v.floats(1, 1, 1), v.floats(1), v.floats(1, 1, 1)])
    gates = [v.floats(3, 8), v.floats(3, 8)]
    yield Asked("SwiGLU", "plain", gates, attributes={"activation_alpha": 1.0})
    clamped = {"activation_alpha": 1.75, "activation_beta": 1.0, "limit": 1.5}
    yield Asked("SwiGLU", "clamped", gates, attributes=clamped)
    yield Asked("SwiGLU", "halves", [v.floats(2, 3, 8)], attributes={"activation_alpha": 1.0})


@question
def softmax() -> Iterator[Asked]:
    """A bias that is broadcast from inside or from outside."""
    v = Values("softmax")
    x = v.floats(2, 3, 4, 5)
    for name, bias, inner in (
        ("inner", v.floats(2, 1, 1, 5), 1),
        ("outer", v.floats(1, 3, 4, 5), 0),
        ("same", v.floats(2, 3, 4, 5), 1),
    ):
        attributes = {"axis": 3, "is_inner_broadcast": inner}
        yield Asked("BiasSoftmax", name, [x, bias], attributes=attributes)


@question
def products() -> Iterator[Asked]:
    """Products of matrices that are turned, scaled and activated."""
    v = Values("products")
    for trans_a, trans_b, batch_a, batch_b in itertools.product((0, 1), repeat=4):

        def turned(rows: int, columns: int, last: int, batch: int) -> tuple[int, ...]:
            shape = (2, 3, columns, rows) if last else (2, 3, rows, columns)
            return (shape[2], *shape[:2], shape[3]) if batch else shape

        yield Asked(
            "FusedMatMul",
            f"turned {trans_a}{trans_b}{batch_a}{batch_b}",
            [v.floats(*turned(2, 4, trans_a, batch_a)), v.floats(*turned(4, 3, trans_b, batch_b))],
            attributes={
                "transA": trans_a,
                "transB": trans_b,
                "transBatchA": batch_a,
                "transBatchB": batch_b,
                "alpha": 0.75,
            },
        )
    yield Asked("FusedMatMul", "bare", [v.floats(3, 4), v.floats(4, 5)], constants=(1,))
    yield Asked("FusedMatMul", "vector", [v.floats(4), v.floats(3, 4, 2)])
    broadcast = [v.floats(2, 3, 4), v.floats(5, 4)]
    yield Asked("FusedMatMul", "broadcast", broadcast, attributes={"transB": 1})
    flags = {"transA": 1, "alpha": 0.5}
    yield Asked(
        "TransposeMatMul", "turned", [v.floats(2, 4, 3), v.floats(2, 4, 5)], attributes=flags
    )
    yield Asked("TransposeMatMul", "bare", [v.floats(3, 4), v.floats(4, 5)], constants=(1,))
    yield Asked(
        "GemmFastGelu", "bias", [v.floats(2, 3, 4), v.floats(4, 5), v.floats(5)], constants=(1, 2)
    )
    yield Asked("GemmFastGelu", "bare", [v.floats(3, 4), v.floats(4, 5)])
    alpha, beta, gamma = (
        {f"activation_{name}": value}
        for name, value in zip(("alpha", "beta", "gamma"), (0.25, 0.5, 1.125), strict=True)
    )
    forms: dict[str, dict[str, float]] = {
        "Relu": {},
        "Tanh": {},
        "Sigmoid": {},
        "Softplus": {},
        "Softsign": {},
        "LeakyRelu": alpha,
        "Elu": alpha,
        "Celu": alpha,
        "ThresholdedRelu": alpha,
        "HardSigmoid": {**alpha, **beta},
        "Selu": {**alpha, **gamma},
    }
    for name, parameters in forms.items():
        yield Asked(
            "FusedGemm",
            name,
            [v.floats(3, 4), v.floats(5, 4), v.floats(5, low=-0.5)],
            attributes={"transB": 1, "alpha": 0.5, "beta": 2.0, "activation": name, **parameters},
            constants=(1, 2) if name == "Relu" else (),
        )
    without = {"transA": 1, "activation": "Relu"}
    yield Asked("FusedGemm", "no bias", [v.floats(4, 3), v.floats(4, 5)], attributes=without)
    for name in ("Relu", "Tanh", "LeakyRelu"):
        given: dict[str, Any] = {"activation": name, "transB": 1, "alpha": 0.5}
        inputs = [v.floats(2, 3, 4), v.floats(2, 5, 4)]
        yield Asked("FusedMatMulActivation", name, inputs, attributes={**given, **forms[name]})


@question
def convolutions() -> Iterator[Asked]:
    """Fused convolutions in both layouts."""
    v = Values("convolutions")
    x, weight, bias = v.floats(1, 4, 5, 6), v.floats(3, 4, 3, 3), v.floats(3)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    for name, parameters in _ACTIVATIONS.items():
        given: dict[str, Any] = {"activation": name, "pads": [1, 1, 1, 1]}
        if parameters:
            given["activation_params"] = parameters
        yield Asked("FusedConv", name, [x, weight, bias], attributes=given, constants=(1, 2))
        if name != "HardSigmoid":
            yield Asked("NhwcFusedConv", name, [last, weight, bias], attributes=given)
    given = {"activation": "Relu", "strides": [2, 2]}
    yield Asked("FusedConv", "residual", [x, weight, bias, v.floats(1, 3, 2, 2)], attributes=given)
    yield Asked("FusedConv", "no bias", [x, weight, None, v.floats(1, 3, 2, 2)], attributes=given)
    yield Asked("FusedConv", "bare", [x, weight])
    grouped = {"group": 2, "dilations": [2, 2], "pads": [2, 2, 2, 2], "activation": "Relu"}
    yield Asked("FusedConv", "grouped", [x, v.floats(4, 2, 3, 3), v.floats(4)], attributes=grouped)
    line = [v.floats(2, 4, 7), v.floats(3, 4, 3), bias]
    yield Asked("FusedConv", "one axis", line, attributes={"activation": "Relu"})
    residual = [last, weight, bias, v.floats(1, 2, 2, 3)]
    yield Asked("NhwcFusedConv", "residual", residual, attributes=given, constants=(1, 2))
    yield Asked("NhwcConv", "bias", [last, weight, bias], constants=(1, 2))
    yield Asked("NhwcConv", "strided", [last, weight], attributes={"strides": [2, 1]})
    yield Asked("NhwcConv", "same", [last, weight], attributes={"auto_pad": "SAME_UPPER"})
    grouped = {"group": 2, "pads": [1, 0, 1, 2], "dilations": [1, 2]}
    yield Asked("NhwcConv", "grouped", [last, v.floats(4, 2, 3, 3)], attributes=grouped)
    name, pads = "ConvTransposeWithDynamicPads", np.array([1, 1, 0, 1])
    inputs = [v.floats(1, 3, 3, 3), v.floats(3, 2, 3, 3), pads]
    strides = {"strides": [2, 2]}
    yield Asked(name, "bias", [*inputs, v.floats(2)], attributes=strides, constants=(1, 3))
    padded = {**strides, "output_padding": [1, 0]}
    yield Asked(name, "padded", inputs, attributes=padded)


@question
def normalizations() -> Iterator[Asked]:
    """Rows and groups of channels."""
    v = Values("normalizations")
    tail = (True, False, False, True)
    x, skip, rows = v.floats(2, 3, 8), v.floats(2, 3, 8), [v.floats(8) for _ in range(3)]
    name = "SkipLayerNormalization"
    small = {"epsilon": 2.0**-16}
    yield Asked(name, "whole", [x, skip, *rows], tail, small, constants=(2, 3, 4))
    yield Asked(name, "no beta", [x, skip, rows[0]])
    yield Asked(name, "no beta, bias", [x, skip, rows[0], None, rows[2]], tail)
    yield Asked(name, "no bias", [x, skip, *rows[:2]], tail)
    yield Asked(name, "one skip", [x, v.floats(1, 3, 8), *rows[:2]])
    yield Asked(name, "flat skip", [x, v.floats(3, 8), *rows[:2]], tail)
    yield Asked(name, "tokens", [v.floats(3, 8), v.floats(3, 8), *rows])
    yield Asked(name, "statistics", [x, skip, *rows], (True,) * 4, small, defined=True)
    name = "SkipSimplifiedLayerNormalization"
    yield Asked(name, "whole", [x, skip, rows[0], rows[1]], tail, small, constants=(2, 3))
    yield Asked(name, "no bias", [x, skip, rows[0]], tail)
    yield Asked(name, "tokens", [v.floats(3, 8), v.floats(3, 8), rows[0]])
    name = "SimplifiedLayerNormalization"
    yield Asked(name, "plain", [x, rows[0]], mixed=True, constants=(1,), domain="")
    axis = {"axis": 1, "epsilon": 0.125}
    yield Asked(name, "axis", [x, v.floats(3, 8)], attributes=axis, domain="")
    given: dict[str, Any] = {"axis": -1, "stash_type": 1}
    yield Asked(name, "statistics", [x, rows[0]], (True, True), given, domain="")
    channels = [v.floats(8) for _ in range(3)]
    for last, activation in itertools.product((0, 1), (0, 1)):
        shape = (2, 3, 2, 8) if last else (2, 8, 3, 2)
        given = {"groups": 4, "activation": activation, "channels_last": last, "epsilon": 2.0**-13}
        what = f"layout {last} activation {activation}"
        inputs = [v.floats(*shape), *channels[:2]]
        yield Asked("GroupNorm", what, inputs, attributes=given, mixed=True, constants=(1, 2))
        skip = v.floats(2, 3, 2, 8)
        if last:
            inputs = [v.floats(*shape), *channels[:2], skip, channels[2]]
            yield Asked("SkipGroupNorm", what, inputs, (True, True), given, mixed=True)
    given = {"groups": 2, "activation": 0}
    inputs = [v.floats(2, 3, 2, 8), *channels[:2], v.floats(2, 8)]
    yield Asked("SkipGroupNorm", "flat skip", inputs, (True,), given)


@question
def embeddings() -> Iterator[Asked]:
    """Sums of rows of tables, normalised."""
    v = Values("embeddings")
    name = "EmbedLayerNormalization"
    ids, kinds = v.integers(2, 5, kind="int32"), v.bits(2, 5)
    words, places, segments = v.floats(10, 8), v.floats(6, 8), v.floats(2, 8)
    gamma, beta = v.floats(8), v.floats(8)
    whole = [ids, kinds, words, places, segments, gamma, beta]
    ends = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    gaps = np.array([[1, 0, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32)
    every, two = (True, True, True), (True, True)
    yield Asked(name, "ends", [*whole, ends], every, constants=(2, 3, 4, 5, 6))
    yield Asked(name, "gaps", [*whole, gaps], every)
    yield Asked(name, "no mask", whole, two, {"epsilon": 2.0**-16})
    bare = [ids, None, words, places, None, gamma, beta]
    yield Asked(name, "words", bare, (True, False, True))
    positions = v.integers(2, 5, kind="int32", high=5)
    yield Asked(name, "positions", [*bare, None, positions], two)
    yield Asked(name, "one row", [*bare, None, positions[:1]], two)
    yield Asked(name, "everything", [*whole, ends, positions], every)
