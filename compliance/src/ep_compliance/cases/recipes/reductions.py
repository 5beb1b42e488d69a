"""Reductions, arg reductions, running sums, softmax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ep_compliance.cases.case import Level
from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.numbers import scattered, special_values
from ep_core.types import DataType

__all__: list[str] = []

_POSITIVE = {"ReduceLogSum", "ReduceProd"}
_NO_NEUTRAL = {"ReduceMean"}


@recipe(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare"
)
def reduction(ask: Ask) -> Iterator[Sample]:
    """Axes as an attribute or, in later versions, as an input."""

    def sample(name: str, x: Any, axes: list[int] | None, **more: Any) -> Sample:
        attributes: dict[str, Any] = dict(more.pop("attributes", {}))
        inputs = [x]
        if axes is not None and ask.takes(1):
            inputs.append(np.array(axes, np.int64))
        elif axes is not None:
            attributes["axes"] = axes
        return Sample(name, inputs, attributes, **more)

    low, high = (0.5, 2.0) if ask.op_type in _POSITIVE else (None, None)
    if ask.op_type in _POSITIVE and ask.dtype.is_integer:
        low, high = 1, 2
    x = ask.random(2, 3, 4, low=low, high=high)
    yield sample("plain", x, [1], core=True)
    yield sample("all", x, None, core=True)
    yield sample("no keepdims", x, [0, 2], attributes={"keepdims": 0}, core=True)
    yield sample("constant", x, [1], constants=[1] if ask.takes(1) else [])
    yield sample("symbolic", x, [1], symbolic=True)
    yield sample("strided", scattered(x), [2])
    if ask.version >= 11:
        yield sample("negative axis", x, [-1, -3], core=True)
    yield sample("rank0", ask.random(low=low, high=high), None, attributes={"keepdims": 0})
    yield sample("one", ask.random(1, 1, low=low, high=high), [0])
    yield sample("odd", ask.random(5, 67, low=low, high=high), [1])
    yield sample("empty left", ask.random(0, 3, low=low, high=high), [1])
    if ask.has("noop_with_empty_axes") and ask.takes(1):
        attributes = {"noop_with_empty_axes": 1}
        yield sample("no-op", x, [], attributes=attributes)
    if ask.version >= 18 and ask.op_type not in _NO_NEUTRAL:
        yield sample("empty reduced", ask.random(2, 0, 3), [1])
    if ask.is_float and ask.op_type not in _POSITIVE:
        yield sample("special", _rows_of_specials(ask.dtype), [1])
    long = ask.random(3, 10007, low=low, high=high)
    if ask.op_type != "ReduceProd" and ask.dtype in (DataType.FLOAT, DataType.DOUBLE):
        yield sample("long", long, [1], level=Level.SOAK)


def _rows_of_specials(dtype: DataType) -> Any:
    """Each special value beside ordinary ones, so that it shows what one of them does."""
    values = special_values(dtype)
    ones = np.ones_like(values)
    return np.stack([values, ones, ones], axis=1)


@recipe("ArgMax ArgMin")
def arg_reduction(ask: Ask) -> Iterator[Sample]:
    """Ties go to the first, or to the last where that is asked."""
    x = ask.random(3, 4, 5)
    yield Sample("plain", [x], {"axis": 1}, core=True)
    yield Sample("default", [x], core=True)
    yield Sample("no keepdims", [x], {"axis": 2, "keepdims": 0}, core=True)
    ties = ask.random(4, 16, low=0, high=2)
    if ask.is_float:
        ties = np.round(ties.astype(np.float32)).astype(ask.dtype.numpy)
    yield Sample("ties", [ties], {"axis": 1}, core=True)
    if ask.version >= 11:
        yield Sample("negative axis", [x], {"axis": -1})
    if ask.version >= 12:
        yield Sample("last", [ties], {"axis": 1, "select_last_index": 1}, core=True)
    yield Sample("symbolic", [x], {"axis": 1}, symbolic=True)
    yield Sample("one", [ask.random(1)], {"axis": 0})
    yield Sample("empty left", [ask.random(0, 3)], {"axis": 1})


@recipe("CumSum CumProd")
def running(ask: Ask) -> Iterator[Sample]:
    """Running sums and products along one axis."""
    x = ask.random(3, 5, low=1, high=2) if ask.op_type == "CumProd" else ask.random(3, 5)
    axis = np.array(1, DataType.INT64.numpy)
    yield Sample("plain", [x, axis], core=True)
    yield Sample("axis 0", [x, np.array(0, np.int32)], core=True)
    yield Sample("negative axis", [x, np.array(-1, np.int64)])
    yield Sample("exclusive", [x, axis], {"exclusive": 1}, core=True)
    yield Sample("reverse", [x, axis], {"reverse": 1}, core=True)
    yield Sample("both", [x, axis], {"exclusive": 1, "reverse": 1})
    yield Sample("constant", [x, axis], constants=[1])
    yield Sample("symbolic", [x, axis], symbolic=True)
    yield Sample("empty", [ask.random(2, 0), axis])
    yield Sample("one", [ask.random(1), np.array(0, np.int64)])


@recipe("Softmax LogSoftmax Hardmax")
def softmax(ask: Ask) -> Iterator[Sample]:
    """Over one axis since version 13, over all from the axis on before."""
    x = ask.numbers.distinct((2, 3, 4), ask.dtype) / np.asarray(4).astype(ask.dtype.numpy)
    attributes: Mapping[str, Any] = {}
    yield Sample("plain", [x], attributes, core=True)
    yield Sample("axis 1", [x], {"axis": 1}, core=True)
    yield Sample("axis 0", [x], {"axis": 0}, core=True)
    yield Sample("symbolic", [x], symbolic=True)
    yield Sample("strided", [scattered(x)])
    if ask.version >= 11:
        yield Sample("negative axis", [x], {"axis": -2})
    yield Sample("one", [ask.random(3, 1)], {"axis": 1})
    yield Sample("empty", [ask.random(0, 3)], {"axis": 1})
    if ask.op_type != "Hardmax":
        yield Sample("large values", [ask.random(3, 9, low=-80, high=80)], {"axis": 1})
        masked = ask.random(3, 5)
        masked[:, 1:3] = -np.inf
        yield Sample("masked", [masked], {"axis": 1})
    yield Sample("odd", [ask.numbers.distinct((3, 101), ask.dtype)], {"axis": 1})
