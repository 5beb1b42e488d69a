"""One case on one provider, from driving it to the verdict: where driver, oracle and judge meet."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ep_compliance.cases import Case
from ep_compliance.classes import DRAWING
from ep_compliance.drive import drive
from ep_compliance.oracle import answer
from ep_compliance.outcomes import Outcome
from ep_compliance.tolerance import judge
from ep_core.contracts import ExecutionProvider, Value
from ep_core.errors import EpError

__all__ = ["examine"]


def examine(case: Case, provider: ExecutionProvider) -> tuple[Outcome, str]:
    """Run a case on an open provider and judge it.

    Returns:
        The outcome and its reason; the reason of a pass is empty.
    """
    if any(node.op_type in DRAWING for node in case.model.graph.node):
        case = dataclasses.replace(case, draws=True)
    try:
        driven = drive(case, provider)
    except EpError as error:
        return Outcome.QUARANTINED, f"the core doesn't load the case: {error}"
    if driven.unsupported:
        return Outcome.UNSUPPORTED, driven.unsupported
    if driven.failure:
        return Outcome.FAIL, driven.failure
    return _judge_answers(case, driven.answers)


def _judge_answers(case: Case, answers: Sequence[Sequence[Value]]) -> tuple[Outcome, str]:
    """Hold outputs against the oracle's answer, within what it allows."""
    right = answer(case)
    if right.quarantine_reason is not None:
        return Outcome.QUARANTINED, right.quarantine_reason
    for got in answers:
        wrong = judge(got, right.expected, right.context)
        if wrong is not None:
            return Outcome.FAIL, wrong
    return Outcome.PASS, ""
