"""Reductions over axes, ArgMax, ArgMin and the global pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.device_kernels.moving import Strided, move, strides_of
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape, positive_axis

__all__ = ["GROUP", "RANGE_REDUCTIONS", "SUM", "Rows", "reducer_of"]

GROUP = 64
"""Work-items that share a row; see `cl/rows.cl`."""

_NUMBERS = FLOATS | {DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64}
_ORDERED = _NUMBERS | {DataType.INT8, DataType.UINT8}


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor seen as rows to reduce.

    Attributes:
        outer, length, inner: element `i` of row `(o, n)` lies at `(o * length + i) * inner + n`.
    """

    outer: int
    length: int
    inner: int


@dataclass(frozen=True, slots=True)
class _Reduction:
    """What `cl/rows.cl` wants to know of one operator.

    Attributes:
        start, term, combine, finish: kernel C; see there.
        types: of the operator.
        axes_since: version in which the axes became an input.
    """

    start: str
    term: str
    combine: str
    finish: str
    types: frozenset[DataType]
    axes_since: int = 18


_REDUCTIONS = {
    "ReduceSum": _Reduction("0", "(v)", "ADD_UP(a, b)", "(total)", _NUMBERS, 13),
    "ReduceMean": _Reduction("0", "(v)", "ADD_UP(a, b)", "((total) / (TOTAL)(count))", FLOATS),
    "ReduceMax": _Reduction("LOWEST(T)", "(v)", "LARGER(b, a)", "(total)", _ORDERED),
    "ReduceMin": _Reduction("HIGHEST(T)", "(v)", "SMALLER(b, a)", "(total)", _ORDERED),
    "ReduceProd": _Reduction("1", "(v)", "((a) * (b))", "(total)", _NUMBERS),
    "ReduceL1": _Reduction("0", "((v) < 0 ? -(v) : (v))", "ADD_UP(a, b)", "(total)", _NUMBERS),
    "ReduceL2": _Reduction("0", "((v) * (v))", "ADD_UP(a, b)", "sqrt(total)", FLOATS),
    "ReduceSumSquare": _Reduction("0", "((v) * (v))", "ADD_UP(a, b)", "(total)", _NUMBERS),
    "ReduceLogSum": _Reduction("0", "(v)", "ADD_UP(a, b)", "log(total)", FLOATS),
}


RANGE_REDUCTIONS = (_REDUCTIONS["ReduceMin"], _REDUCTIONS["ReduceMax"])
"""The smallest and the largest element, for `reducer_of`."""

SUM = _REDUCTIONS["ReduceSum"]
"""For `reducer_of`."""


