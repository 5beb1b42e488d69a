"""Which of several placements is best by what its runs were measured to take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ep_core.partition import Partitioning
from ep_core.placement.build import Offer
from ep_core.placement.decide import NodePlacement
from ep_core.placement.place import SHORT_OF_ROOM

__all__ = ["Choice", "best_of", "fusion_factors", "told"]

_WHOLE = "part of the placement that was measured to be the fastest"
_MOST_SAVED = 0.02
"""Of what nodes take, the least that their partition is taken to need."""


@dataclass(frozen=True)
class Choice:
    """One placement of a graph.

    Attributes:
        lead: the provider that has all that it can run; None where the solver decided.
        seconds: of one run as measured, None where it isn't.
    """

    placed: Partitioning
    lead: str | None
    seconds: float | None

    @property
    def cost(self) -> float:
        """Seconds and what preferences count."""
        return self.seconds + self.placed.decision.bias if self.seconds is not None else math.inf


def fusion_factors(choices: Sequence[Choice]) -> dict[str, float]:
    """By provider, what its partitions take of what their nodes were said to.

    Told by the placements that it leads; the others in these are believed.
    """
    factors: dict[str, float] = {}
    for choice in choices:
        if choice.lead is not None and choice.seconds is not None:
            own = sum(
                spec.seconds or 0.0
                for spec in choice.placed.specs
                if spec.candidate is not None and spec.candidate.name == choice.lead
            )
            rest = (choice.placed.decision.seconds or 0.0) - own
            if own > 0:
                factors[choice.lead] = max((choice.seconds - rest) / own, _MOST_SAVED)
    return factors


def best_of(choices: Sequence[Choice], min_gain: float) -> Choice:
    """The cheapest of those that are measured, of equals the first; the first where none is.

    Args:
        choices: the solver's answer first.
        min_gain: the part of its cost that a simple placement has to lose to a better one.
    """
    best = min(choices, key=lambda choice: choice.cost)
    simple = [choice for choice in choices if choice.lead is not None]
    if simple and best.lead is None:
        other = min(simple, key=lambda choice: choice.cost)
        if other.cost - best.cost <= min_gain * other.cost < math.inf:
            return other
    return best


def told(
    best: Choice,
    choices: Sequence[Choice],
    offers: Mapping[str, Offer],
    greedy: str,
    basis: str,
) -> Partitioning:
    """The placement with what was measured in its report.

    Args:
        choices: all that were compared, the solver's answer first.
        offers: by provider, with the costs to report.
        greedy: the lead of the greedy placement.
        basis: what the costs are.
    """
    decision = best.placed.decision
    own = best is choices[0]
    _, _, more = decision.basis.partition("; ")
    decision = replace(
        decision,
        placements=tuple(
            _reported(node, index, offers, own)
            for index, node in zip(decision.indices, decision.placements, strict=True)
        ),
        basis=f"{basis}; {more}" if more else basis,
    )
    placed = replace(best.placed, decision=decision)
    if best.seconds is None:
        return placed
    classic = [choice.seconds for choice in choices if choice.lead == greedy]
    return _stretched(placed, best.seconds, classic[0] if classic else None)


def _stretched(placed: Partitioning, seconds: float, greedy: float | None) -> Partitioning:
    """All predicted times in proportion, so that together they are what was measured."""
    decision = placed.decision
    factor = seconds / decision.seconds if decision.seconds else 1.0
    return Partitioning(
        decision=replace(
            decision,
            seconds=seconds,
            greedy_seconds=greedy,
            partition_seconds=tuple(_times(s, factor) for s in decision.partition_seconds),
            placements=tuple(
                replace(node, seconds=_times(node.seconds, factor)) for node in decision.placements
            ),
            copies=tuple(replace(copy, seconds=copy.seconds * factor) for copy in decision.copies),
        ),
        specs=tuple(replace(spec, seconds=_times(spec.seconds, factor)) for spec in placed.specs),
    )


def _times(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor


def _reported(
    node: NodePlacement, index: int, offers: Mapping[str, Offer], own: bool
) -> NodePlacement:
    if node.provider in offers:
        node = replace(node, cost=offers[node.provider].answers[index].cost)
    settled = own or node.runner_up is None or node.reason.startswith(SHORT_OF_ROOM)
    return node if settled else replace(node, reason=_WHOLE)
