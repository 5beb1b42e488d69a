"""Asks the providers which nodes they can run, and has the nodes placed.

Works on one graph at a time (a main graph, or the closed body of a control-flow node) and on open
providers. The computation itself is the room `placement`. Every answer is kept with its reason for
the report. Nothing is compiled or run here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ep_core.contracts import Capability, ExecutionProvider, GraphPass, ProviderInfo, Support
from ep_core.graph import Graph, Node
from ep_core.memory import direct_hop
from ep_core.placement.build import CONTROL_FLOW, CORE, Offer
from ep_core.placement.decide import Decision, NodePlacement, decide
from ep_core.placement.roofline import assumed_speed
from ep_core.placement.rules import Rules
from ep_core.types import HOST_MEMORY, MemoryInfo, TensorType

__all__ = [
    "CONTROL_FLOW",
    "CORE",
    "Candidate",
    "NodePlacement",
    "Partitioning",
    "PartitionSpec",
    "Refusals",
    "answers",
    "partition",
]

Grant = Callable[[Graph, Node], tuple[bool, str]]
Refusals = Mapping[tuple[str, str], str]
"""Reason by (provider, node name): claims that failed to compile and are not tried again."""


@dataclass(frozen=True)
class Candidate:
    """An open provider, in the order of the caller's wish.

    Attributes:
        name: the provider's short name.
        grant: what its certificate allows; returns yes, or no with a reason.
        passes: its own graph passes, run on the regions it gets.
        named: the caller asked for it, as opposed to the automatic fallback.
        options: what it was opened with.
        note: what keeps every node from it, such as a missing certificate.
    """

    name: str
    provider: ExecutionProvider
    grant: Grant
    passes: tuple[GraphPass, ...] = ()
    named: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def info(self) -> ProviderInfo:
        """Who the provider is."""
        return self.provider.info

    def renamed(self, name: str) -> Candidate:
        """The same provider under another name."""
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """Nodes that run together: indices into `Graph.nodes`, ascending; provider None is the core."""

    candidate: Candidate | None
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Partitioning:
    """The answer for one graph: what was decided, and its partitions in execution order."""

    decision: Decision
    specs: tuple[PartitionSpec, ...]

    @property
    def placements(self) -> tuple[NodePlacement, ...]:
        """One per live node."""
        return self.decision.placements


def partition(
    graph: Graph,
    candidates: Sequence[Candidate],
    refusals: Refusals | None = None,
    rules: Rules | None = None,
    scope: str = "",
) -> Partitioning:
    """Place every node that an output depends on.

    Args:
        graph: self-contained, apart from constants nothing is captured.
        candidates: in order of preference.
        refusals: claims not to make again.
        rules: what the caller wants, in the candidates' names; None for greedy without wishes.
        scope: the path of the graph, for the patterns of the rules.

    Raises:
        PlacementError: nodes that nobody may run, with each provider's reason; or rules that
            can't be kept.
    """
    offers = []
    for candidate in candidates:
        device = candidate.provider.device
        offers.append(
            Offer(
                name=candidate.name,
                memory=candidate.provider.memory,
                speed=device.speed or assumed_speed(device.kind),
                answers=answers(graph, candidate, refusals or {}),
                declared=device.speed is not None,
                named=candidate.named,
            )
        )
    decision = decide(graph, offers, rules or Rules("greedy"), scope, _direct(candidates))
    specs = tuple(
        PartitionSpec(candidates[owner] if owner < len(candidates) else None, indices)
        for owner, indices in decision.partitions
    )
    return Partitioning(decision, specs)


def _direct(candidates: Sequence[Candidate]) -> list[tuple[MemoryInfo, MemoryInfo]]:
    """Ordered pairs of device memories between which a copy avoids the host."""
    providers = [candidate.provider for candidate in candidates]
    memories = dict.fromkeys(p.memory for p in providers if p.memory != HOST_MEMORY)
    pairs = itertools.permutations(memories, 2)
    return [(source, target) for source, target in pairs if direct_hop(source, target, providers)]


def answers(graph: Graph, candidate: Candidate, refusals: Refusals) -> tuple[Support, ...]:
    """The provider's answers, after the checks of contract, certificate and earlier refusals."""
    provider = candidate.provider
    try:
        capability = provider.get_capability(graph)
    except Exception as error:  # noqa: BLE001 - a broken provider costs only its own claims
        reason = f"get_capability raised {type(error).__name__}: {error}"
        return (Support(False, reason),) * len(graph.nodes)
    broken = _contract_breach(graph, capability)
    if broken:
        return (Support(False, f"get_capability broke its contract: {broken}"),) * len(graph.nodes)
    result = []
    for node, answer in zip(graph.nodes, capability.nodes, strict=True):
        told = answer if answer.supported else Support(False, answer.reason or "not supported")
        if told.supported:
            refusal = refusals.get((candidate.name, node.name))
            refusal = refusal or _outside_contract(graph, node, candidate)
            granted, note = (False, refusal) if refusal else candidate.grant(graph, node)
            told = replace(told, supported=granted, reason=note or answer.reason)
        result.append(told)
    return tuple(result)


def _contract_breach(graph: Graph, capability: Capability) -> str | None:
    if not isinstance(capability, Capability):
        return f"returned {type(capability).__name__} instead of Capability"
    if len(capability.nodes) != len(graph.nodes):
        return f"{len(capability.nodes)} answers for {len(graph.nodes)} nodes"
    if not all(isinstance(answer, Support) for answer in capability.nodes):
        return "an answer is not a Support"
    return None


def _outside_contract(graph: Graph, node: Node, candidate: Candidate) -> str | None:
    """A reason to refuse a yes: a feature that the provider doesn't declare."""
    features = candidate.provider.features
    if node.bodies and not features.control_flow:
        return "the provider doesn't declare control_flow"
    if not (features.non_tensor_values and candidate.provider.memory.is_host):
        for name in (*node.reads, *node.outputs):
            kind = graph.type_of(name) if name else None
            if kind is not None and not isinstance(kind, TensorType):
                return f"the provider doesn't declare non_tensor_values, and {name!r} is a {kind}"
    return None
