"""Operators that make tensors: constants, ranges, identity matrices, random draws."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.oracle.precision import Array

__all__: list[str] = []


@recipe("ConstantOfShape")
def constant_of_shape(ask: Ask) -> Iterator[Sample]:
    """A value of every type."""
    import onnx

    shape = ask.ints(2, 3)
    yield Sample("default", [shape], core=True)
    for kind in ask.output_types():
        value = onnx.numpy_helper.from_array(ask.numbers.random((1,), kind, 1, 1))
        yield Sample(f"{kind.text}", [shape], {"value": value}, core=True)
    yield Sample("rank0", [np.zeros(0, np.int64)])
    yield Sample("empty", [ask.ints(0, 4)])
    yield Sample("constant", [shape], constants=[0])


@recipe("EyeLike")
def eye_like(ask: Ask) -> Iterator[Sample]:
    """Offsets, and every output type."""
    x = ask.random(3, 4)
    yield Sample("plain", [x], core=True)
    yield Sample("k 1", [x], {"k": 1}, core=True)
    yield Sample("k -1", [x], {"k": -1})
    for kind in ask.output_types():
        yield Sample(f"to {kind.text}", [x], {"dtype": int(kind)}, core=True)


@recipe("Range")
def arange(ask: Ask) -> Iterator[Sample]:
    """Both directions; nothing where the limit is behind."""

    def scalars(*values: float) -> list[Array]:
        return [np.array(value).astype(ask.dtype.numpy) for value in values]

    yield Sample("plain", scalars(1, 9, 2), core=True)
    yield Sample("uneven", scalars(1, 8, 3), core=True)
    yield Sample("down", scalars(9, 1, -2), core=True)
    yield Sample("nothing", scalars(5, 1, 2))
    yield Sample("constant", scalars(0, 4, 1), constants=[0, 1, 2])
    if ask.is_float:
        yield Sample("fractions", scalars(0.5, 3, 0.25))


@recipe("BlackmanWindow HammingWindow HannWindow")
def window(ask: Ask) -> Iterator[Sample]:
    """Periodic and symmetric, in every type."""
    size = np.array(9, ask.dtype.numpy)
    for kind in ask.output_types():
        yield Sample(f"to {kind.text}", [size], {"output_datatype": int(kind)}, core=True)
    yield Sample("symmetric", [size], {"periodic": 0}, core=True)
    yield Sample("constant", [size], constants=[0])


@recipe("RandomNormal RandomUniform")
def random(ask: Ask) -> Iterator[Sample]:
    """Every type."""
    for kind in ask.output_types():
        yield Sample(f"{kind.text}", [], {"shape": [3, 4], "dtype": int(kind)}, core=True)


@recipe("RandomNormalLike RandomUniformLike")
def random_like(ask: Ask) -> Iterator[Sample]:
    """The input's type, or another."""
    kinds = ask.output_types()
    if ask.dtype in kinds:
        yield Sample("same type", [ask.random(3, 4)], core=True)
    for kind in kinds:
        yield Sample(f"to {kind.text}", [ask.random(3, 4)], {"dtype": int(kind)}, core=True)


@recipe("Bernoulli")
def bernoulli(ask: Ask) -> Iterator[Sample]:
    """Probabilities and outcomes of every type."""
    x = ask.random(3, 4, low=0, high=1)
    yield Sample("plain", [x], core=True)
    for kind in ask.output_types():
        yield Sample(f"to {kind.text}", [x], {"dtype": int(kind)}, core=True)


@recipe("Multinomial")
def multinomial(ask: Ask) -> Iterator[Sample]:
    """Both types of classes."""
    x = ask.random(2, 5)
    for kind in ask.output_types():
        yield Sample(f"to {kind.text}", [x], {"dtype": int(kind), "sample_size": 4}, core=True)
