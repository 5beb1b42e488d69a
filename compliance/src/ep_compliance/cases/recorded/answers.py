"""How far a provider may be from a recorded answer.

The recording says how strongly each element answers to the roundings of its inputs, as the oracle
measures it for compound operators (see `classes`); here that becomes an allowance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_compliance.cases.case import Case, Recorded
from ep_compliance.oracle import classes
from ep_compliance.oracle.precision import Array, float_format, is_float
from ep_compliance.oracle.tolerance import EXACT, Allowance

__all__ = ["recorded_allowances"]

_SINGLE = np.dtype(np.float32)


def recorded_allowances(case: Case, recorded: Recorded) -> tuple[Allowance, ...]:
    """Return one allowance for each output of a case with recorded answers."""
    op_type = case.model.graph.node[0].op_type
    spreads = [*recorded.spreads, *[None] * len(case.expected or ())]
    return tuple(
        _allowance(op_type, value, spread, recorded.source)
        for value, spread in zip(case.expected or (), spreads, strict=False)
    )


def _allowance(op_type: str, expected: Any, spread: Array | None, source: str) -> Allowance:
    if op_type in classes.EXACT_OPERATORS or not isinstance(expected, np.ndarray):
        return EXACT
    if not is_float(expected.dtype):
        if op_type not in classes.QUANTIZING:
            return EXACT
        rule = f"{op_type}: one step, mean square {classes.STEP_ERROR}"
        return Allowance(rule, steps=1, error=classes.STEP_ERROR)
    return _of_float(op_type, expected, spread, source)


def _of_float(op_type: str, expected: Array, spread: Array | None, source: str) -> Allowance:
    """A few units, what the inputs' roundings do, and a few eps of the largest output.

    Answers are known to float32, so for double its eps counts.
    """
    eps = max(float_format(expected.dtype).eps, float_format(_SINGLE).eps)
    wide = expected.astype(np.float64)
    largest = float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))
    narrow = eps > float_format(_SINGLE).eps
    floor = largest * max(
        eps if narrow else 0.0, classes.CONDITIONED_FLOOR * float_format(_SINGLE).eps
    )
    moved = 0.0 if spread is None else spread.astype(np.float64)
    return Allowance(
        f"{op_type}, as {source} has it: {classes.CONDITIONED_ULPS:g} ULP and "
        f"{classes.CONDITIONED_FACTOR:g} spreads",
        ulps=classes.CONDITIONED_ULPS,
        absolute=classes.CONDITIONED_FACTOR * 0.5 * eps * moved + floor,
    )
