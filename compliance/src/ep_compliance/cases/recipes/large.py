"""Sizes at which implementations change their ways: grids, blocks, vectors with a rest.

Every shape here has more than 65 536 elements and isn't a multiple of anything. They are asked of
few types, as what goes wrong is indexing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_core.types import DataType

__all__: list[str] = []

_NAME = "large, whole"
_LENGTH = 67_001
_TYPES = (DataType.FLOAT, DataType.INT64)


def _asked(ask: Ask) -> bool:
    return ask.dtype in _TYPES and ask.kind.startswith("tensor(")


@recipe(
    "Abs Cos Erf Exp Gelu HardSigmoid HardSwish Identity LeakyRelu Log Neg Not Reciprocal Relu "
    "Sigmoid Sign Sin Softplus Sqrt Tanh"
)
def unary(ask: Ask) -> Iterator[Sample]:
    """One long row."""
    if _asked(ask):
        yield Sample(_NAME, [ask.random(_LENGTH, low=1, high=3)])


@recipe("Add Div Equal Greater Less Max Min Mul Pow Sub")
def binary(ask: Ask) -> Iterator[Sample]:
    """Equal shapes, and a row for every row."""
    if not _asked(ask) or (ask.version < 8 and ask.op_type in ("Max", "Min")):
        return
    kind = ask.type_of(1, ask.dtype)
    for name, right in {_NAME: (261, 257), f"{_NAME}, row": (257,)}.items():
        if right == (261, 257) or ask.version >= 7:
            sides = [
                ask.random(261, 257, low=1, high=3),
                ask.random(*right, dtype=kind, low=1, high=3),
            ]
            yield Sample(name, sides)


@recipe("Cast")
def cast(ask: Ask) -> Iterator[Sample]:
    """To a float and to an integer."""
    if _asked(ask) and ask.version >= 6:
        for target in (DataType.FLOAT16, DataType.INT32):
            x = ask.random(_LENGTH)
            yield Sample(f"{_NAME}, to {target.text}", [x], {"to": int(target)})


@recipe("Concat Expand Gather Pad Reshape Slice Split Transpose Where")
def moved(ask: Ask) -> Iterator[Sample]:
    """Whole matrices that are moved."""
    if ask.op_type == "Where":
        mask = ask.random(261, 257)
        yield Sample(_NAME, [mask, *(ask.random(261, 257, dtype=DataType.FLOAT) for _ in "xy")])
        return
    if not _asked(ask):
        return
    x = ask.random(261, 257)
    indices = np.arange(301, dtype=np.int64) * 7 % 261
    bounds = [ask.ints(1), ask.ints(260), ask.ints(0)]
    newest: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "Concat": ([x, x[:30]], {"axis": 0}),
        "Expand": ([x[:1], ask.ints(261, 257)], {}),
        "Gather": ([x, indices], {"axis": 0}),
        "Pad": ([x, ask.ints(1, 0, 2, 3)], {}),
        "Reshape": ([x, ask.ints(257, -1)], {}),
        "Slice": ([x, *bounds], {}),
        "Split": ([x, ask.ints(260, 1)], {"axis": 0}),
        "Transpose": ([x], {"perm": [1, 0]}),
    }
    inputs, attributes = newest[ask.op_type]
    if len(inputs) > 1 and not ask.takes(1) and ask.op_type != "Concat":
        return
    if ask.op_type == "Slice" and ask.version < 10:
        return
    if ask.op_type == "Split" and ask.version == 1:
        return
    yield Sample(_NAME, inputs, attributes, outputs=2 if ask.op_type == "Split" else 1)


@recipe("MatMul")
def matmul(ask: Ask) -> Iterator[Sample]:
    """Many results, and long sums."""
    if _asked(ask):
        yield Sample(_NAME, [ask.random(263, 17), ask.random(17, 257)])
        yield Sample(f"{_NAME}, long sums", [ask.random(3, 3001), ask.random(3001, 31)])


@recipe("Conv")
def conv(ask: Ask) -> Iterator[Sample]:
    """An image of a usual size."""
    if _asked(ask):
        image, kernel = ask.random(1, 3, 131, 133), ask.random(5, 3, 3, 3)
        yield Sample(_NAME, [image, kernel], {"pads": [1, 1, 1, 1]})


@recipe("AveragePool MaxPool")
def pool(ask: Ask) -> Iterator[Sample]:
    """An image of a usual size."""
    if _asked(ask):
        yield Sample(_NAME, [ask.random(1, 5, 131, 133)], {"kernel_shape": [2, 2]})


@recipe("ReduceMax ReduceMean ReduceSum")
def reduction(ask: Ask) -> Iterator[Sample]:
    """Over all, over long rows, over long columns."""
    if not _asked(ask):
        return
    x = ask.random(67, 1031)
    yield Sample(f"{_NAME}, all", [x])
    for axis in (0, 1):
        inputs = [x, ask.ints(axis)] if ask.takes(1) else [x]
        attributes = {} if ask.takes(1) else {"axes": [axis]}
        yield Sample(f"{_NAME}, axis {axis}", inputs, attributes)


@recipe("LogSoftmax Softmax")
def softmax(ask: Ask) -> Iterator[Sample]:
    """Rows longer than a block, more rows than a grid, and the ranks of real models."""
    yield Sample("rank1", [ask.random(9)], {"axis": 0})
    yield Sample("rank4", [ask.random(2, 3, 4, 5)], {"axis": 3})
    if _asked(ask):
        yield Sample(f"{_NAME}, long rows", [ask.random(33, 2049)], {"axis": 1})
        yield Sample(f"{_NAME}, many rows", [ask.random(66_001, 3)], {"axis": 1})


@recipe("LayerNormalization")
def layer_normalization(ask: Ask) -> Iterator[Sample]:
    """Rows longer than a block, and many rows; short ones could be nearly constant."""
    if _asked(ask):
        for shape in ((33, 2049), (4099, 17)):
            parameters = [ask.random(shape[-1]) for _ in range(2)]
            yield Sample(f"{_NAME}, rows of {shape[-1]}", [ask.random(*shape), *parameters])
