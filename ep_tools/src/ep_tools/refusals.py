"""Nodes that a provider doesn't run, together by the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ep_core import PlacementReport
from ep_core.partition import CORE
from ep_tools.console import scoped

__all__ = ["Refusal", "in_brief", "refusals_of"]

_QUOTED = re.compile(r"'[^']*'")
_MANY = 3
"""So many reasons may differ in nothing but the names they quote; more are told as one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nodes that one provider doesn't run, for one reason; nodes of a body with its path."""

    provider: str
    reason: str
    nodes: tuple[str, ...]


def refusals_of(
    report: PlacementReport, counts: Callable[[str], bool] = lambda _: True
) -> tuple[Refusal, ...]:
    """Return who refused which nodes, most nodes first.

    Control flow that the core runs is left out: providers seldom take it as a whole.

    Args:
        counts: whether a provider, by name, is of interest.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for scope, nodes in report.nodes.items():
        for node in nodes:
            if node.provider == CORE:
                continue
            for provider, reason in node.refusals.items():
                if counts(provider):
                    groups.setdefault((provider, reason), []).append(scoped(scope, node.node))
    return _sorted(groups)


def in_brief(refusals: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """Return them with reasons as one that differ only in the names they quote, if there are many.

    `'...'` stands for such names.
    """
    alike: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refusals:
        pattern = _QUOTED.sub("'...'", refusal.reason)
        alike.setdefault((refusal.provider, pattern), []).append(refusal)
    groups: dict[tuple[str, str], list[str]] = {}
    for (provider, pattern), members in alike.items():
        for refusal in members:
            reason = pattern if len(members) > _MANY else refusal.reason
            groups.setdefault((provider, reason), []).extend(refusal.nodes)
    return _sorted(groups)


def _sorted(groups: Mapping[tuple[str, str], Sequence[str]]) -> tuple[Refusal, ...]:
    found = [Refusal(*key, tuple(nodes)) for key, nodes in groups.items()]
    return tuple(sorted(found, key=lambda item: -len(item.nodes)))
