"""Losses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe

__all__: list[str] = []


@recipe("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss")
def loss(ask: Ask) -> Iterator[Sample]:
    """Reductions, weights, ignored targets, more dimensions, both types of targets."""
    x, target = ask.random(3, 5), np.array([1, 0, 4], np.int64)
    weight = ask.random(5, low=0.2, high=2)
    for how in ("mean", "sum", "none"):
        yield Sample(how, [x, target], {"reduction": how}, core=True)
        yield Sample(f"{how}, weights", [x, target, weight], {"reduction": how}, core=True)
    deep = [ask.random(2, 5, 3), np.array([[1, 0, 4], [2, 2, 3]], np.int64)]
    yield Sample("more dimensions", deep, core=True)
    yield Sample("int32", [x, target.astype(np.int32), weight], core=True)
    if ask.has("ignore_index"):
        yield Sample("ignored", [x, target], {"ignore_index": 0})
    if ask.op_type == "SoftmaxCrossEntropyLoss":
        yield Sample("log probabilities", [x, target], outputs=2, core=True)
        yield Sample("int32, both", [x, target.astype(np.int32), weight], outputs=2, core=True)
