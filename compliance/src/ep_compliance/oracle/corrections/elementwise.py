"""Elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct

__all__: list[str] = []


@correct("Erf", reason="float64 is computed in float32")
def erf(call: NodeCall) -> Sequence[Any] | None:
    """The C library's function, one element at a time."""
    x = call.inputs[0]
    if x.dtype != np.float64:
        return None
    return [np.array([math.erf(value) for value in x.reshape(-1)]).reshape(x.shape)]


@correct("PRelu", reason="infinities beside zeros give NaN")
def prelu(call: NodeCall) -> Sequence[Any]:
    """`slope * x` for negative x, x for others; before version 7 slopes are per channel."""
    x, slope = call.inputs
    if call.version < 7 and slope.ndim == 1 and x.ndim > 1:
        slope = slope.reshape([-1] + [1] * (x.ndim - 2))
    return [np.where(x < 0, slope * x, x).astype(x.dtype)]


@correct("Shrink", reason="right, but ONNX Runtime computes float64 in float32")
def shrink(call: NodeCall) -> Sequence[Any] | None:
    """Values within `lambd` of 0 become 0, others move by `bias` towards it."""
    x = call.inputs[0]
    if x.dtype.kind != "f":
        return None
    bound, bias = call.attr("lambd"), call.attr("bias")
    moved = np.where(x < -bound, x + bias, np.where(x > bound, x - bias, 0.0))
    return [np.where(np.isnan(x), 0.0, moved)]


@correct("Mean", reason="inputs that broadcast fail in some orders")
def mean(call: NodeCall) -> Sequence[Any]:
    """Sum over count."""
    total = call.inputs[0]
    for operand in call.inputs[1:]:
        total = total + operand
    return [np.asarray(total / len(call.inputs))]


@correct("Softsign", reason="rank 0 fails")
def softsign(call: NodeCall) -> Sequence[Any]:
    """`x / (1 + |x|)`."""
    x = call.inputs[0]
    return [np.asarray(x / (1 + np.abs(x)))]
