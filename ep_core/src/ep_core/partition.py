"""Asks the providers which nodes they can run, and has the nodes placed.

Works on one graph at a time (a main graph, or the closed body of a control-flow node) and on open
providers. The computation itself is the room `placement`. Every answer is kept with its reason for
the report. Nothing is compiled or run here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ep_core.contracts import (
    Capability,
    ExecutionProvider,
    FusedGroup,
    GraphPass,
    ProviderInfo,
    Support,
)
from ep_core.errors import ContractError
from ep_core.graph import Graph, Node, Subgraph
from ep_core.memory import direct_hop
from ep_core.placement.build import CONTROL_FLOW, CORE, Offer
from ep_core.placement.decide import Decision, NodePlacement, decide
from ep_core.placement.problem import LONGEST
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
    "cut_claim",
    "decided",
    "offers_of",
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
    """Nodes that run together: indices into `Graph.nodes`, ascending; provider None is the core.

    Attributes:
        seconds: predicted for one run of it, None where costs aren't known.
    """

    candidate: Candidate | None
    indices: tuple[int, ...]
    seconds: float | None = None


@dataclass(frozen=True)
class Partitioning:
    """The answer for one graph: what was decided, and its partitions in execution order."""

    decision: Decision
    specs: tuple[PartitionSpec, ...]

    @property
    def graph(self) -> Graph:
        """The graph that the specs are about, with copies of cheap nodes."""
        return self.decision.graph

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
    offers = offers_of(graph, candidates, refusals or {})
    return decided(graph, candidates, offers, rules or Rules("greedy"), scope)


def offers_of(graph: Graph, candidates: Sequence[Candidate], refusals: Refusals) -> list[Offer]:
    """What the candidates answer for a graph, and what is known of their speed."""
    offers = []
    for candidate in candidates:
        device = candidate.provider.device
        claim = _claim(graph, candidate, refusals)
        offers.append(
            Offer(
                name=candidate.name,
                memory=candidate.provider.memory,
                speed=device.speed or assumed_speed(device.kind),
                answers=claim.nodes,
                declared=device.speed is not None,
                named=candidate.named,
                groups=claim.groups,
                memory_bytes=device.memory_bytes,
                asynchronous=candidate.provider.features.asynchronous,
            )
        )
    return offers


def decided(
    graph: Graph,
    candidates: Sequence[Candidate],
    offers: Sequence[Offer],
    rules: Rules,
    scope: str = "",
    lead: str | None = None,
) -> Partitioning:
    """Place every node by what is offered; see `partition`, and `decide` for `lead`.

    Args:
        offers: one per candidate.
    """
    decision = decide(graph, offers, rules, scope, _direct(candidates), lead)
    specs = tuple(
        PartitionSpec(candidates[owner] if owner < len(candidates) else None, indices, seconds)
        for (owner, indices), seconds in zip(
            decision.partitions, decision.partition_seconds, strict=True
        )
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
    return _claim(graph, candidate, refusals).nodes


def _claim(graph: Graph, candidate: Candidate, refusals: Refusals) -> Capability:
    """The same with the groups, which may have nodes that were refused since."""
    provider = candidate.provider
    try:
        capability = provider.get_capability(graph)
        broken = _contract_breach(graph, capability)
    except Exception as error:  # noqa: BLE001 - a broken provider costs only its own claims
        reason = f"get_capability raised {type(error).__name__}: {error}"
        return Capability((Support(False, reason),) * len(graph.nodes))
    if broken:
        reason = f"get_capability broke its contract: {broken}"
        return Capability((Support(False, reason),) * len(graph.nodes))
    result = []
    for node, answer in zip(graph.nodes, capability.nodes, strict=True):
        told = answer if answer.supported else Support(False, answer.reason or "not supported")
        if told.supported:
            refusal = refusals.get((candidate.name, node.name))
            refusal = refusal or _outside_contract(graph, node, candidate)
            granted, note = (False, refusal) if refusal else candidate.grant(graph, node)
            reason = note or answer.reason
            told = Support(granted, reason, _seconds(answer.cost))
        result.append(told)
    groups = (replace(group, cost=_seconds(group.cost)) for group in capability.groups)
    return Capability(tuple(result), tuple(groups))


def _seconds(cost: float | None) -> float | None:
    """A provider's estimate, None for one that can't be: not a number, endless, below 0."""
    return float(cost) if cost is not None and 0 <= cost <= LONGEST else None


def _contract_breach(graph: Graph, capability: Capability) -> str | None:
    if not isinstance(capability, Capability):
        return f"returned {type(capability).__name__} instead of Capability"
    if len(capability.nodes) != len(graph.nodes):
        return f"{len(capability.nodes)} answers for {len(graph.nodes)} nodes"
    for answer in capability.nodes:
        if not isinstance(answer, Support):
            return "an answer is not a Support"
        if not isinstance(answer.reason, str) or not _is_cost(answer.cost):
            return f"{answer} has a reason or a cost that is none"
    return _group_breach(capability)


def _is_cost(cost: object) -> bool:
    return cost is None or isinstance(cost, float | int | np.floating | np.integer)


def _group_breach(capability: Capability) -> str | None:
    """What is wrong with the groups; that they are connected and convex isn't relied upon."""
    if not isinstance(capability.groups, tuple):
        return "its groups are no tuple"
    seen: set[int] = set()
    for group in capability.groups:
        nodes = group.nodes if isinstance(group, FusedGroup) else None
        if not isinstance(nodes, tuple) or not all(isinstance(index, int) for index in nodes):
            return "a group is not a FusedGroup of positions"
        if not _is_cost(group.cost):
            return f"group {nodes} has a cost that is no number"
        if len(nodes) < 2 or any(one >= other for one, other in itertools.pairwise(nodes)):
            return f"group {nodes} isn't two positions or more, ascending"
        if nodes[0] < 0 or nodes[-1] >= len(capability.nodes):
            return f"group {nodes} has a node that isn't there"
        if not all(capability.nodes[index].supported for index in nodes):
            return f"group {nodes} has a node that was refused"
        if not seen.isdisjoint(nodes):
            return f"group {nodes} shares a node with another"
        seen.update(nodes)
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


def cut_claim(
    graph: Graph, indices: Sequence[int], candidate: Candidate, name: str = ""
) -> Subgraph:
    """Cut nodes out for a provider and run its own passes over them; the boundary stays as it is.

    Raises:
        ContractError: a pass changed the boundary.
        whatever a pass raises.
    """
    subgraph = Subgraph.cut(graph, indices, name)
    if not candidate.passes:
        return subgraph
    region = subgraph.as_graph()
    for graph_pass in candidate.passes:
        region = graph_pass(region)
        if region.input_names != subgraph.inputs or region.output_names != subgraph.outputs:
            raise ContractError(
                f"pass {graph_pass.name!r} of {candidate.name} changed the region's boundary"
            )
    return Subgraph(
        graph=region,
        indices=tuple(range(len(region.nodes))),
        inputs=subgraph.inputs,
        outputs=subgraph.outputs,
        constants=MappingProxyType(dict(region.initializers)),
        name=subgraph.name,
    )
