"""Sums and quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_compliance.oracle.precision import float_info, is_float, narrow, widened

__all__: list[str] = []


@correct("Sum", reason="a sum of one operand that is -0.0 becomes +0.0")
def sum_of_operands(call: NodeCall) -> Sequence[Any]:
    """Operands added one to the next, without a zero to start from."""
    total = call.inputs[0]
    for operand in call.inputs[1:]:
        total = total + operand
    return [np.asarray(total)]


@correct("DequantizeLinear", until=18, reason="versions before 19 ignore the type of the scale")
def dequantize(call: NodeCall) -> Sequence[Any]:
    """`(x - zero_point) * scale` along one axis; the difference is exact."""
    x, scale, zero_point = call.input(0), call.input(1), call.input(2)
    shape = [1] * x.ndim
    if scale.ndim == 1 and x.ndim:
        shape[call.attr("axis", 1)] = scale.size
    elif scale.ndim == 0 or scale.size == 1:
        shape = []
    exact = x.astype(np.int64)
    if zero_point is not None:
        exact = exact - zero_point.astype(np.int64).reshape(shape)
    return [np.asarray(exact.astype(np.float64) * scale.reshape(shape))]


@correct("ReduceLogSum", reason="integers and rank 0 fail")
@correct("ReduceLogSumExp", reason="integers and rank 0 fail")
def log_sum(call: NodeCall) -> Sequence[Any]:
    """Logarithm of a sum, of exponentials for `Exp`; integers are computed as reals and cut off."""
    x, given = call.inputs[0], call.input(1)
    axes = call.attr("axes") if given is None else given.tolist()
    everything = () if call.attr("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    chosen = tuple(axes) if axes else everything
    keep = bool(call.attr("keepdims", 1))
    wide = x.astype(np.float64)
    if call.node.op_type == "ReduceLogSum":
        result = np.log(wide.sum(axis=chosen, keepdims=keep))
    else:
        # Subtracting the largest keeps the exponentials finite.
        top = wide.max(axis=chosen, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0.0)
        total = np.exp(wide - top).sum(axis=chosen, keepdims=True)
        result = np.log(total) + top
        result = result if keep else np.squeeze(result, axis=chosen)
    return [np.asarray(result).astype(x.dtype)]


@correct("QLinearMatMul", since=21, reason="float8 fails")
def float8_matmul(call: NodeCall) -> Sequence[Any] | None:
    """Product of the dequantized matrices over the scale, saturated; float8 has no zero points."""
    a, a_scale, _, b, b_scale, _, y_scale, zero_point = call.inputs
    if not is_float(a.dtype):
        return None
    product = (widened(a) * widened(a_scale)) @ (widened(b) * widened(b_scale))
    limit = float(float_info(zero_point.dtype).max)
    return [narrow(np.clip(product / widened(y_scale), -limit, limit), zero_point.dtype)]
