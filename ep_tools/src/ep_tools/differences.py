"""How far two outputs of the same name lie apart, in figures.

Knows values only: no models, no sessions, and not what a difference means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ep_core.types import DataType
from ep_tools.requests import Tolerance

__all__ = ["Difference", "compare_values"]

Array = np.ndarray[Any, Any]
_WITH_ULP = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE)


@dataclass(frozen=True, slots=True)
class Difference:
    """What lies between two values.

    Attributes:
        name: the output's name; `name[0]` and `name{key}` for members of sequences and maps.
        kind: type and shape of the first, such as `tensor(float) [1, 3]`.
        problem: why there is nothing to compare (other type, other shape); empty if there is.
        elements: how many were compared.
        mismatches: how many differ by more than the tolerance, NaN on one side only included.
        nan_mismatches: how many are NaN on one side only.
        max_abs: largest |a - b|; inf where one is infinite and the other isn't; None without
            numbers to compare.
        max_rel: largest |a - b| / |b| where b isn't 0; None without such.
        max_ulp: most floats that lie between a and b, plus one; 0 where they are equal. None for
            types other than float16, bfloat16, float and double.
        nmse: sum of (a - b)^2 by sum of b^2, where both are finite; None if all of b is 0, or a
            sum is too large for a double.
        excess: the largest error in units of what the tolerance allows; above 1 is a mismatch,
            inf is NaN against a number, or a problem.
        worst: index of the element with the largest excess, if any differs at all.
        worst_values: the element there, on both sides.
    """

    name: str
    kind: str
    problem: str = ""
    elements: int = 0
    mismatches: int = 0
    nan_mismatches: int = 0
    max_abs: float | None = None
    max_rel: float | None = None
    max_ulp: float | None = None
    nmse: float | None = None
    excess: float = 0.0
    worst: tuple[int, ...] | None = None
    worst_values: tuple[Any, ...] = ()

    @property
    def agrees(self) -> bool:
        """True if everything lies within the tolerance."""
        return not self.problem and self.mismatches == 0

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "type": self.kind,
            "agrees": self.agrees,
            "problem": self.problem or None,
            "elements": self.elements,
            "mismatches": self.mismatches,
            "nan_mismatches": self.nan_mismatches,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "max_ulp": self.max_ulp,
            "nmse": self.nmse,
            "excess": self.excess,
            "worst": None if self.worst is None else list(self.worst),
            "worst_values": [str(value) for value in self.worst_values],
        }


def compare_values(name: str, a: Any, b: Any, tolerance: Tolerance) -> Iterator[Difference]:
    """Compare two values; a sequence or map gives one difference per member."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        if not a:
            yield Difference(name, "empty sequence")
        for index, (member, other) in enumerate(zip(a, b, strict=True)):
            yield from compare_values(f"{name}[{index}]", member, other, tolerance)
    elif isinstance(a, Mapping) and isinstance(b, Mapping) and set(a) == set(b):
        for key in a:
            member = f"{name}{{{key}}}"
            yield from compare_values(member, np.asarray(a[key]), np.asarray(b[key]), tolerance)
    elif _is_tensor(a) and _is_tensor(b):
        yield _compare_tensors(name, np.asarray(a), np.asarray(b), tolerance)
    elif a is None and b is None:
        yield Difference(name, "nothing")
    else:
        yield _problem(name, _kind(a), _kind(b))


def _compare_tensors(name: str, a: Array, b: Array, tolerance: Tolerance) -> Difference:
    kinds = _kind(a), _kind(b)
    if kinds[0] != kinds[1]:
        return _problem(name, *kinds)
    dtype = DataType.from_numpy(a.dtype)
    if a.size == 0:
        return Difference(name, kinds[0])
    if dtype in (DataType.STRING, DataType.BOOL):
        return _compare_words(name, kinds[0], a, b)
    if dtype.is_integer:
        return _compare_integers(name, kinds[0], a, b, tolerance)
    return _compare_floats(name, kinds[0], a, b, tolerance)


def _compare_words(name: str, kind: str, a: Array, b: Array) -> Difference:
    wrong = np.asarray(a != b)
    return _measured(name, kind, a, b, np.where(wrong, np.inf, 0.0), wrong)


