"""One case on one provider, from driving it to the verdict: where driver, oracle and judge meet."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, fields

from ep_compliance.cases.case import Case
from ep_compliance.driving.drive import Driven, drive
from ep_compliance.driving.findings import text_of
from ep_compliance.oracle.answers import Answer, answer
from ep_compliance.oracle.classes import DRAWING
from ep_compliance.oracle.flushing import nearest_flushed
from ep_compliance.oracle.overrides import Override, judge_with
from ep_compliance.oracle.tolerance import judge
from ep_compliance.running.outcomes import Outcome
from ep_core.contracts import ExecutionProvider, Numerics, Value
from ep_core.errors import EpError

__all__ = ["Judgement", "declared_numerics", "examine", "judge_case"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one case.

    Attributes:
        reason: for a person; empty for a pass.
        overridden: it passes, but only within its override.
        run_seconds, predicted_seconds: see `Driven`.
    """

    outcome: Outcome
    reason: str = ""
    overridden: bool = False
    run_seconds: float | None = None
    predicted_seconds: float | None = None


def examine(case: Case, provider: ExecutionProvider) -> tuple[Outcome, str]:
    """Run a case on an open provider and judge it.

    Returns:
        The outcome and its reason; the reason of a pass is empty.
    """
    judgement = judge_case(case, provider)
    return judgement.outcome, judgement.reason


def judge_case(
    case: Case, provider: ExecutionProvider, override: Override | None = None
) -> Judgement:
    """Run a case on an open provider and judge it, with all that was learned on the way.

    Args:
        override: of this case; it counts only where the case fails without it.
    """
    if any(node.op_type in DRAWING for node in case.model.graph.node):
        case = dataclasses.replace(case, draws=True)
    try:
        driven = drive(case, provider)
    except EpError as error:
        return Judgement(Outcome.QUARANTINED, f"the core doesn't load the case: {error}")
    except Exception as error:  # noqa: BLE001 - raised by the provider, where none may be
        return Judgement(Outcome.FAIL, f"unexpected {text_of(error)}")
    if driven.unsupported:
        return Judgement(Outcome.UNSUPPORTED, driven.unsupported)
    if driven.failure:
        return Judgement(Outcome.FAIL, driven.failure)
    return _judge_answers(case, driven, declared_numerics(provider), override)


def declared_numerics(provider: ExecutionProvider) -> Numerics:
    """What a provider declares about its arithmetic, as far as it does so in the right types.

    Where it doesn't it has declared nothing; a check tells it so.
    """
    numerics = provider.features.numerics
    if not isinstance(numerics, Numerics):
        return Numerics()
    return Numerics(
        **{item.name: getattr(numerics, item.name) is True for item in fields(Numerics)}
    )


def _judge_answers(
    case: Case, driven: Driven, numerics: Numerics, override: Override | None
) -> Judgement:
    """Hold outputs against the oracle's answer, within what it allows."""
    times = (driven.run_seconds, driven.predicted_seconds)
    right = answer(case)
    if right.quarantine_reason is not None:
        return Judgement(Outcome.QUARANTINED, right.quarantine_reason, False, *times)
    right = dataclasses.replace(
        right, context=dataclasses.replace(right.context, numerics=numerics)
    )
    overridden = False
    for got in driven.answers:
        wrong, needed = judge_with(override, got, _expected(case, got, right), right.context)
        overridden |= needed
        if wrong is not None:
            return Judgement(Outcome.FAIL, wrong, False, *times)
    return Judgement(Outcome.PASS, "", overridden, *times)


def _expected(case: Case, got: Sequence[Value], right: Answer) -> Sequence[Value]:
    """The right outputs; of several that a provider's declaration allows, the nearest."""
    flushes = right.context.numerics.flushes_denormals
    if not flushes or judge(got, right.expected, right.context) is None:
        return right.expected
    return nearest_flushed(case, got, right.expected)
