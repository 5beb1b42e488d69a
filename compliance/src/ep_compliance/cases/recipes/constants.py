"""Inputs that are constants where models have them so: runtimes prepare those ahead, and otherwise.

Beside the samples of the operators' families, which make the second input constant at most.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_core.types import DataType

__all__: list[str] = []


@recipe("Add And Div Equal Greater Less MatMul Mul Or Sub Xor")
def left(ask: Ask) -> Iterator[Sample]:
    """A constant on the left, which may not change sides."""
    y = ask.random(3, 3, low=1, high=7)
    yield Sample("constant left", [ask.random(3, 3), y], constants=[0])


@recipe("Add Div Mul Sub")
def scalar(ask: Ask) -> Iterator[Sample]:
    """A constant number, which a runtime may take for an attribute of a narrower type."""
    value = np.asarray(7 if ask.dtype.is_integer else 0.3).astype(ask.dtype.numpy)
    x = ask.random(3, 4)
    yield Sample("constant number", [x, value], constants=[1])
    if ask.version >= 7:
        yield Sample(
            "constant number left", [value, ask.random(3, 4, low=1, high=7)], constants=[0]
        )


@recipe("Pow")
def power(ask: Ask) -> Iterator[Sample]:
    """Exponents that have short cuts."""
    if not ask.is_float:
        return
    for name, value in {"square": 2, "cube": 3, "root": 0.5, "reciprocal": -1, "one": 0}.items():
        exponent = np.asarray(value).astype(ask.type_of(1, ask.dtype).numpy)
        yield Sample(
            f"constant {name}", [ask.random(3, 4, low=0.2, high=4), exponent], constants=[1]
        )


@recipe("Gather")
def gather(ask: Ask) -> Iterator[Sample]:
    """A table of constants, and one constant index."""
    table = ask.random(7, 4)
    yield Sample("constant table", [table, ask.ints(6, 0, 3, 3).reshape(2, 2)], constants=[0])
    yield Sample("constant number", [table, np.array(5, np.int64)], constants=[1])


@recipe("Where")
def where(ask: Ask) -> Iterator[Sample]:
    """One branch or both are constants, of the same shape or single numbers."""
    mask, number = ask.random(3, 4), np.array(-3, np.float32)
    x, y = (ask.random(3, 4, dtype=DataType.FLOAT) for _ in range(2))
    yield Sample("constant first", [mask, x, y], constants=[1])
    yield Sample("constant second", [mask, x, y], constants=[2])
    yield Sample("number first", [mask, number, y], constants=[1])
    yield Sample("number second", [mask, x, number], constants=[2])


@recipe("Clip")
def clip(ask: Ask) -> Iterator[Sample]:
    """One bound alone is constant."""
    if ask.version >= 11:
        bound = np.asarray(2).astype(ask.dtype.numpy)
        yield Sample("constant low", [ask.random(3, 4), bound], constants=[1])
        yield Sample("constant high", [ask.random(3, 4), None, bound], constants=[2])


@recipe("Conv")
def conv(ask: Ask) -> Iterator[Sample]:
    """Constant weights beside a bias that is computed, and the other way round."""
    x, w, b = ask.random(1, 3, 5, 5), ask.random(4, 3, 3, 3), ask.random(4)
    yield Sample("constant weights", [x, w, b], constants=[1])
    yield Sample("constant bias", [x, w, b], constants=[2])


@recipe("Gemm")
def gemm(ask: Ask) -> Iterator[Sample]:
    """Constant weights as exporters store them."""
    base = {"broadcast": 1} if ask.has("broadcast") else {}
    inputs = [ask.random(3, 5), ask.random(4, 5), ask.random(4)]
    yield Sample("constant transposed", inputs, {**base, "transB": 1}, constants=[1, 2])


@recipe("MatMul")
def matmul(ask: Ask) -> Iterator[Sample]:
    """A batch of constant matrices."""
    yield Sample("constant batch", [ask.random(2, 3, 4), ask.random(2, 4, 5)], constants=[1])


@recipe("ReduceMax ReduceMean ReduceMin ReduceSum")
def reduction(ask: Ask) -> Iterator[Sample]:
    """Constant axes, without the dimensions that are reduced."""
    if ask.takes(1):
        inputs = [ask.random(2, 3, 4), ask.ints(1)]
        yield Sample("constant, no keepdims", inputs, {"keepdims": 0}, constants=[1])
