"""Kernels that combine many elements into one: matrix products, reductions, softmax."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape, positive_axis
from ep_sdk.simulator.launch import (
    ANY,
    FLOATS,
    NUMBERS,
    TABLE,
    Array,
    constant_ints,
    launched,
    needs_constants,
    widened,
)

__all__: list[str] = []


@TABLE.kernel("MatMul", types={"T": NUMBERS}, writes_out=True)
def _matmul(node: KernelNode) -> Kernel:
    return launched(node, widened(np.matmul), _matmul_shape)


def _matmul_shape(a: Shape, b: Shape) -> Shape:
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    if not a or not b or left[-1] != right[-2]:
        raise RunError("matrices don't fit together", got=f"{list(a)} and {list(b)}")
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError as error:
        raise RunError("batches don't broadcast", got=f"{list(a)} and {list(b)}") from error
    rows = left[-2:-1] if len(a) > 1 else ()
    columns = right[-1:] if len(b) > 1 else ()
    return (*batch, *rows, *columns)


@TABLE.kernel("Gemm", since=7, types={"T": NUMBERS}, writes_out=True)
def _gemm(node: KernelNode) -> Kernel:
    alpha = node.attr("alpha", 1.0)
    beta = node.attr("beta", 1.0)
    turn_a = bool(node.attr("transA", 0))
    turn_b = bool(node.attr("transB", 0))

    def compute(a: Array, b: Array, c: Array | None = None) -> Any:
        kind = a.dtype.type
        result = np.matmul(a.T if turn_a else a, b.T if turn_b else b) * kind(alpha)
        return result if c is None else result + c * kind(beta)

    def shape_of(a: Shape, b: Shape, c: Shape | None = None) -> Shape:
        if len(a) != 2 or len(b) != 2:
            raise RunError("Gemm takes matrices", got=f"{list(a)} and {list(b)}")
        return _matmul_shape(a[::-1] if turn_a else a, b[::-1] if turn_b else b)

    return launched(node, widened(compute), shape_of)


# ---------------------------------------------------------------- softmax


def _softmax(x: Array, axis: int) -> Any:
    if not x.size:
        return x
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _log_softmax(x: Array, axis: int) -> Any:
    if not x.size:
        return x
    below = x - x.max(axis=axis, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=axis, keepdims=True))


def _add_softmax(op_type: str, along: Callable[[Array, int], Any]) -> None:
    @TABLE.kernel(op_type, types={"T": FLOATS}, writes_out=True)
    def make(node: KernelNode) -> Kernel:
        """Along one axis from version 13 on; before it over all axes from `axis` on."""
        flattens = node.version < 13
        axis = node.attr("axis", 1 if flattens else -1)

        def compute(x: Array) -> Any:
            if not flattens:
                return along(x, positive_axis(axis, x.ndim))
            start = axis if axis == x.ndim else positive_axis(axis, x.ndim)
            rows = math.prod(x.shape[:start])
            flat = x.reshape(rows, math.prod(x.shape[start:]))
            return np.asarray(along(flat, 1)).reshape(x.shape)

        return launched(node, widened(compute), lambda shape: shape)


_add_softmax("Softmax", _softmax)
_add_softmax("LogSoftmax", _log_softmax)


# ---------------------------------------------------------------- reductions


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return -np.inf
    return False if dtype.kind == "b" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return np.inf
    return True if dtype.kind == "b" else np.iinfo(dtype).max


def _sum(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _product(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _mean(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    count = math.prod(x.shape[axis] for axis in axes)
    return np.divide(_sum(x, axes, keep), x.dtype.type(count))


def _max(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.max(x, axis=axes, keepdims=keep, initial=_lowest(x.dtype))


def _min(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.min(x, axis=axes, keepdims=keep, initial=_highest(x.dtype))


def _add_reduction(
    op_type: str,
    reduce: Callable[[Array, tuple[int, ...], bool], Any],
    types: frozenset[DataType],
    axes_are_input_since: int,
) -> None:
    @TABLE.kernel(op_type, types={"T": types}, writes_out=True, predicate=needs_constants(axes=1))
    def make(node: KernelNode) -> Kernel:
        if node.version >= axes_are_input_since:
            named = constant_ints(node, 1)
        else:
            named = node.attr("axes")
        keep = bool(node.attr("keepdims", 1))
        does_nothing = not named and bool(node.attr("noop_with_empty_axes", 0))

        def axes_for(rank: int) -> tuple[int, ...]:
            if not named:
                return tuple(range(rank))
            return tuple(sorted({positive_axis(axis, rank) for axis in named}))

        def compute(x: Array, axes: Array | None = None) -> Any:
            return x if does_nothing else reduce(x, axes_for(x.ndim), keep)

        def shape_of(x: Shape, axes: Shape | None = None) -> Shape:
            if does_nothing:
                return x
            gone = axes_for(len(x))
            lengths = (1 if index in gone else n for index, n in enumerate(x))
            kept = (n for index, n in enumerate(x) if index not in gone)
            return tuple(lengths) if keep else tuple(kept)

        return launched(node, _widened_data(compute), shape_of)


def _widened_data(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Like `widened`, for kernels whose other inputs are no data: axes aren't touched."""
    wide = widened(compute)

    @functools.wraps(compute)
    def run(x: Array, axes: Array | None = None) -> Any:
        return wide(x)

    return run


for _op, _reduce, _types, _since in (
    ("ReduceSum", _sum, NUMBERS, 13),
    ("ReduceMean", _mean, FLOATS, 18),
    ("ReduceMax", _max, ANY, 18),
    ("ReduceMin", _min, ANY, 18),
    ("ReduceProd", _product, NUMBERS, 18),
):
    _add_reduction(_op, _reduce, _types, _since)
