"""Gathers, scatters, selections and sorting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.numbers import scattered, special_values
from ep_core.types import DataType

__all__: list[str] = []

_INT32 = DataType.INT32


@recipe("Gather")
def gather(ask: Ask) -> Iterator[Sample]:
    """Indices of every rank, negative ones since version 11."""
    x = ask.random(4, 5)
    yield Sample("plain", [x, ask.ints(3, 0, 2)], core=True)
    yield Sample("axis 1", [x, ask.ints(3, 0, 2)], {"axis": 1}, core=True)
    yield Sample("int32", [x, ask.ints(1, 2, dtype=_INT32)], core=True)
    yield Sample("matrix", [x, ask.ints(0, 1, 2, 3).reshape(2, 2)], {"axis": 1})
    yield Sample("rank0", [x, np.array(2, np.int64)])
    yield Sample("constant", [x, ask.ints(1, 1)], constants=[1])
    yield Sample("symbolic", [x, ask.ints(1, 1)], symbolic=True)
    yield Sample("strided", [scattered(x), ask.ints(1, 3)], {"axis": 1})
    yield Sample("no indices", [x, np.zeros((0, 2), np.int64)])
    if ask.version >= 11:
        yield Sample("negative", [x, ask.ints(-1, -4)], {"axis": -2}, core=True)


@recipe("GatherElements")
def gather_elements(ask: Ask) -> Iterator[Sample]:
    """Fewer indices than data on every axis."""
    x = ask.random(3, 4)
    yield Sample("plain", [x, ask.ints(2, 0, 1, 1).reshape(1, 4)], core=True)
    yield Sample("axis 1", [x, ask.ints(3, 0, -1, 2, 1, 1).reshape(3, 2)], {"axis": 1}, core=True)
    narrow = ask.ints(1, 2, 0, dtype=_INT32).reshape(3, 1)
    yield Sample("int32", [x, narrow], {"axis": 1}, core=True)
    yield Sample("negative axis", [x, narrow], {"axis": -1})
    yield Sample("symbolic", [x, ask.ints(1, 2, 0).reshape(3, 1)], {"axis": 1}, symbolic=True)
    yield Sample("empty", [x, np.zeros((0, 4), np.int64)])


@recipe("GatherND")
def gather_nd(ask: Ask) -> Iterator[Sample]:
    """Whole and partial indices, batch dimensions."""
    x = ask.random(2, 3, 4)
    yield Sample("elements", [x, ask.ints(0, 1, 2, 1, 2, 3).reshape(2, 3)], core=True)
    yield Sample("rows", [x, ask.ints(1, 0).reshape(2, 1)], core=True)
    yield Sample("negative", [x, ask.ints(-1, -3).reshape(1, 2)])
    if ask.version >= 12:
        yield Sample("batch", [x, ask.ints(1, 2).reshape(2, 1)], {"batch_dims": 1}, core=True)
    yield Sample("symbolic", [x, ask.ints(1, 2).reshape(1, 2)], symbolic=True)


_REDUCTIONS = {11: (), 13: (), 16: ("add", "mul"), 18: ("add", "mul", "max", "min")}


def _reductions(ask: Ask) -> tuple[str, ...]:
    if ask.dtype in (DataType.BOOL, DataType.STRING, DataType.COMPLEX64, DataType.COMPLEX128):
        return ()
    return _REDUCTIONS.get(ask.version, ())


@recipe("Scatter ScatterElements")
def scatter_elements(ask: Ask) -> Iterator[Sample]:
    """Updates of single elements; every reduction, with the same index twice."""
    x = ask.random(3, 4)
    index = ask.ints(2, 0, 1, 1).reshape(1, 4)
    yield Sample("plain", [x, index, ask.random(1, 4)], core=True)
    column = ask.ints(1, 3, 0).reshape(3, 1)
    yield Sample("axis 1", [x, column, ask.random(3, 1)], {"axis": 1}, core=True)
    yield Sample("int32", [x, index.astype(np.int32), ask.random(1, 4)], core=True)
    yield Sample("symbolic", [x, index, ask.random(1, 4)], symbolic=True)
    yield Sample("nothing", [x, index[:0], ask.random(0, 4)])
    if ask.version >= 11 and ask.op_type == "ScatterElements":
        yield Sample("negative", [x, -index - 1, ask.random(1, 4)], {"axis": -2})
    twice = ask.ints(1, 1, 0, 1).reshape(4, 1).repeat(4, axis=1)
    for how in _reductions(ask):
        low = 0 if ask.dtype.is_integer else None
        updates = ask.random(4, 4, low=low, high=2)
        yield Sample(how, [x, twice, updates], {"reduction": how}, core=True)


@recipe("ScatterND")
def scatter_nd(ask: Ask) -> Iterator[Sample]:
    """Updates of elements and of slices; every reduction, with the same index twice."""
    x = ask.random(4, 3)
    yield Sample("rows", [x, ask.ints(2, 0).reshape(2, 1), ask.random(2, 3)], core=True)
    pairs = ask.ints(0, 1, 3, 2).reshape(2, 2)
    yield Sample("elements", [x, pairs, ask.random(2)], core=True)
    yield Sample("symbolic", [x, pairs, ask.random(2)], symbolic=True)
    yield Sample("nothing", [x, pairs[:0], ask.random(0)])
    for how in _reductions(ask):
        low = 0 if ask.dtype.is_integer else None
        inputs = [x, ask.ints(1, 1, 0).reshape(3, 1), ask.random(3, 3, low=low, high=2)]
        yield Sample(how, inputs, {"reduction": how}, core=True)


@recipe("TensorScatter")
def tensor_scatter(ask: Ask) -> Iterator[Sample]:
    """A cache that is written at each sequence's own place."""
    cache, update = ask.random(2, 5, 3), ask.random(2, 2, 3)
    yield Sample("linear", [cache, update, ask.ints(1, 3)], core=True)
    yield Sample("start", [cache, update])
    yield Sample("circular", [cache, update, ask.ints(4, 0)], {"mode": "circular"})
    yield Sample("axis 1", [cache, update, ask.ints(0, 2)], {"axis": 1})