def _rows_of(shape: Shape, axes: Sequence[int]) -> tuple[Rows, tuple[int, ...] | None]:
    """How the given axes, ascending, form rows; and the order of axes to move to first, if any."""
    rank = len(shape)
    first = axes[0] if axes else rank
    last = axes[-1] + 1 if axes else rank
    if all(axis in axes or shape[axis] == 1 for axis in range(first, last)):
        inner = math.prod(shape[last:])
        return Rows(math.prod(shape[:first]), math.prod(shape[first:last]), inner), None
    order = tuple(a for a in range(rank) if a not in axes) + tuple(axes)
    length = math.prod(shape[axis] for axis in axes)
    return Rows(math.prod(shape) // max(length, 1), length, 1), order


def _reduced_shape(shape: Shape, axes: Sequence[int], keep: bool) -> Shape:
    if keep:
        return tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    return tuple(length for axis, length in enumerate(shape) if axis not in axes)


_Body = Callable[[DeviceStream, DeviceBuffer, DeviceBuffer, Rows], None]
"""Reduces rows of the first buffer into the second."""


def _over_axes(node: KernelNode, body: _Body, axes_since: int) -> Kernel:
    """A kernel that finds its axes, brings rows together if they aren't, and calls `body`."""
    bench = Bench(node)
    named = node.attr("axes") if node.version < axes_since else None
    keep = bool(node.attr("keepdims", 1))
    may_do_nothing = bool(node.attr("noop_with_empty_axes", 0))

    def reduce(
        stream: DeviceStream,
        x: DeviceBuffer,
        numbers: DeviceBuffer | None = None,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        given = named
        if numbers is not None:
            given = [int(item) for item in bench.values(stream, numbers).reshape(-1)]
        rank = len(x.shape)
        if given:
            axes = sorted({positive_axis(axis, rank) for axis in given})
        else:
            axes = [] if may_do_nothing else list(range(rank))
        shape = _reduced_shape(x.shape, axes, keep)
        with bench.writing(stream, shape, x.dtype, out) as y:
            rows, order = _rows_of(x.shape, axes)
            if not math.prod(shape):
                return y
            if order is None:
                body(stream, x, y, rows)
                return y
            turned = tuple(x.shape[axis] for axis in order)
            with bench.scratch(stream, turned, x.dtype) as together:
                steps = strides_of(x.shape)
                source = Strided(x, 0, [steps[axis] for axis in order])
                move(bench, stream, source, Strided(together, 0, strides_of(turned)), turned)
                body(stream, together, y, rows)
        return y

    return reduce


def _reducer(node: KernelNode, reduction: _Reduction) -> _Body:
    bench = Bench(node)
    dtype = node.input_dtype(0)
    assert dtype is not None
    return reducer_of(bench, dtype, reduction)


def reducer_of(
    bench: Bench, dtype: DataType, reduction: _Reduction, result: DataType | None = None
) -> _Body:
    """What reduces rows of the first buffer into the second, of another type if one is given."""
    defines: dict[str, object] = {
        "T": ELEMENTS[dtype].code,
        "TC": ELEMENTS[result or dtype].code,
        "START": reduction.start,
        "TERM(v)": reduction.term,
        "COMBINE(a, b)": reduction.combine,
        "FINISH(total, count)": reduction.finish,
    }

    def body(stream: DeviceStream, x: DeviceBuffer, y: DeviceBuffer, rows: Rows) -> None:
        arguments = [x.handle, y.handle, np.int64(rows.length)]
        if rows.inner == 1:
            kernel = bench.kernel("rows.cl", "reduce_rows", defines)
            kernel.launch(stream, (rows.outer * GROUP,), (GROUP,), arguments)
        else:
            kernel = bench.kernel("rows.cl", "reduce_columns", defines)
            kernel.launch(stream, (rows.inner, rows.outer), None, arguments)

    return body


def _add_rows() -> None:
    for op_type, reduction in _REDUCTIONS.items():
        TABLE.kernel(op_type, types={"T": reduction.types}, writes_out=True)(_maker(reduction))


def _maker(reduction: _Reduction) -> Callable[[KernelNode], Kernel]:
    def make(node: KernelNode) -> Kernel:
        return _over_axes(node, _reducer(node, reduction), reduction.axes_since)

    return make


_add_rows()


@TABLE.kernel("ReduceLogSumExp", types={"T": FLOATS}, writes_out=True)
def _log_sum_exp(node: KernelNode) -> Kernel:
    bench = Bench(node)
    dtype = node.input_dtype(0)
    assert dtype is not None
    defines: dict[str, object] = {"T": ELEMENTS[dtype].code, "SOFTMAX(e, total)": "(e)"}

    def body(stream: DeviceStream, x: DeviceBuffer, y: DeviceBuffer, rows: Rows) -> None:
        kernel = bench.kernel("rows.cl", "log_sum_exp_rows", defines)
        if rows.inner == 1:
            arguments = [x.handle, y.handle, np.int64(rows.length)]
            kernel.launch(stream, (rows.outer * GROUP,), (GROUP,), arguments)
            return
        shape = (rows.outer, rows.inner, rows.length)
        with bench.scratch(stream, shape, dtype) as together:
            steps = (rows.length * rows.inner, 1, rows.inner)
            target = Strided(together, 0, strides_of(shape))
            move(bench, stream, Strided(x, 0, steps), target, shape)
            arguments = [together.handle, y.handle, np.int64(rows.length)]
            kernel.launch(stream, (rows.outer * rows.inner * GROUP,), (GROUP,), arguments)

    return _over_axes(node, body, 18)


# ---------------------------------------------------------------- positions


def _position(node: KernelNode, sign: str) -> Kernel:
    bench = Bench(node)
    dtype = node.input_dtype(0)
    assert dtype is not None
    named = node.attr("axis", 0)
    keep = bool(node.attr("keepdims", 1))
    takes_last = bool(node.attr("select_last_index", 0))
    test = f"({{}} {sign}{'=' if takes_last else ''} {{}})".format("(v)", "(best)")
    if dtype in FLOATS:
        # The first NaN is found, and nothing is better than it.
        test = f"((best) == (best) && ((v) != (v) || {test}))"
    defines: dict[str, object] = {"T": ELEMENTS[dtype].code, "IS_BETTER(v, best)": test}

    def find(
        stream: DeviceStream, x: DeviceBuffer, *, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        axis = positive_axis(named, len(x.shape))
        shape = _reduced_shape(x.shape, (axis,), keep)
        with bench.writing(stream, shape, DataType.INT64, out) as y:
            size = (math.prod(x.shape[axis + 1 :]), math.prod(x.shape[:axis]))
            kernel = bench.kernel("rows.cl", "find_position", defines)
            arguments = [x.handle, y.handle, np.int64(x.shape[axis])]
            kernel.launch(stream, size, None, arguments)
        return y

    return find


@TABLE.kernel("ArgMax", types={"T": _ORDERED}, writes_out=True)
def _arg_max(node: KernelNode) -> Kernel:
    return _position(node, ">")


@TABLE.kernel("ArgMin", types={"T": _ORDERED}, writes_out=True)
def _arg_min(node: KernelNode) -> Kernel:
    return _position(node, "<")


# ---------------------------------------------------------------- global pools


def _global(node: KernelNode, reduction: _Reduction) -> Kernel:
    bench = Bench(node)
    body = _reducer(node, reduction)

    def pool(
        stream: DeviceStream, x: DeviceBuffer, *, out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        planes = math.prod(x.shape[:2])
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
        with bench.writing(stream, shape, x.dtype, out) as y:
            body(stream, x, y, Rows(planes, math.prod(x.shape[2:]), 1))
        return y

    return pool


@TABLE.kernel("GlobalAveragePool", types={"T": FLOATS}, writes_out=True)
def _global_average(node: KernelNode) -> Kernel:
    return _global(node, _REDUCTIONS["ReduceMean"])


@TABLE.kernel("GlobalMaxPool", types={"T": FLOATS}, writes_out=True)
def _global_max(node: KernelNode) -> Kernel:
    return _global(node, _REDUCTIONS["ReduceMax"])
