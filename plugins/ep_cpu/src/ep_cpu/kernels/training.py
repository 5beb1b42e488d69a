"""Optimiser steps of ai.onnx.preview.training: Adagrad, Adam, Momentum.

Inputs are the learning rate, the update count, and then one group of tensors after the other: all
parameters, all gradients, all first accumulators and so on. Outputs follow the same order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ep_core.errors import InvalidModelError, RunError
from ep_cpu.kernels.support import Array, scalar, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_DOMAIN = "ai.onnx.preview.training"

_Step = Callable[..., tuple[Array, ...]]
"""`step(rate, count, x, gradient, *accumulators)` gives the new x and the new accumulators."""


def _kernel(node: KernelNode, groups: int, step: _Step) -> Kernel:
    """A kernel that applies `step` to each parameter; `groups` tensors belong to one."""

    def run(rate: Array, count: Array, *tensors: Array) -> tuple[Array, ...]:
        if not tensors or len(tensors) % groups:
            raise RunError(
                f"{node.node.op_type} needs {groups} tensors for each parameter", got=len(tensors)
            )
        parameters = len(tensors) // groups
        # The rate may be of another float type than what it moves.
        first = float(scalar(rate, "the learning rate"))
        number = int(scalar(count, "the update count"))
        found = [step(first, number, *tensors[i::parameters]) for i in range(parameters)]
        return tuple(
            np.asarray(one).astype(tensors[0].dtype, copy=False)
            for group in zip(*found, strict=True)
            for one in group
        )

    return run


@TABLE.kernel("Adagrad", domain=_DOMAIN)
def _adagrad(node: KernelNode) -> Kernel:
    decay = float(node.attr("decay_factor", 0.0))
    epsilon = float(node.attr("epsilon", 1e-6))
    norm = float(node.attr("norm_coefficient", 0.0))

    def step(
        rate: float, count: int, x: Array, gradient: Array, squares: Array
    ) -> tuple[Array, ...]:
        slope = norm * x + gradient
        total = squares + slope * slope
        return x - rate / (1 + count * decay) * slope / (np.sqrt(total) + epsilon), total

    return _kernel(node, 3, step)


@TABLE.kernel("Adam", domain=_DOMAIN)
def _adam(node: KernelNode) -> Kernel:
    alpha = float(node.attr("alpha", 0.9))
    beta = float(node.attr("beta", 0.999))
    epsilon = float(node.attr("epsilon", 1e-6))
    norm = float(node.attr("norm_coefficient", 0.0))
    norm_after = float(node.attr("norm_coefficient_post", 0.0))

    def step(
        rate: float, count: int, x: Array, gradient: Array, mean: Array, square: Array
    ) -> tuple[Array, ...]:
        slope = norm * x + gradient
        mean = alpha * mean + (1 - alpha) * slope
        square = beta * square + (1 - beta) * slope * slope
        if count > 0:
            rate = rate * (1 - beta**count) ** 0.5 / (1 - alpha**count)
        moved = x - rate * mean / (np.sqrt(square) + epsilon)
        return (1 - norm_after) * moved, mean, square

    return _kernel(node, 4, step)


@TABLE.kernel("Momentum", domain=_DOMAIN)
def _momentum(node: KernelNode) -> Kernel:
    alpha = float(node.attr("alpha"))
    beta = float(node.attr("beta"))
    norm = float(node.attr("norm_coefficient"))
    mode = text(node.attr("mode"))
    if mode not in ("standard", "nesterov"):
        raise InvalidModelError(
            "unknown mode of Momentum", expected="standard or nesterov", got=mode
        )

    def step(rate: float, count: int, x: Array, gradient: Array, speed: Array) -> tuple[Array, ...]:
        slope = norm * x + gradient
        speed = alpha * speed + (beta if count > 0 else 1.0) * slope
        direction = slope + alpha * speed if mode == "nesterov" else speed
        return x - rate * direction, speed

    return _kernel(node, 3, step)
