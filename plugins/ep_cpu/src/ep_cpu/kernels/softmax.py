"""Softmax, LogSoftmax and Hardmax. Before version 13 they flatten to two dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ep_cpu.kernels.support import Array, check_axis, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["hardmax", "log_softmax", "softmax"]


def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `axis`, shifted by the maximum; float32 or float64."""
    result: Array = np.subtract(x, np.max(x, axis=axis, keepdims=True))
    np.exp(result, out=result)
    np.divide(result, np.sum(result, axis=axis, keepdims=True), out=result)
    return result


def log_softmax(x: Array, axis: int = -1) -> Array:
    """The logarithm of `softmax`, computed without it."""
    shifted: Array = np.subtract(x, np.max(x, axis=axis, keepdims=True))
    total = np.sum(np.exp(shifted), axis=axis, keepdims=True)
    np.subtract(shifted, np.log(total), out=shifted)
    return shifted


def hardmax(x: Array, axis: int = -1) -> Array:
    """1 at the first maximum along `axis`, 0 elsewhere."""
    result = np.zeros_like(x)
    first = np.expand_dims(np.argmax(x, axis=axis), axis)
    np.put_along_axis(result, first, 1, axis=axis)
    return result


def _register(op_type: str, function: Callable[[Array, int], Array]) -> None:
    @TABLE.kernel(op_type)
    def make(node: KernelNode) -> Kernel:
        flatten = node.version < 13
        axis = int(node.attr("axis", 1 if flatten else -1))

        def run(x: Array) -> Array:
            if x.size == 0:
                return x.copy()
            if not flatten:
                along = check_axis(axis, max(x.ndim, 1))
                wide = np.atleast_1d(widen(x))
                return function(wide, along).reshape(x.shape).astype(x.dtype, copy=False)
            split = axis if axis == x.ndim else check_axis(axis, x.ndim)
            rows = widen(x).reshape(math.prod(x.shape[:split]), -1)
            return function(rows, 1).reshape(x.shape).astype(x.dtype, copy=False)

        return run


_register("Softmax", softmax)
_register("LogSoftmax", log_softmax)
_register("Hardmax", hardmax)
