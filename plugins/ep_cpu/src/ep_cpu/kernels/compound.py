"""How formulas of several numpy passes are computed: in cache-sized blocks, 16-bit in float32.

Holds the machinery and formulas that several files use (sigmoid, erf), no rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ep_cpu.kernels.support import HALF, Array
from ep_sdk.kernels import Kernel

__all__ = ["Formula", "apply_formula", "compound_kernel", "erf", "sigmoid", "softplus"]

Formula = Callable[[Array, Array], None]
"""`formula(x, out)` writes into `out`, which has the shape and type of `x` and isn't `x`."""

_BLOCK = 16384


def apply_formula(formula: Formula, x: Array, out: Array | None = None) -> Array:
    """Apply `formula` to every element of `x`; writes into `out` if given."""
    if out is None:
        out = np.empty(x.shape, x.dtype)
    half = x.dtype in HALF
    if x.size <= _BLOCK or not (x.flags.c_contiguous and out.flags.c_contiguous):
        _apply_block(formula, x, out, half)
        return out
    flat_x = x.reshape(-1)
    flat_out = out.reshape(-1)
    for start in range(0, flat_x.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        _apply_block(formula, flat_x[part], flat_out[part], half)
    return out


def _apply_block(formula: Formula, x: Array, out: Array, half: bool) -> None:
    if not half:
        formula(x, out)
        return
    wide = np.empty(x.shape, np.float32)
    formula(x.astype(np.float32), wide)
    out[...] = wide.astype(out.dtype)


def compound_kernel(formula: Formula) -> Kernel:
    """A kernel that applies `formula` to its one input."""

    def run(x: Array, *, out: Array | None = None) -> Array:
        return apply_formula(formula, x, out)

    return run


def sigmoid(x: Array, out: Array) -> None:
    """1 / (1 + exp(-x)); exp may overflow to infinity, whose reciprocal is the right 0."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def softplus(x: Array, out: Array) -> None:
    """log(1 + exp(x)), rearranged so that exp can't overflow."""
    np.absolute(x, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    np.add(out, np.maximum(x, 0), out=out)


# erf(x) / x as a quotient of polynomials in x**2, for |x| <= 3.93; fitted by iteratively reweighted
# least squares of the relative error, which is below 2e-8 before rounding. Beyond 3.93, erf(x) is
# within half a unit in the last place of +-1 in float32.
_ERF_LIMIT = 3.93
_ERF_NUMERATOR = (
    2.04205502e-06,
    0.000284802523,
    0.003779259,
    0.0527892026,
    0.190775368,
    1.12837915,
)
_ERF_DENOMINATOR = (
    3.80046423e-05,
    0.00116513144,
    0.0149967316,
    0.114254056,
    0.502402989,
    1.0,
)
_exact_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array, out: Array) -> None:
    """The error function; float32 within 4e-7 (relative), float64 by the C library."""
    if x.dtype == np.float64:
        out[...] = _exact_erf(x)
        return
    clipped = np.clip(x, -_ERF_LIMIT, _ERF_LIMIT)
    square = clipped * clipped
    _horner(_ERF_DENOMINATOR, square, out)
    numerator = np.empty_like(square)
    _horner(_ERF_NUMERATOR, square, numerator)
    np.multiply(numerator, clipped, out=numerator)
    np.divide(numerator, out, out=out)
    np.clip(out, -1, 1, out=out)


def _horner(coefficients: tuple[float, ...], x: Array, out: Array) -> None:
    out[...] = coefficients[0]
    for coefficient in coefficients[1:]:
        np.multiply(out, x, out=out)
        np.add(out, coefficient, out=out)
