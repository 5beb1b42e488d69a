"""Right answers of a provider that declares that it flushes denormals.

What is right follows the OpenCL C specification (section 7.5.3, edge cases in flush-to-zero mode):
the result for the inputs as they are, or for one or more denormal inputs read as zeros, either of
them flushed in its turn where it is a denormal; the sign of such a zero is undefined. Flushed
results are `tolerance`'s business; here it is what comes of flushed inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ep_compliance.cases.case import Case
from ep_compliance.errors import OracleError
from ep_compliance.oracle.evaluate import Evaluator
from ep_compliance.oracle.precision import Array, float_format, is_float

__all__ = ["nearest_flushed"]


def nearest_flushed(case: Case, got: Sequence[Any], expected: Sequence[Any]) -> list[Any]:
    """Return the expected outputs, each element replaced by the right answer nearest to it.

    Args:
        got: the provider's outputs.
        expected: the right ones of a provider that flushes nothing.
    """
    nearest = list(expected)
    for answers in _alternatives(case):
        for index, (mine, right, other) in enumerate(zip(got, nearest, answers, strict=False)):
            nearest[index] = _nearer(mine, right, other)
    return nearest


def _alternatives(case: Case) -> Iterator[Sequence[Any]]:
    """Outputs with all denormals between operators read as zeros, and with those of one input."""
    if case.recorded is not None:
        # Such an operator has no evaluation of ours, so no other answer can be told.
        return
    held = [name for name, value in case.arrays.items() if _has_denormals(value)]
    choices: list[Sequence[str]] = [[name] for name in held] if len(held) > 1 else []
    for sign in (1.0, -1.0):
        try:
            evaluator = Evaluator(case.model)
            everywhere = functools.partial(_flushed, sign=sign)
            yield evaluator.rounded(evaluator.run(case.inputs, disturb=everywhere))
            for names in choices:
                yield evaluator.rounded(evaluator.run(_with_flushed(case.inputs, names, sign)))
        except OracleError:
            continue


def _with_flushed(inputs: Mapping[str, Any], names: Sequence[str], sign: float) -> dict[str, Any]:
    """The inputs, those that are named without denormals."""
    flushed = {
        name: _flushed(inputs[name].astype(np.float64), inputs[name].dtype, sign) for name in names
    }
    return {**inputs, **{name: v.astype(inputs[name].dtype) for name, v in flushed.items()}}


def _flushed(values: Array, dtype: np.dtype[Any], sign: float) -> Array:
    """Float64 values with zeros for what is a denormal of `dtype`; `sign` -1 turns their signs."""
    zeros = np.copysign(0.0, sign * values)
    return np.where(_are_denormal(values, dtype), zeros, values)


def _are_denormal(values: Array, dtype: np.dtype[Any]) -> Array:
    magnitudes = np.abs(values)
    return np.asarray((magnitudes > 0) & (magnitudes < float_format(dtype).smallest_normal))


def _has_denormals(value: Array) -> bool:
    if not is_float(value.dtype):
        return False
    with np.errstate(all="ignore"):
        return bool(_are_denormal(value.astype(np.float64), value.dtype).any())


def _nearer(got: Any, right: Any, other: Any) -> Any:
    """`right`, with elements of `other` where they are nearer to what came."""
    arrays = (got, right, other)
    if not all(isinstance(value, np.ndarray) and value.dtype != object for value in arrays):
        return right
    if other.dtype != right.dtype or got.dtype != right.dtype or got.shape != other.shape:
        return right
    if other.shape != right.shape:
        # Where zeros decide on the shape, as in NonZero, all of the answer is another.
        return other
    if not (is_float(right.dtype) or right.dtype.kind in "iub"):
        return right
    mine, first, second = (value.astype(np.float64) for value in arrays)
    zeros = (mine == 0) & (second == 0)
    with np.errstate(all="ignore"):
        nearer = _distance(mine, second) < _distance(mine, first)
    nearer |= zeros & (np.signbit(mine) == np.signbit(second))
    # The sign of a zero that comes of a flushed one is undefined.
    return np.where(nearer, np.where(zeros, got, other), right)


def _distance(a: Array, b: Array) -> Array:
    """|a - b|; nothing between equal infinities or two NaN, infinite where only one is a NaN."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