@recipe("Compress")
def compress(ask: Ask) -> Iterator[Sample]:
    """Along an axis, or flat; conditions may be shorter than the axis."""
    x = ask.random(3, 4)
    yield Sample("axis 0", [x, np.array([True, False, True])], {"axis": 0}, core=True)
    yield Sample("axis 1", [x, np.array([False, True])], {"axis": 1}, core=True)
    yield Sample("flat", [x, np.array([False, True, True, False, True])], core=True)
    yield Sample("nothing", [x, np.array([False, False])], {"axis": 1})
    if ask.version >= 11:
        yield Sample("negative", [x, np.array([True])], {"axis": -1})


@recipe("ReverseSequence")
def reverse_sequence(ask: Ask) -> Iterator[Sample]:
    """Both layouts, lengths from 1 to all."""
    x = ask.random(4, 3, 2)
    yield Sample("time first", [x, ask.ints(4, 1, 3)], {"time_axis": 0, "batch_axis": 1}, core=True)
    yield Sample(
        "batch first", [x, ask.ints(1, 3, 2, 2)], {"time_axis": 1, "batch_axis": 0}, core=True
    )


@recipe("NonZero")
def non_zero(ask: Ask) -> Iterator[Sample]:
    """Places of what isn't zero, in row-major order."""
    yield Sample("plain", [ask.random(3, 4, low=-1, high=1)], core=True)
    yield Sample("rank1", [ask.random(7, low=0, high=1)])
    yield Sample("empty", [ask.random(0, 3)])
    if ask.dtype is not DataType.STRING:
        yield Sample("nothing", [np.zeros((2, 3), ask.dtype.numpy)])
        yield Sample("special", [special_values(ask.dtype)])


@recipe("Unique")
def unique(ask: Ask) -> Iterator[Sample]:
    """All four outputs, flat and along an axis, sorted and in order of appearance."""
    x = ask.random(8, low=0, high=3)
    if ask.is_float:
        x = np.round(x.astype(np.float64)).astype(ask.dtype.numpy)
    rows = np.stack([x[:3], x[:3], x[3:6]]) if ask.dtype is not DataType.STRING else None
    yield Sample("sorted", [x], {"sorted": 1}, outputs=4, core=True)
    yield Sample("unsorted", [x], {"sorted": 0}, outputs=4, core=True)
    yield Sample("first only", [x], core=True)
    if rows is not None:
        yield Sample("axis 0", [rows], {"axis": 0}, outputs=4)
        yield Sample("axis -1", [rows], {"axis": -1}, outputs=4)


@recipe("TopK")
def top_k(ask: Ask) -> Iterator[Sample]:
    """Largest and smallest; ties go to the lower index."""
    x = ask.numbers.distinct((3, 5), ask.dtype)
    yield _top(ask, "plain", x, 3, core=True)
    yield _top(ask, "axis 0", x, 2, {"axis": 0}, core=True)
    yield _top(ask, "all", x, 5)
    yield _top(ask, "one", x, 1)
    if ask.version >= 10:
        yield _top(ask, "symbolic", x, 2, symbolic=True)
        yield _top(ask, "constant", x, 2, constants=[1])
    if ask.version >= 11:
        yield _top(ask, "smallest", x, 3, {"largest": 0}, core=True)
        ties = np.asarray([[1, 2, 2, 1, 2], [0, 0, 0, 0, 0]]).astype(ask.dtype.numpy)
        yield _top(ask, "ties", ties, 3)
        yield _top(ask, "none", x, 0)


def _top(
    ask: Ask, name: str, x: Any, k: int, attributes: dict[str, Any] | None = None, **more: Any
) -> Sample:
    attributes = dict(attributes or {})
    if ask.version < 10:
        return Sample(name, [x], {"k": k, **attributes}, outputs=2, **more)
    return Sample(name, [x, ask.ints(k)], attributes, outputs=2, **more)


_USUAL_DEPTHS = (DataType.INT64, DataType.INT32, DataType.FLOAT)
"""Types of indices and depths that are asked together with every type of values."""


@recipe("OneHot")
def one_hot(ask: Ask) -> Iterator[Sample]:
    """Every type of values and of depths; indices out of range give the off value."""
    indices = ask.random(2, 3, low=0, high=4)
    if ask.is_float:
        indices = np.floor(indices.astype(np.float64)).astype(ask.dtype.numpy)
    depth = np.array(4, np.int64)
    usual = _USUAL_DEPTHS if ask.dtype in _USUAL_DEPTHS else _USUAL_DEPTHS[:1]
    for kind in ask.types(2):
        values = ask.numbers.distinct((2,), kind)
        for other in ask.types(1):
            if other in usual or kind is DataType.FLOAT:
                inputs = [indices, np.array(4, other.numpy), values]
                yield Sample(f"depth {other.text}, {kind.text}", inputs, core=True)
    values = np.array([0, 1], np.float32)
    yield Sample("axis 0", [indices, depth, values], {"axis": 0}, core=True)
    yield Sample("constant", [indices, depth, values], constants=[1, 2])
    yield Sample("rank0", [np.asarray(indices[0, 0]), depth, values])