def _compare_integers(name: str, kind: str, a: Array, b: Array, tolerance: Tolerance) -> Difference:
    # Differences of 64-bit integers are exact in unsigned arithmetic, which wraps.
    ahead = a > b
    left, right = a.astype(np.uint64), b.astype(np.uint64)
    distance = np.where(ahead, left - right, right - left)
    gap = distance.astype(np.float64)
    # Of integers one tolerance is enough: a part in a thousand of a label means nothing.
    # They differ by 1 at least, so that half a step stands for a tolerance of next to nothing.
    allowed = max(tolerance.atol, 0.5)
    difference = _measured(name, kind, a, b, gap / allowed, gap > tolerance.atol)
    return _with_errors(difference, gap, np.abs(b.astype(np.float64)))


def _compare_floats(name: str, kind: str, a: Array, b: Array, tolerance: Tolerance) -> Difference:
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    left, right = a.astype(wide), b.astype(wide)
    nan = np.isnan(left) != np.isnan(right)
    with np.errstate(all="ignore"):
        # inf - inf is NaN, and so is NaN - NaN; both agree.
        equal = (left == right) | (np.isnan(left) & np.isnan(right))
        gap = np.where(equal, 0.0, np.where(nan, np.inf, np.abs(left - right)))
        size = np.abs(right)
        allowed = tolerance.atol + tolerance.rtol * np.where(np.isfinite(size), size, 0.0)
        excess = gap / np.maximum(allowed, np.finfo(np.float64).tiny)
    difference = _measured(name, kind, a, b, excess, gap > allowed, int(nan.sum()))
    return replace(
        _with_errors(difference, gap[~nan], size[~nan]),
        max_ulp=_max_ulp(a, b, equal | nan),
        nmse=_nmse(left, right),
    )


def _measured(
    name: str, kind: str, a: Array, b: Array, excess: Array, wrong: Array, nan: int = 0
) -> Difference:
    place = int(np.argmax(excess))
    at = tuple(int(i) for i in np.unravel_index(place, a.shape))
    largest = float(excess.reshape(-1)[place])
    return Difference(
        name,
        kind,
        elements=a.size,
        mismatches=int(wrong.sum()),
        nan_mismatches=nan,
        excess=largest,
        worst=at if largest > 0 else None,
        worst_values=(a[at], b[at]) if largest > 0 else (),
    )


def _with_errors(difference: Difference, gap: Array, size: Array) -> Difference:
    """Add the largest errors; `size` is |b|."""
    if gap.size == 0:
        return difference
    nonzero = (size > 0) & np.isfinite(size)
    relative = gap[nonzero] / size[nonzero]
    return replace(
        difference,
        max_abs=float(gap.max()),
        max_rel=float(relative.max()) if relative.size else None,
    )


def _max_ulp(a: Array, b: Array, skipped: Array) -> float | None:
    """The largest distance in units in the last place; `skipped` are equal, or NaN somewhere.

    Floats of IEEE 754 are ordered like their bits, once those of negative ones are turned over.
    """
    if DataType.from_numpy(a.dtype) not in _WITH_ULP:
        return None
    if skipped.all():
        return 0.0
    places = np.dtype(f"u{a.dtype.itemsize}")
    sign = places.type(1 << (8 * a.dtype.itemsize - 1))
    ordered = []
    for side in (a, b):
        bits = side[~skipped].view(places)
        ordered.append(np.where(bits & sign, ~bits, bits | sign))
    left, right = ordered
    return float(np.where(left > right, left - right, right - left).max())


def _nmse(a: Array, b: Array) -> float | None:
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        error = float(np.sum(np.abs(a[finite] - b[finite]) ** 2))
        size = float(np.sum(np.abs(b[finite]) ** 2))
    if not error:
        return 0.0
    return error / size if size and math.isfinite(error) and math.isfinite(size) else None


def _problem(name: str, ours: str, other: str) -> Difference:
    return Difference(name, ours, problem=f"{ours} against {other}", excess=float("inf"))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic))


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    if isinstance(value, Mapping):
        return f"map of {len(value)}"
    if value is None:
        return "nothing"
    array = np.asarray(value)
    return f"tensor({DataType.from_numpy(array.dtype).text}) {list(array.shape)}"
