"""Judges outputs: right, or a sentence on where they are wrong, by how much, what was allowed.

Which operator is allowed what is in `classes`; this file knows only how values are compared.
There is no global tolerance here and no way to loosen one; see `overrides` for single cases.

How a floating value is judged. Everything is compared in float64, which holds every ONNX float
exactly. `got` is right where

    |got - expected| <= ulps * spacing(expected) + c * sqrt(K) * eps * scale + absolute

- `ulps`: units in the last place of the output's own type, at the expected value. `expected` is
  the exact answer rounded once, so 0 means correctly rounded. A result off by one neighbour is 1.
- `c * sqrt(K) * eps * scale`: for sums of K terms. Any order of summation errs by at most
  gamma_K = K*u/(1 - K*u) times the sum of magnitudes (Higham, "Accuracy and Stability of Numerical
  Algorithms", 2nd ed., eq. 3.4 and 4.4), u = eps/2; with roundings that are independent and of mean
  zero the error stays below lambda*sqrt(K)*u with a probability of at least 1 - 2*exp(-lambda^2/2)
  (Higham and Mary, SIAM J. Sci. Comput. 41, 2019). lambda = 8, hence c = 4, leaves about 1e-14;
  the smaller of the two bounds counts. `eps` is that of the accumulator: float32 for narrower
  types, unless the output is a 16-bit float and the provider declares narrow accumulation.
- `absolute`: what the condition of the problem costs, measured by the oracle (see `classes`).

For float64 outputs the oracle errs as much as the provider, so the allowance is doubled.

NaN stands where NaN is expected and nowhere else; payloads and signs of NaN mean nothing in ONNX.
An infinity must be matched. The other way round, an infinity counts as the value after the largest
finite one, so that a number within its allowance of overflowing may overflow. Signs of zeros count
where the operator defines them. Denormals count like any other number, unless the provider declares
that it flushes them: then a zero is accepted for a denormal; inputs that it reads as zeros are
`flushing`'s business. Integers, bools and strings are exact, save for the `steps` that a quantizing
operator allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ep_compliance.oracle.precision import Array, float_format, is_float, spacing
from ep_core.contracts import Numerics
from ep_core.types import DataType

__all__ = ["EXACT", "SUM_FACTOR", "Allowance", "Context", "allowed_errors", "judge"]

SUM_FACTOR = 4.0
"""`c` above: half of the lambda of Higham and Mary, because u is half of eps."""

_NARROW_BYTES = 2
"""Size of the types whose sums `narrow_accumulation` is about."""


@dataclass(frozen=True, eq=False, slots=True)
class Allowance:
    """How far one output may be from the expected one.

    Attributes:
        rule: for a person, e.g. `Exp: 3 ULP`.
        ulps: units in the last place of the output's type.
        terms: K, the number of terms of each sum; 0 where nothing is summed.
        scale: sum of the magnitudes of the terms, per element or one for all.
        absolute: in the output's own unit, per element or one for all.
        steps: how far an integer may be off; where `near_tie` is given, only there.
        near_tie: elements whose exact value is so close to a tie that rounding may go either way.
        error: upper limit of the normalised mean square error, None for no such limit.
        signed_zeros: the sign of a zero counts.
    """

    rule: str
    ulps: float = 0.0
    terms: int = 0
    scale: Array | float = 0.0
    absolute: Array | float = 0.0
    steps: int = 0
    near_tie: Array | None = None
    error: float | None = None
    signed_zeros: bool = False


EXACT = Allowance("exact", signed_zeros=True)
"""Equal values: integers, bools, strings, and whatever only moves data."""


@dataclass(frozen=True, eq=False, slots=True)
class Context:
    """How the outputs of one case are judged.

    Attributes:
        allowances: one for each output; outputs without one are exact.
        numerics: what the provider declares.
        draws: outputs are random; only dtypes and shapes count.
        names: of the outputs, for the message.
    """

    allowances: Sequence[Allowance] = ()
    numerics: Numerics = field(default_factory=Numerics)
    draws: bool = False
    names: Sequence[str] = ()

    def allowance(self, index: int) -> Allowance:
        """The allowance of the output at `index`."""
        return self.allowances[index] if index < len(self.allowances) else EXACT

    def name(self, index: int) -> str:
        """What to call the output at `index`."""
        return self.names[index] if index < len(self.names) else str(index)


def judge(got: Sequence[Any], expected: Sequence[Any], context: Context) -> str | None:
    """Return None if the outputs are right, else why they aren't, for a person.

    Args:
        got: the provider's outputs in the model's order.
        expected: the right ones; arrays, lists, dicts or None.
        context: what is allowed, from the oracle's answer.
    """
    if len(got) != len(expected):
        return f"{len(expected)} outputs expected, got {len(got)}"
    for index, (mine, right) in enumerate(zip(got, expected, strict=True)):
        problem = _judge_value(mine, right, context.allowance(index), context)
        if problem is not None:
            return f"output {context.name(index)}: {problem}"
    return None


def _judge_value(got: Any, expected: Any, allowance: Allowance, context: Context) -> str | None:
    """One value of any kind; sequences, maps and optionals go down to their tensors."""
    if expected is None:
        return None if got is None else f"nothing expected, got {_kind(got)}"
    if isinstance(expected, Mapping):
        return _judge_map(got, expected, allowance, context)
    if isinstance(expected, list | tuple):
        return _judge_sequence(got, expected, allowance, context)
    if not isinstance(expected, np.ndarray):
        expected = np.asarray(expected)
        got = np.asarray(got)
    if not isinstance(got, np.ndarray):
        return f"a tensor expected, got {_kind(got)}"
    return _judge_array(got, expected, allowance, context)


def _judge_map(
    got: Any, expected: Mapping[Any, Any], allowance: Allowance, context: Context
) -> str | None:
    if not isinstance(got, Mapping):
        return f"a map expected, got {_kind(got)}"
    if list(got) != list(expected):
        return f"keys {list(expected)} expected, got {list(got)}"
    for key, right in expected.items():
        wanted = np.asarray(right)
        mine = got[key]
        if not isinstance(mine, np.ndarray | np.generic):
            # A Python number says nothing about its type.
            mine = np.asarray(mine, wanted.dtype)
        problem = _judge_value(np.asarray(mine), wanted, allowance, context)
        if problem is not None:
            return f"key {key!r}: {problem}"
    return None


def _judge_sequence(
    got: Any, expected: Sequence[Any], allowance: Allowance, context: Context
) -> str | None:
    if not isinstance(got, list | tuple):
        return f"a sequence expected, got {_kind(got)}"
    if len(got) != len(expected):
        return f"a sequence of {len(expected)} expected, got {len(got)}"
    for place, (mine, right) in enumerate(zip(got, expected, strict=True)):
        problem = _judge_value(mine, right, allowance, context)
        if problem is not None:
            return f"element {place}: {problem}"
    return None


def _judge_array(got: Array, expected: Array, allowance: Allowance, context: Context) -> str | None:
    if DataType.from_numpy(got.dtype) is not DataType.from_numpy(expected.dtype):
        return f"dtype {expected.dtype} expected, got {got.dtype}"
    if got.shape != expected.shape:
        return f"shape {expected.shape} expected, got {got.shape}"
    if context.draws or expected.size == 0:
        return None
    kind = DataType.from_numpy(expected.dtype)
    if kind.is_float:
        return _judge_floats(got, expected, allowance, context.numerics)
    if kind in (DataType.COMPLEX64, DataType.COMPLEX128):
        return _judge_complex(got, expected, allowance, context.numerics)
    if kind.is_integer:
        return _judge_integers(got, expected, allowance)
    return _report(got, expected, np.asarray(got != expected, bool), "", allowance.rule)


def _judge_complex(
    got: Array, expected: Array, allowance: Allowance, numerics: Numerics
) -> str | None:
    for part, mine, right in (
        ("real", got.real, expected.real),
        ("imaginary", got.imag, expected.imag),
    ):
        problem = _judge_floats(mine, right, allowance, numerics)
        if problem is not None:
            return f"{part} part: {problem}"
    return None


def _judge_integers(got: Array, expected: Array, allowance: Allowance) -> str | None:
    # Python integers would be exact for every width, and slow; only uint64 needs care.
    wide = np.uint64 if expected.dtype == np.uint64 else np.int64
    mine, right = got.astype(wide), expected.astype(wide)
    distance = np.where(mine > right, mine - right, right - mine).astype(np.uint64)
    allowed = np.full(expected.shape, allowance.steps, np.uint64)
    if allowance.near_tie is not None:
        allowed = np.where(allowance.near_tie, allowed, np.uint64(0))
    rule = allowance.rule
    if allowance.steps == 0:
        rule = "exact"
    problem = _report(got, expected, distance > allowed, "", rule)
    if problem is not None or allowance.error is None:
        return problem
    return _judge_mean_square(got.astype(np.float64), expected.astype(np.float64), allowance)


def _judge_floats(
    got: Array, expected: Array, allowance: Allowance, numerics: Numerics
) -> str | None:
    form = float_format(expected.dtype)
    mine, right = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        allowed = allowed_errors(right, expected.dtype, allowance, numerics)
        error = _distance(mine, right, form.beyond)
        wrong = (error > allowed) | (np.isnan(mine) != np.isnan(right))
        wrong |= np.isinf(right) & (mine != right)
        # Without an allowance nothing overflows that shouldn't.
        wrong |= (allowed == 0) & np.isinf(mine) & ~np.isinf(right)
        if allowance.signed_zeros:
            zeros = (mine == 0) & (right == 0)
            wrong |= zeros & (np.signbit(mine) != np.signbit(right))
        if numerics.flushes_denormals:
            wrong &= ~((mine == 0) & (right != 0) & (np.abs(right) < form.smallest_normal))
    return _report(got, expected, wrong, _worst(error, right, wrong, expected), allowance.rule)


def allowed_errors(
    right: Array, dtype: np.dtype[Any], allowance: Allowance, numerics: Numerics
) -> Array:
    """The largest error that is allowed, element by element, in the output's own unit."""
    finite = np.where(np.isfinite(right), right, 0.0)
    allowed = allowance.ulps * spacing(finite, dtype) + allowance.absolute
    if allowance.terms:
        eps = _accumulator_eps(dtype, numerics)
        growth = min(SUM_FACTOR * math.sqrt(allowance.terms), float(allowance.terms))
        allowed = allowed + growth * eps * np.asarray(allowance.scale, np.float64)
    if dtype == np.float64:
        allowed = 2.0 * allowed
    # A sum with an infinity among its terms is exact: an infinity or NaN.
    allowed = np.where(np.isfinite(allowed), allowed, 0.0)
    return np.asarray(np.broadcast_to(allowed, right.shape))


