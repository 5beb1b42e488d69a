"""Steps of optimisers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe

__all__: list[str] = []

_TRAINING = "ai.onnx.preview.training"

_STATES = {"Adagrad": 1, "Adam": 2, "Momentum": 1}
"""Tensors that are kept for each tensor that is trained."""


@recipe("Adagrad Adam Momentum", domain=_TRAINING)
def optimizer(ask: Ask) -> Iterator[Sample]:
    """One tensor and two; rates and tensors of every type; before the first step and later."""
    attributes: dict[str, Any] = {"norm_coefficient": 0.125}
    if ask.op_type == "Momentum":
        attributes |= {"alpha": 0.875, "beta": 0.25, "mode": "standard"}
    states = _STATES[ask.op_type]
    for kind in ask.types(2):
        for count, step in ((1, 0), (2, 3)):
            tensors = [
                ask.random(2, 3, dtype=kind, low=0.25, high=2) for _ in range(count * (2 + states))
            ]
            inputs = [np.array(0.25, ask.dtype.numpy), np.array(step, np.int64), *tensors]
            name = f"{count} of {kind.text}"
            yield Sample(name, inputs, attributes, outputs=count * (1 + states), core=True)
