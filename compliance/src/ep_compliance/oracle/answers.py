"""The right answer to a case, where it comes from, and how far off a provider may be.

No provider of ours is asked. In order of trust: the official expected data; a float64 evaluation by
our corrections and `onnx.reference`; ONNX Runtime, where it is installed, only as a second opinion.
Where the opinions differ and nothing settles it, the case is quarantined and nobody is blamed.
Recorded answers are final: they are of operators that nobody here can evaluate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ep_compliance.cases.case import Case
from ep_compliance.cases.recorded.answers import recorded_allowances
from ep_compliance.errors import OracleError
from ep_compliance.oracle.allowances import allowances_of
from ep_compliance.oracle.classes import DRAWING
from ep_compliance.oracle.evaluate import Evaluator
from ep_compliance.oracle.precision import Array, is_float
from ep_compliance.oracle.propagation import can_propagate, propagated
from ep_compliance.oracle.second_opinion import second_opinion
from ep_compliance.oracle.tolerance import Allowance, Context, judge

__all__ = ["Answer", "answer"]

_OFFICIAL_RELATIVE = 1e-3
_OFFICIAL_ABSOLUTE = 1e-7
"""What the official suite allows itself (`rtol`, `atol` of its test cases)."""

_STEPWISE = {"float16": 4e-3, "bfloat16": 3.2e-2}
"""Official data of 16-bit types are rounded after every step: four eps."""


@dataclass(frozen=True, eq=False, slots=True)
class Answer:
    """What is right.

    Attributes:
        expected: outputs in the model's order, floats rounded once.
        source: who says so.
        quarantine_reason: why nobody may be blamed by this case; None if it counts.
        context: how outputs are judged; `dataclasses.replace` its numerics by the provider's.
    """

    expected: Sequence[Any]
    source: str
    quarantine_reason: str | None = None
    context: Context = field(default_factory=Context)


def answer(case: Case, *, cross_check: bool = True) -> Answer:
    """Answer a case. Never raises for a valid case: what can't be answered is quarantined.

    Args:
        cross_check: ask ONNX Runtime too, where it is installed and nothing official settles it.
    """
    draws = case.draws or _is_random(case)
    names = [info.name for info in case.model.graph.output]
    if case.recorded is not None and case.expected is not None:
        allowances = recorded_allowances(case, case.recorded)
        context = Context(allowances, draws=draws, names=names)
        return Answer(case.expected, case.recorded.source, None, context)
    try:
        evaluated = _evaluate(case)
    except OracleError as error:
        return _without_evaluation(case, str(error), Context(draws=draws, names=names))
    context = Context(evaluated.allowances, draws=draws, names=names)
    if case.expected is not None:
        return _settled_by_official(case.expected, evaluated, context)
    reason = None
    if cross_check and not draws and not evaluated.corrected:
        reason = _disagreement(case, evaluated, context)
    return Answer(evaluated.outputs, evaluated.source, reason, context)


@dataclass(frozen=True, eq=False, slots=True)
class _Evaluated:
    outputs: list[Any]
    allowances: tuple[Allowance, ...]
    source: str
    corrected: bool


def _evaluate(case: Case) -> _Evaluated:
    evaluator = Evaluator(case.model)
    values = evaluator.run(case.inputs)
    source = " and ".join(sorted(evaluator.used)) + " in float64"
    corrected = any(name.startswith("correction") for name in evaluator.used)
    # What official data settle needs no more than the condition of the whole.
    measure = allowances_of
    if case.expected is None and can_propagate(evaluator):
        measure = propagated
    allowances = measure(evaluator, case.inputs, values, case.id)
    return _Evaluated(evaluator.rounded(values), allowances, source, corrected)


def _is_random(case: Case) -> bool:
    return any(node.op_type in DRAWING for node in case.model.graph.node)


def _without_evaluation(case: Case, problem: str, context: Context) -> Answer:
    if case.expected is not None:
        official = _official_context(case.expected, context)
        source = f"cases of {case.vendor}" if case.vendor else "official data"
        return Answer(case.expected, source, None, official)
    return Answer((), "nobody", f"no oracle can answer it: {problem}", context)


def _settled_by_official(
    official: Sequence[Any], evaluated: _Evaluated, context: Context
) -> Answer:
    """The official data, sharpened by the evaluation where the two agree."""
    loose = _official_context(official, context)
    if judge(evaluated.outputs, official, loose) is None:
        return Answer(evaluated.outputs, f"official data, {evaluated.source}", None, context)
    return Answer(official, "official data", None, loose)


def _official_context(official: Sequence[Any], context: Context) -> Context:
    allowances = tuple(_official_allowance(value) for value in official)
    return Context(allowances, context.numerics, context.draws, context.names)


def _official_allowance(value: Any) -> Allowance:
    """Floats as the official suite compares them; everything else exact."""
    if not isinstance(value, np.ndarray) or not is_float(value.dtype):
        return Allowance("official data: exact")
    relative = _STEPWISE.get(value.dtype.name, _OFFICIAL_RELATIVE)
    with np.errstate(all="ignore"):
        allowed = _OFFICIAL_ABSOLUTE + relative * np.abs(value.astype(np.float64))
    return Allowance(f"official data: rtol {relative}", absolute=np.nan_to_num(allowed))


def _same_meaning(evaluated: _Evaluated, context: Context) -> Context:
    """A context for a second opinion: it must mean the same, and may be less exact."""
    allowances = []
    for index, value in enumerate(evaluated.outputs):
        allowance = context.allowance(index)
        if isinstance(value, np.ndarray) and is_float(value.dtype) and not allowance.signed_zeros:
            allowance = _roughly(value, allowance)
        allowances.append(allowance)
    return dataclasses.replace(context, allowances=tuple(allowances))


def _roughly(value: Array, allowance: Allowance) -> Allowance:
    """The official suite's tolerance, and a thousandth of the largest value."""
    rough = _official_allowance(value)
    wide = value.astype(np.float64)
    largest = float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))
    absolute = allowance.absolute + rough.absolute + _OFFICIAL_RELATIVE * min(largest, 1e30)
    return dataclasses.replace(allowance, absolute=absolute)


def _disagreement(case: Case, evaluated: _Evaluated, context: Context) -> str | None:
    """A reason for quarantine, None if ONNX Runtime agrees or has no opinion."""
    opinion = second_opinion(case)
    if opinion is None:
        return None
    problem = judge(opinion.outputs, evaluated.outputs, _same_meaning(evaluated, context))
    if problem is None:
        return None
    return f"{opinion.source} disagrees with {evaluated.source}: {problem}"
