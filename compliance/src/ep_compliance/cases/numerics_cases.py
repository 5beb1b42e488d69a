"""Cases on what `Numerics` is about: denormal operands, and sums of 16-bit floats that are long.

The matrix asks functions of one input about denormals; here it is operators of two, where reading
one as zero changes the answer. Sums are long enough, and their terms of one sign, so that a sum
kept in 16 bits shows. Ids are `numerics/<operator>-<version>/<type>/<what>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ep_compliance.cases.case import Case
from ep_compliance.cases.models import one_node
from ep_compliance.cases.recipes.numbers import Numbers, denormals
from ep_compliance.cases.subjects import schemas_of, subject_of
from ep_compliance.oracle.precision import Array
from ep_core.types import DataType

__all__ = ["numerics_cases"]

_NARROW = (DataType.FLOAT16, DataType.BFLOAT16)
_TYPES = (*_NARROW, DataType.FLOAT, DataType.DOUBLE)
_PAIRED = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Equal")

_SUMS: Mapping[str, Sequence[tuple[int, ...]]] = {
    "Conv": ((1, 64, 4, 4), (2, 64, 4, 4)),
    "CumSum": ((1024,),),
    "Gemm": ((2, 1024), (1024, 3), (3,)),
    "GlobalAveragePool": ((1, 2, 32, 32),),
    "MatMul": ((2, 1024), (1024, 3)),
    "ReduceMean": ((2, 1024),),
    "ReduceSum": ((2, 1024),),
}
"""Shapes of the inputs that are summed up."""


def numerics_cases() -> Iterator[Case]:
    """Yield the cases, of every operator's newest version."""
    for op_type in _PAIRED:
        for dtype in _TYPES:
            yield _case(op_type, dtype, "denormal-operands", _operands(dtype))
    for op_type, shapes in _SUMS.items():
        for dtype in _NARROW:
            numbers = Numbers(f"numerics/{op_type}/{dtype.text}")
            inputs = [numbers.random(shape, dtype, 0.0, 1.0) for shape in shapes]
            if op_type == "CumSum":
                inputs.append(np.array(0, np.int64))
            yield _case(op_type, dtype, "long-sum", inputs)


def _operands(dtype: DataType) -> list[Array]:
    """Every denormal with every other, and with numbers beside which it vanishes or doesn't."""
    others = np.array([0.0, 0.5, -1.0, 3.0], np.float64).astype(dtype.numpy)
    values = np.concatenate([denormals(dtype), others])
    return [np.ascontiguousarray(side) for side in np.meshgrid(values, values, indexing="ij")]


def _case(op_type: str, dtype: DataType, what: str, inputs: Sequence[Any]) -> Case:
    schema = schemas_of("", op_type)[-1]
    model, names = one_node(schema, inputs, {})
    return Case(
        id=f"numerics/{op_type}-{schema.since_version}/{dtype.text}/{what}",
        model=model,
        inputs=dict(zip(names, inputs, strict=True)),
        subject=subject_of(model, model.graph.node[0]),
    )