def _accumulator_eps(dtype: np.dtype[Any], numerics: Numerics) -> float:
    eps = float_format(dtype).eps
    if numerics.narrow_accumulation and dtype.itemsize == _NARROW_BYTES:
        return eps
    return min(eps, float_format(np.dtype(np.float32)).eps)


def _distance(mine: Array, right: Array, beyond: float) -> Array:
    """|mine - right|, where an infinity beside a finite number counts as the first overflow."""
    equal = mine == right
    error = np.abs(_pull_in(mine, beyond) - _pull_in(right, beyond))
    return np.where(equal, 0.0, error)


def _pull_in(values: Array, beyond: float) -> Array:
    return np.where(np.isinf(values), np.copysign(beyond, values), values)


def _judge_mean_square(mine: Array, right: Array, allowance: Allowance) -> str | None:
    """Mean square error over mean square: catches a bias that no single element shows."""
    limit = allowance.error
    power = float(np.mean(right * right))
    error = float(np.mean((mine - right) ** 2))
    if limit is None or error <= limit * max(power, 1.0):
        return None
    found = error / max(power, 1.0)
    return f"normalised mean square error {found:.3g}, allowed {limit:.3g} ({allowance.rule})"


def _worst(error: Array, right: Array, wrong: Array, expected: Array) -> str:
    """How far the worst element is off."""
    if not wrong.any():
        return ""
    place = _worst_place(error, wrong)
    off = float(error[place])
    if not np.isfinite(off) or off == 0 or not np.isfinite(right[place]):
        return ""
    ulp = float(spacing(right[place], expected.dtype))
    return f", off by {off:.3g} = {off / ulp:.3g} ULP"


def _worst_place(error: Array, wrong: Array) -> tuple[int, ...]:
    ranked = np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(ranked)), wrong.shape))


def _report(got: Array, expected: Array, wrong: Array, off: str, rule: str) -> str | None:
    """None if nothing is wrong, else the sentence."""
    if not wrong.any():
        return None
    distance = np.zeros(wrong.shape)
    if is_float(expected.dtype):
        with np.errstate(all="ignore"):
            distance = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    place = _worst_place(distance, wrong)
    count = int(np.count_nonzero(wrong))
    return (
        f"{count} of {expected.size} values wrong; worst at {list(place)}: "
        f"got {got[place]!s}, expected {expected[place]!s}{off}; allowed: {rule}"
    )


def _kind(value: Any) -> str:
    return type(value).__name__
