"""Normalisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_core.types import DataType

__all__: list[str] = []


@recipe("BatchNormalization")
def batch_normalization(ask: Ask) -> Iterator[Sample]:
    """Inference; every rank from 2."""
    test: dict[str, Any] = {"is_test": 1} if ask.has("is_test") else {}
    if ask.has("consumed_inputs"):
        test["consumed_inputs"] = [0, 0, 0, 1, 1]

    def inputs(*shape: int) -> list[Any]:
        channels = shape[1]
        numbers = ask.numbers
        scale, bias = (numbers.random((channels,), ask.type_of(1, ask.dtype)) for _ in range(2))
        kind = ask.type_of(3, ask.dtype)
        mean = numbers.random((channels,), kind)
        variance = numbers.random((channels,), kind, 0.3, 2)
        return [ask.random(*shape), scale, bias, mean, variance]

    yield Sample("plain", inputs(2, 3, 4, 5), test, core=True)
    yield Sample("rank3", inputs(2, 3, 4), test)
    yield Sample("rank2", inputs(4, 3), test)
    yield Sample("rank5", inputs(1, 2, 3, 2, 2), test)
    yield Sample("epsilon", inputs(2, 3, 4, 5), {**test, "epsilon": 0.1}, core=True)
    yield Sample("constant", inputs(2, 3, 4, 5), test, constants=[1, 2, 3, 4])
    yield Sample("symbolic", inputs(2, 3, 4, 5), test, constants=[1, 2, 3, 4], symbolic=True)
    yield Sample("no batch", inputs(0, 3, 2, 2), test)
    if ask.version >= 14:
        yield from _mixed_batches(ask)


def _mixed_batches(ask: Ask) -> Iterator[Sample]:
    """Every choice of types for scale and mean, in inference and in training."""
    scales = ask.types(1) if ask.schema.inputs[1].type_str != ask.schema.inputs[0].type_str else ()
    for scale_kind in scales or (ask.dtype,):
        for kind in ask.types(3):
            numbers = ask.numbers
            scale, bias = (numbers.random((2,), scale_kind) for _ in range(2))
            mean, variance = numbers.random((2,), kind), numbers.random((2,), kind, 0.3, 2)
            inputs = [ask.random(3, 2, 4, 4), scale, bias, mean, variance]
            name = f"{scale_kind.text} {kind.text}"
            yield Sample(f"inference {name}", inputs, core=True)
            training = {"training_mode": 1}
            yield Sample(f"training {name}", inputs, training, outputs=3, core=True)


@recipe("InstanceNormalization")
def instance_normalization(ask: Ask) -> Iterator[Sample]:
    """Per image and channel."""
    parameters = [ask.random(3), ask.random(3)]
    yield Sample("plain", [ask.random(2, 3, 4, 5), *parameters], core=True)
    yield Sample("rank3", [ask.random(2, 3, 7), *parameters])
    yield Sample("epsilon", [ask.random(2, 3, 4, 5), *parameters], {"epsilon": 0.1})
    yield Sample("constant", [ask.random(2, 3, 4, 5), *parameters], constants=[1, 2])
    yield Sample("symbolic", [ask.random(2, 3, 4, 5), *parameters], symbolic=True)


@recipe("GroupNormalization")
def group_normalization(ask: Ask) -> Iterator[Sample]:
    """Channels in groups of two, of one and of all."""
    x, parameters = ask.random(2, 4, 3, 3), [ask.random(4), ask.random(4)]
    for groups in (1, 2, 4):
        yield Sample(f"groups {groups}", [x, *parameters], {"num_groups": groups}, core=True)
    yield Sample("rank3", [ask.random(1, 4, 5), *parameters], {"num_groups": 2, "epsilon": 0.1})
    yield Sample("constant", [x, *parameters], {"num_groups": 2}, constants=[1, 2])


@recipe("LayerNormalization RMSNormalization")
def layer_normalization(ask: Ask) -> Iterator[Sample]:
    """Every axis, all outputs, a mean that dwarfs the deviation."""
    root = ask.op_type == "RMSNormalization"
    kind = ask.type_of(1, ask.dtype)

    def parameters(*shape: int) -> list[Any]:
        count = 1 if root else 2
        return [ask.random(*shape, dtype=kind) for _ in range(count)]

    x = ask.random(2, 3, 4)
    yield Sample("plain", [x, *parameters(4)], core=True)
    yield Sample("axis 1", [x, *parameters(3, 4)], {"axis": 1}, core=True)
    yield Sample("axis 0", [x, *parameters(2, 3, 4)], {"axis": 0})
    yield Sample("epsilon", [x, *parameters(4)], {"epsilon": 0.1})
    yield Sample("constant", [x, *parameters(4)], constants=[1])
    yield Sample("symbolic", [x, *parameters(4)], symbolic=True)
    yield Sample("one row", [ask.random(1, 64), *parameters(64)])
    yield Sample("constant row", [np.full((2, 8), 3).astype(ask.dtype.numpy), *parameters(8)])
    yield Sample("no rows", [ask.random(0, 4), *parameters(4)])
    if not root:
        yield Sample("no bias", [x, parameters(4)[0]], core=True)
        for stash in ask.output_types(1):
            stashed = {"stash_type": int(stash)}
            yield Sample(f"stash {stash.text}", [x, *parameters(4)], stashed, outputs=3, core=True)
    if ask.dtype in (DataType.FLOAT, DataType.DOUBLE):
        yield Sample("far mean", [x + np.asarray(100, ask.dtype.numpy), *parameters(4)])


@recipe("LRN")
def lrn(ask: Ask) -> Iterator[Sample]:
    """Odd and even windows, wider than the channels too."""
    x = ask.random(2, 5, 3, 3)
    for size in (1, 2, 3, 4, 9):
        attributes = {"size": size, "alpha": 0.5, "beta": 0.6, "bias": 2.0}
        yield Sample(f"size {size}", [x], attributes, core=size == 3)
    yield Sample("defaults", [x], {"size": 3})


@recipe("LpNormalization")
def lp_normalization(ask: Ask) -> Iterator[Sample]:
    """Both norms along every axis."""
    x = ask.random(3, 4, 2)
    for p in (1, 2):
        for axis in (0, 1, -1):
            yield Sample(f"p {p} axis {axis}", [x], {"p": p, "axis": axis}, core=axis == 1)


@recipe("MeanVarianceNormalization")
def mean_variance(ask: Ask) -> Iterator[Sample]:
    """Default and other axes."""
    yield Sample("plain", [ask.random(2, 3, 4, 5)], core=True)
    yield Sample("axes", [ask.random(2, 3, 4, 5)], {"axes": [2, 3]}, core=True)
