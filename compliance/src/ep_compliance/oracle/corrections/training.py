"""Steps of optimisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct

__all__: list[str] = []


@correct("Adam", domain="ai.onnx.preview.training", reason="rates are known to float32 only")
def adam(call: NodeCall) -> Sequence[Any]:
    """Inputs: rate, number of the step, then all tensors, gradients, means, mean squares."""
    rate, step, tensors = float(call.inputs[0]), int(call.inputs[1]), call.inputs[2:]
    count = len(tensors) // 4
    alpha, beta = call.attr("alpha"), call.attr("beta")
    if step > 0:
        rate *= float(np.sqrt(1.0 - beta**step)) / (1.0 - alpha**step)
    moved, means, squares = [], [], []
    groups = [tensors[group * count : (group + 1) * count] for group in range(4)]
    for x, gradient, mean, square in zip(*groups, strict=True):
        slope = call.attr("norm_coefficient") * x + gradient
        means.append(alpha * mean + (1.0 - alpha) * slope)
        squares.append(beta * square + (1.0 - beta) * slope * slope)
        change = rate * means[-1] / (np.sqrt(squares[-1]) + call.attr("epsilon"))
        moved.append((1.0 - call.attr("norm_coefficient_post")) * (x - change))
    return [*moved, *means, *squares]
