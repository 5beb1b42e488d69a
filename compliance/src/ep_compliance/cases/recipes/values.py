"""Values that tell a type from a narrower one, where an operator's family asks ordinary ones only.

What is moved must arrive bit for bit, limits and NaN included; integers must not pass through a
type that holds fewer of them; a NaN must not get lost. Samples are the families' own with other
values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.activations import clip
from ep_compliance.cases.recipes.elementwise import variadic
from ep_compliance.cases.recipes.indexing import (
    compress,
    gather,
    gather_elements,
    gather_nd,
    one_hot,
    reverse_sequence,
    scatter_elements,
    scatter_nd,
    tensor_scatter,
    top_k,
    unique,
)
from ep_compliance.cases.recipes.movement import (
    depth,
    expand,
    flatten,
    pad,
    reshape,
    slices,
    split,
    squeeze,
    tile,
    trilu,
    where,
)
from ep_compliance.cases.recipes.normalizations import batch_normalization, layer_normalization
from ep_compliance.cases.recipes.numbers import special_values
from ep_compliance.cases.recipes.pools import pool
from ep_compliance.cases.recipes.products import einsum, gemm
from ep_compliance.cases.recipes.reductions import arg_reduction, reduction, running, softmax
from ep_compliance.oracle.precision import Array
from ep_core.types import DataType

__all__: list[str] = []

_MOVED: Mapping[str, tuple[Any, tuple[int, ...]]] = {
    "Compress": (compress, (0,)),
    "DepthToSpace": (depth, (0,)),
    "Expand": (expand, (0,)),
    "Flatten": (flatten, (0,)),
    "Gather": (gather, (0,)),
    "GatherElements": (gather_elements, (0,)),
    "GatherND": (gather_nd, (0,)),
    "OneHot": (one_hot, (2,)),
    "Pad": (pad, (0,)),
    "Reshape": (reshape, (0,)),
    "ReverseSequence": (reverse_sequence, (0,)),
    "Scatter": (scatter_elements, (0, 2)),
    "ScatterElements": (scatter_elements, (0, 2)),
    "ScatterND": (scatter_nd, (0, 2)),
    "Slice": (slices, (0,)),
    "SpaceToDepth": (depth, (0,)),
    "Split": (split, (0,)),
    "Squeeze": (squeeze, (0,)),
    "TensorScatter": (tensor_scatter, (0, 1)),
    "Tile": (tile, (0,)),
    "Trilu": (trilu, (0,)),
    "Unsqueeze": (squeeze, (0,)),
    "Where": (where, (1, 2)),
}
"""By operator, its family's recipe and which inputs are moved."""


@recipe(" ".join(_MOVED))
def moved(ask: Ask) -> Iterator[Sample]:
    """The first sample with special values; of operators that have several types, one of each."""
    family, places = _MOVED[ask.op_type]
    asked: set[DataType] = set()
    for sample in family(ask):
        kind = DataType.from_numpy(np.asarray(sample.inputs[places[0]]).dtype)
        if kind in asked or kind is DataType.FLOAT8E8M0:
            continue
        asked.add(kind)
        special = special_values(kind)
        inputs = list(sample.inputs)
        for number, place in enumerate(places):
            shape = np.shape(inputs[place])
            inputs[place] = np.resize(np.roll(special, -2 * number), shape)
        yield dataclasses.replace(sample, name=f"values {kind.text}", inputs=inputs, core=False)
        if 0 in places:
            return


_WIDE = (DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64)


def _wide(ask: Ask, shape: tuple[int, ...]) -> Array:
    """Neighbours that a float of as many bits can't tell apart; a few of them fit into a sum."""
    start = 2 ** (8 * ask.dtype.numpy.itemsize - 4)
    near = ask.numbers.distinct(shape, DataType.INT64) + 64
    return np.asarray(near + start).astype(ask.dtype.numpy)


_FAMILIES: Mapping[str, Any] = {
    "ArgMax": arg_reduction,
    "ArgMin": arg_reduction,
    "Clip": clip,
    "CumSum": running,
    "Max": variadic,
    "Min": variadic,
    "ReduceL1": reduction,
    "ReduceMax": reduction,
    "ReduceMin": reduction,
    "ReduceSum": reduction,
    "Sum": variadic,
    "TopK": top_k,
    "Unique": unique,
}


@recipe(" ".join(_FAMILIES))
def whole_numbers(ask: Ask) -> Iterator[Sample]:
    """The first sample with integers that no float holds."""
    if ask.dtype not in _WIDE:
        return
    sample = next(_FAMILIES[ask.op_type](ask))
    x = _wide(ask, np.shape(sample.inputs[0]))
    inputs = [x, *sample.inputs[1:]]
    if ask.op_type == "Clip":
        low, *_, high = np.sort(x.ravel())[2:-2]
        inputs = [x, np.asarray(low), np.asarray(high)]
    yield dataclasses.replace(sample, name="wide", inputs=inputs, core=False)


@recipe("Div Mod")
def divided(ask: Ask) -> Iterator[Sample]:
    """Large integers by small ones."""
    if ask.dtype in _WIDE:
        yield Sample("wide", [_wide(ask, (3, 4)), ask.random(3, 4, low=1, high=7)])


@recipe("Einsum MatMul")
def products(ask: Ask) -> Iterator[Sample]:
    """Sums that fit, of products that no float holds; Gemm has factors that are floats."""
    if ask.dtype not in _WIDE:
        return
    half = 4 * ask.dtype.numpy.itemsize
    a = ask.random(2, 3, low=2 ** (half - 2), high=2 ** (half - 1))
    b = ask.random(3, 4, low=2 ** (half - 4), high=2 ** (half - 3))
    if ask.op_type == "MatMul":
        yield Sample("wide", [a, b])
    else:
        yield Sample("wide", [a, b], {"equation": "ij,jk->ik"})


@recipe("Cast")
def cast(ask: Ask) -> Iterator[Sample]:
    """Integers whose lower half is zero, and others that a narrower type would change."""
    if ask.dtype in (DataType.INT64, DataType.UINT64) and ask.version >= 6:
        x = np.array([2**32, 2**40, 2**60 + 1, 2**31, 0, 2**53 - 1]).astype(ask.dtype.numpy)
        for target in (DataType.BOOL, DataType.FLOAT, DataType.DOUBLE):
            yield Sample(f"wide to {target.text}", [x], {"to": int(target)})


@recipe("Range")
def ranged(ask: Ask) -> Iterator[Sample]:
    """A range beyond 32 bits."""
    if ask.dtype is DataType.INT64:
        start, limit, delta = 2**60 + 1, 2**60 + 12, 3
        yield Sample("wide", [np.array(number) for number in (start, limit, delta)])


_SPOILT: Mapping[str, Any] = {
    "AveragePool": pool,
    "BatchNormalization": batch_normalization,
    "Clip": clip,
    "CumSum": running,
    "Einsum": einsum,
    "Gemm": gemm,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": softmax,
    "Softmax": softmax,
}


@recipe(" ".join(_SPOILT))
def not_a_number(ask: Ask) -> Iterator[Sample]:
    """The first sample with one NaN; what it reaches is NaN and nothing else."""
    if not ask.is_float:
        return
    sample = next(_SPOILT[ask.op_type](ask))
    x = np.array(sample.inputs[0])
    x.flat[1] = np.nan
    yield dataclasses.replace(sample, name="nan", inputs=[x, *sample.inputs[1:]], core=False)
