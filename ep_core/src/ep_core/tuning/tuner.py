"""Placement by measured costs: nodes first, then the placements that these make look best.

Measured seconds take the place of a provider's estimates; what couldn't be measured is estimated as
before, scaled to what was. A compiler fuses, so that a partition may take far less than its nodes
do: the placements that look best are run as a whole, and the quickest one wins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ep_core.artifacts.cache import ArtifactCache
from ep_core.discovery.verdicts import cache_folder
from ep_core.errors import PlacementError
from ep_core.graph import Graph
from ep_core.options import SessionOptions
from ep_core.partition import Candidate, Partitioning, Refusals, decided, offers_of
from ep_core.placement.build import Offer
from ep_core.placement.decide import live_nodes
from ep_core.placement.roofline import Sizes
from ep_core.placement.rules import Rules
from ep_core.tuning.choices import Choice, best_of, fusion_factors, told
from ep_core.tuning.costs import Nodes, measured_offer, scaled
from ep_core.tuning.measuring import Measuring

__all__ = ["Tuner", "make_tuner"]

_MOST_LEADS = 3
"""Providers that are tried wherever they can run anything."""


def make_tuner(
    options: SessionOptions,
    candidates: Sequence[Candidate],
    cache: ArtifactCache | None,
    *,
    measured: Sequence[Candidate] | None = None,
    measuring: bool = True,
) -> Tuner | None:
    """Return the tuner that the options ask for, None for placement without measured costs.

    Args:
        cache: for partitions that may become the session's own.
        measured: the candidates as they are measured, where that is without something around them.
        measuring: False measures nothing, whatever the options say.
    """
    if not options.uses_measured_costs:
        return None
    folder = None if options.cost_cache is None else Path(options.cost_cache)
    if folder is None:
        with contextlib.suppress(RuntimeError):  # there is no home folder
            folder = cache_folder() / "costs"
    allowed = options.tune and measuring
    return Tuner(candidates, Measuring(measured or candidates, folder, allowed, cache))


class Tuner:
    """Places the graphs of one session by measured costs.

    Args:
        candidates: the session's, in order of preference.
        measuring: of these candidates.
    """

    def __init__(self, candidates: Sequence[Candidate], measuring: Measuring) -> None:
        self._candidates = candidates
        self._measuring = measuring

    def partition(self, graph: Graph, refusals: Refusals, rules: Rules, scope: str) -> Partitioning:
        """Place every node of a graph; see `ep_core.partition.partition`.

        Nothing is measured where there is nothing to choose: what is known is used. Where greedy
        was asked for costs don't matter.
        """
        offers = offers_of(graph, self._candidates, refusals)
        live = live_nodes(graph)
        placed = None
        if rules.strategy != "greedy":
            with self._measuring.of(scope or graph.name, active=_is_contested(offers, live)):
                placed = self._placed(graph, offers, live, rules, scope)
        return placed or decided(graph, self._candidates, offers, rules, scope)

    def _placed(
        self, graph: Graph, offers: Sequence[Offer], live: Sequence[int], rules: Rules, scope: str
    ) -> Partitioning | None:
        """The best placement by what is measured; None if nothing is."""
        sizes = Sizes(graph, {})
        figures = self._measuring.figures()
        nodes = self._measuring.nodes(graph, offers, live, sizes)
        if not any(nodes):
            return None
        tuned = [
            measured_offer(graph, *own, sizes) for own in zip(offers, nodes, figures, strict=True)
        ]
        basis = _basis(offers, nodes, live)
        if rules.strategy == "cost":
            basis = f"asked for; {basis}"
        place = partial(
            decided, graph, self._candidates, rules=replace(rules, strategy="cost"), scope=scope
        )
        choices = [self._timed(place(offers=tuned))]
        for candidate in self._candidates[:_MOST_LEADS]:
            with contextlib.suppress(PlacementError):  # it exceeds a limit
                led = place(offers=tuned, lead=candidate.name)
                choices.append(self._timed(led, candidate.name))
        factors = fusion_factors(choices)
        fused = [scaled(offer, factors.get(offer.name, 1.0)) for offer in tuned]
        with contextlib.suppress(PlacementError):  # likewise: limits aren't always found to be kept
            choices.append(self._timed(place(offers=fused)))
        return told(
            best_of(choices, rules.limits.min_gain),
            choices,
            {offer.name: offer for offer in tuned},
            self._candidates[0].name,
            basis,
        )

    def _timed(self, placed: Partitioning, lead: str | None = None) -> Choice:
        return Choice(placed, lead, self._measuring.whole(placed))


def _is_contested(offers: Sequence[Offer], live: Sequence[int]) -> bool:
    """Several can run some node."""
    return any(sum(offer.answers[index].supported for offer in offers) > 1 for index in live)


def _basis(
    offers: Sequence[Offer], nodes: Sequence[dict[Nodes, float]], live: Sequence[int]
) -> str:
    """E.g. `measured costs of 31 of 33 nodes`: of those that providers run, on all that can."""
    able = {
        index: [at for at, o in enumerate(offers) if o.answers[index].supported] for index in live
    }
    claimed = [index for index, row in able.items() if row]
    known = [index for index in claimed if all((index,) in nodes[at] for at in able[index])]
    return f"measured costs of {len(known)} of {len(claimed)} nodes"
