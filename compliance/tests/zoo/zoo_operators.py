"""Host providers that are right for what a small case asks: of other values, sizes and layouts.

They join the table of hosts. Their cases are the matrix's own.
"""

from __future__ import annotations

import itertools
import threading

import numpy as np
from zoo_base import CorrectProvider, relu, table_with
from zoo_host import animal, with_kernels

from ep_compliance.cases.case import Subject
from ep_compliance.cases.matrix import matrix_cases
from ep_core.types import DataType
from ep_sdk import KernelTable

FLOAT = {"T": DataType.FLOAT}
INT64 = {"T": DataType.INT64}

MATRIX = {
    case.id: case
    for case in matrix_cases(
        [
            Subject("", "Relu", 14, FLOAT),
            Subject("", "Sub", 14, FLOAT),
            Subject("", "Sub", 6, FLOAT),
            Subject("", "MatMul", 13, INT64),
            Subject("", "Gather", 13, {"T": DataType.INT64}),
            Subject("", "Transpose", 25, FLOAT),
            Subject("", "Clip", 13, FLOAT),
        ]
    )
    if case.id.rsplit("/", 1)[1]
    in {
        "large-whole",
        "constant-left",
        "broadcast-middle",
        "wide",
        "values-int64",
        "perm-0231",
        "nan",
    }
}


def _with(op_type, function, since=1, types=(DataType.FLOAT, DataType.INT64)):
    """The correct table, with one kernel more; the function gets the node and gives the kernel."""
    table = table_with()

    @table.kernel(op_type, since=since, types={0: frozenset(types)})
    def make(node):
        return function(node)

    return table


def _one_grid(x):
    y = relu(x)
    y.reshape(-1)[65536:] = 0
    return y


def _column_major(x):
    # Memory that is packed in some order is taken for packed in rows.
    return relu(x.ravel(order="A").reshape(x.shape)) if x.flags.forc else relu(x)


with_kernels("one grid only", "matrix/Relu-14/float/large-whole", "values wrong", Relu=_one_grid)
with_kernels("takes columns for rows", "zoo/relu", "Relu", Relu=_column_major)


def _swapping(node):
    return (lambda a, b: b - a) if node.constants[0] is not None else np.subtract


@animal("swaps a constant", "matrix/Sub-14/float/constant-left", "values wrong")
class SwapsConstant(CorrectProvider):
    table = KernelTable({"": 28})
    table.kernel("Sub", since=7, types={"T": frozenset({DataType.FLOAT})})(_swapping)


@animal("broadcasts as later versions do", "matrix/Sub-6/float/broadcast-middle", "fails|wrong")
class BroadcastsLate(CorrectProvider):
    table = KernelTable({"": 28})
    table.kernel("Sub", types={"T": frozenset({DataType.FLOAT})})(lambda node: np.subtract)


@animal("integers as doubles", "matrix/MatMul-13/int64/wide", "values wrong")
class AsDoubles(CorrectProvider):
    table = KernelTable({"": 28})
    table.kernel("MatMul", types={"T": frozenset({DataType.INT64})})(
        lambda node: lambda a, b: (a.astype(float) @ b).astype(a.dtype)
    )


@animal("narrows integers", "matrix/Gather-13/int64/values-int64", "values wrong")
class Narrows(CorrectProvider):
    table = _with(
        "Gather", lambda node: lambda x, i: np.take(x.astype(np.int32), i, axis=0).astype(x.dtype)
    )


@animal("drops NaN in a clip", "matrix/Clip-13/float/nan", "NaN|nan")
class DropsNaN(CorrectProvider):
    table = _with("Clip", lambda node: lambda x, a, b: np.fmin(np.fmax(x, a), b))


@animal("knows three dimensions", "matrix/Transpose-25/float/perm-0231", "shape|wrong")
class ThreeDimensions(CorrectProvider):
    table = _with("Transpose", lambda node: lambda x: np.ascontiguousarray(x.T))


@animal("misreads stretched inputs", "memory/stretched-inputs", "Add: inputs whose rows share")
class MisreadsStretched(CorrectProvider):
    table = table_with(Add=lambda a, b: a + (b if 0 not in a.strides else b + 1))


# ---------------------------------------------------------------- what is kept between runs


def _keeps_axes(node):
    kept = []

    def kernel(x, shape):
        kept.append(shape.copy())
        return np.reshape(x, kept[0]).copy()

    return kernel


@animal("keeps the first shape", "order/changing-inputs", "Reshape: run 2 of a partition")
class KeepsShape(CorrectProvider):
    table = _with("Reshape", _keeps_axes)


def _tires(node):
    runs = itertools.count()
    return lambda a, b: a @ b if next(runs) < 5 else a @ b + 1


@animal("wrong from the sixth run on", "order/changing-inputs", "MatMul: run 6 of a partition")
class Tires(CorrectProvider):
    table = KernelTable({"": 28})
    table.kernel("MatMul", types={"T": frozenset({DataType.FLOAT})})(_tires)


def _scratch(node):
    scratch = {}

    def kernel(x):
        scratch["x"] = x.copy()
        threading.Event().wait(0.0005)
        return np.exp(scratch["x"]) / np.exp(scratch["x"]).sum(axis=1, keepdims=True)

    return kernel


@animal("shares an operator's scratch", "order/operators-on-threads", "Softmax: runs on several")
class SharesOperatorScratch(CorrectProvider):
    table = _with("Softmax", _scratch)
