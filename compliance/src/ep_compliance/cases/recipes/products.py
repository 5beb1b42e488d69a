"""Products of matrices, quantized ones included; Einsum and Det."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ep_compliance.cases.case import Level
from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.numbers import scattered
from ep_core.types import DataType

__all__: list[str] = []

_SHAPES = {
    "plain": ((2, 3), (3, 4)),
    "vector left": ((3,), (3, 4)),
    "vector right": ((2, 3), (3,)),
    "vectors": ((5,), (5,)),
    "batch": ((2, 3, 4), (2, 4, 5)),
    "batch broadcast": ((3, 1, 2, 4), (5, 4, 3)),
    "row": ((1, 7), (7, 5)),
    "column": ((7, 5), (5, 1)),
    "odd": ((17, 31), (31, 13)),
    "one": ((1, 1), (1, 1)),
    "empty rows": ((0, 3), (3, 2)),
    "empty sum": ((2, 0), (0, 3)),
}


@recipe("MatMul")
def matmul(ask: Ask) -> Iterator[Sample]:
    """All ranks; a sum of nothing is zero."""
    for name, (left, right) in _SHAPES.items():
        core = name in ("plain", "batch")
        yield Sample(name, [ask.random(*left), ask.random(*right)], core=core)
    x, y = ask.random(4, 6), ask.random(6, 3)
    yield Sample("constant", [x, y], constants=[1])
    yield Sample("symbolic", [x, y], symbolic=True)
    yield Sample("strided", [scattered(x), scattered(y)])
    large = [ask.random(65, 257), ask.random(257, 129)]
    yield Sample("large", large, level=Level.SOAK)
    if ask.is_float:
        x = ask.random(3, 4)
        x[0, 1], x[1, 2] = np.nan, np.inf
        yield Sample("special", [x, ask.random(4, 2, low=0.5, high=1)])


@recipe("Gemm")
def gemm(ask: Ask) -> Iterator[Sample]:
    """Transposes, factors, biases of every shape."""
    a, b = ask.random(3, 5), ask.random(5, 4)
    c = ask.random(4)
    base = {"broadcast": 1} if ask.has("broadcast") else {}
    integer = ask.dtype.is_integer
    yield Sample("plain", [a, b, ask.random(3, 4)], core=True)
    yield Sample("row bias", [a, b, c], base, core=True)
    factors = {"alpha": 2.0, "beta": 3.0} if integer else {"alpha": 0.5, "beta": 0.25}
    yield Sample("factors", [a, b, c], {**base, **factors}, core=True)
    transposed = [np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), c]
    yield Sample("transposed", transposed, {**base, "transA": 1, "transB": 1}, core=True)
    yield Sample("transB", [a, transposed[1], c], {**base, "transB": 1}, core=True)
    yield Sample("constant", [a, b, c], base, constants=[1, 2])
    yield Sample("symbolic", [a, b, ask.random(3, 4)], symbolic=True)
    yield Sample("empty", [ask.random(0, 5), b, c], base)
    yield Sample("empty sum", [ask.random(3, 0), ask.random(0, 4), c], base)
    if ask.version >= 7:
        yield Sample("column bias", [a, b, ask.random(3, 1)])
        yield Sample("rank0 bias", [a, b, ask.random()])
    if ask.version >= 11:
        yield Sample("no bias", [a, b], core=True)
        yield Sample("zero beta", [a, b, np.full(4, 7).astype(ask.dtype.numpy)], {"beta": 0.0})


@recipe("MatMulInteger")
def matmul_integer(ask: Ask) -> Iterator[Sample]:
    """Both signs on both sides, zero points of every kind, the largest sums."""
    for kind in ask.types(1):
        a, b = ask.random(3, 5, low=-128, high=255), ask.random(5, 4, dtype=kind)
        yield Sample(f"with {kind.text}", [a, b], core=True)
        points = [ask.random(low=1, high=9), ask.numbers.random((), kind, 1, 9)]
        yield Sample(f"with {kind.text}, zero points", [a, b, *points], core=True)
        column = ask.numbers.random((4,), kind, 1, 9)
        yield Sample(f"with {kind.text}, per column", [a, b, points[0], column])
    limit = np.iinfo(ask.dtype.numpy)
    full = np.full((2, 300), limit.max, ask.dtype.numpy)
    other = np.full((300, 2), 127, DataType(ask.types(1)[0]).numpy)
    yield Sample("largest", [full, other])


@recipe("QLinearMatMul")
def qlinear_matmul(ask: Ask) -> Iterator[Sample]:
    """Per tensor and per column, and every choice of types."""
    yield from _mixed_codes(ask)
    other = ask.dtype
    scale_kind = ask.type_of(1, DataType.FLOAT)
    one = np.array(0 if other.is_float else 1, other.numpy)
    for name, scales in {"plain": (0.05, 0.1, 0.2), "saturated": (1.0, 1.0, 0.01)}.items():
        sa, sb, sy = (np.array(scale, scale_kind.numpy) for scale in scales)
        a, b = ask.random(3, 5, low=-50, high=90), ask.random(5, 4, low=-50, high=90)
        yield Sample(name, [a, sa, one, b, sb, one, sy, one], core=True)
    yield Sample("constant", [a, sa, one, b, sb, one, sy, one], constants=[3, 4, 5])


def _mixed_codes(ask: Ask) -> Iterator[Sample]:
    a = ask.random(2, 3, low=-9, high=20)
    for kind in ask.types(3):
        b = ask.numbers.random((3, 2), kind, -9, 20)
        for target in ask.output_types():
            if len({k.is_float for k in (ask.dtype, kind, target)}) > 1:
                continue  # nobody defines products of integers and floats
            for scale_kind in ask.types(1):
                scales = [np.array(scale, scale_kind.numpy) for scale in (0.0625, 0.125, 0.5)]
                zeros = [np.array(0, k.numpy) for k in (ask.dtype, kind, target)]
                inputs = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
                name = f"{kind.text} to {target.text} by {scale_kind.text}"
                yield Sample(name, inputs, core=True)


@recipe("Einsum")
def einsum(ask: Ask) -> Iterator[Sample]:
    """Products, traces, transposes, ellipses, sums."""
    x, y = ask.random(2, 3), ask.random(3, 4)
    batch = [ask.random(2, 3, 4), ask.random(2, 4, 5)]
    square = ask.random(3, 3)
    for name, equation, inputs in (
        ("matmul", "ij,jk->ik", [x, y]),
        ("implicit", "ij,jk", [x, y]),
        ("batch", "bij,bjk->bik", batch),
        ("ellipsis", "...ij,...jk->...ik", batch),
        ("transpose", "ij->ji", [x]),
        ("sum", "ij->", [x]),
        ("diagonal", "ii->i", [square]),
        ("outer", "i,j->ij", [ask.random(3), ask.random(2)]),
        ("spaces", " i j , j k -> k i ", [x, y]),
    ):
        yield Sample(name, inputs, {"equation": equation}, core=name in ("matmul", "transpose"))


@recipe("Det")
def det(ask: Ask) -> Iterator[Sample]:
    """One matrix and batches."""
    yield Sample("plain", [ask.random(3, 3)], core=True)
    yield Sample("batch", [ask.random(2, 2, 4, 4)])
    yield Sample("one", [ask.random(1, 1)])
