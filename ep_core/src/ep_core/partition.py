"""Decides which provider runs which node, and groups the nodes into convex partitions.

Works on one graph at a time (a main graph, or the closed body of a control-flow node) and on open
providers. The strategy is the classic one: the first provider, in the caller's order, that says
yes and is granted the node gets it. Every answer is kept with its reason for the report.
Nothing is compiled or run here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ep_core.contracts import Capability, ExecutionProvider, GraphPass, ProviderInfo, Support
from ep_core.errors import PlacementError
from ep_core.graph import Graph, Node
from ep_core.types import TensorType

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

CORE = "core"
"""Stands where a provider's name would, for control flow that the core runs itself."""

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_MAX_LISTED = 5

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
    """

    name: str
    provider: ExecutionProvider
    grant: Grant
    passes: tuple[GraphPass, ...] = ()
    named: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def info(self) -> ProviderInfo:
        """Who the provider is."""
        return self.provider.info

    def renamed(self, name: str) -> Candidate:
        """The same provider under another name."""
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Where one node runs and why.

    Attributes:
        provider: name of the provider, or `core` for control flow that the core runs.
        runner_up: the next provider that would have taken it, None if there is none.
        cost: the provider's estimate in seconds, None where it gave none.
        reason: why this provider.
        refusals: reason of each provider that comes before it in the caller's order.
    """

    node: str
    op_type: str
    provider: str
    runner_up: str | None
    cost: float | None
    reason: str
    refusals: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """Nodes that run together: indices into `Graph.nodes`, ascending; provider None is the core."""

    candidate: Candidate | None
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Partitioning:
    """The answer for one graph: a placement per live node, and partitions in execution order."""

    placements: tuple[NodePlacement, ...]
    specs: tuple[PartitionSpec, ...]


def partition(
    graph: Graph, candidates: Sequence[Candidate], refusals: Refusals | None = None
) -> Partitioning:
    """Place every node that an output depends on.

    Args:
        graph: self-contained, apart from constants nothing is captured.
        candidates: in order of preference.
        refusals: claims not to make again.

    Raises:
        PlacementError: nodes that nobody may run; lists each provider's reason.
    """
    live = _live_nodes(graph)
    supports = {c.name: answers(graph, c, refusals or {}) for c in candidates}
    owners: dict[int, Candidate | None] = {}
    placements = []
    unplaced = []
    for index in live:
        node = graph.nodes[index]
        owner, placement = _place(node, index, candidates, supports)
        if placement is None:
            unplaced.append((node, {c.name: supports[c.name][index].reason for c in candidates}))
            continue
        owners[index] = owner
        placements.append(placement)
    if unplaced:
        raise _unplaced_error(unplaced)
    return Partitioning(tuple(placements), _convex_partitions(graph, owners))


def _place(
    node: Node,
    index: int,
    candidates: Sequence[Candidate],
    supports: Mapping[str, tuple[Support, ...]],
) -> tuple[Candidate | None, NodePlacement | None]:
    refused: dict[str, str] = {}
    for position, candidate in enumerate(candidates):
        answer = supports[candidate.name][index]
        if not answer.supported:
            refused[candidate.name] = answer.reason
            continue
        later = (c.name for c in candidates[position + 1 :] if supports[c.name][index].supported)
        reason = "first in the caller's order" if position == 0 else "first that supports it"
        if answer.reason:
            reason = f"{reason}; {answer.reason}"
        return candidate, NodePlacement(
            node.name, node.key, candidate.name, next(later, None), answer.cost, reason, refused
        )
    if not node.domain and node.op_type in CONTROL_FLOW:
        reason = "control flow that no provider takes as a whole"
        return None, NodePlacement(node.name, node.key, CORE, None, None, reason, refused)
    return None, None


def _unplaced_error(unplaced: list[tuple[Node, dict[str, str]]]) -> PlacementError:
    lines = []
    for node, reasons in unplaced[:_MAX_LISTED]:
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        lines.append(f"\n  {node.key} {node.name!r} ({told or 'no providers'})")
    rest = len(unplaced) - _MAX_LISTED
    if rest > 0:
        lines.append(f"\n  and {rest} more")
    fix = "Add a provider that supports them, or remove them from the model."
    if any(r.startswith("uncertified") for _, reasons in unplaced for r in reasons.values()):
        fix += " To run without proof, set the certificate policy to 'warn' or 'off'."
    return PlacementError(
        f"{len(unplaced)} node(s) can't run on any of the session's providers:" + "".join(lines),
        fix=fix,
    )


def _live_nodes(graph: Graph) -> list[int]:
    """Indices of the nodes that some output depends on, ascending."""
    pending = list(graph.output_names)
    live: set[int] = set()
    while pending:
        index = graph.producers.get(pending.pop())
        if index is not None and index not in live:
            live.add(index)
            pending.extend(graph.nodes[index].reads)
    return sorted(live)


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


def _convex_partitions(
    graph: Graph, owners: Mapping[int, Candidate | None]
) -> tuple[PartitionSpec, ...]:
    """Group nodes so that the partitions, in order, are an order of execution.

    Each partition is a run of nodes that are ready one after the other on one provider, hence
    convex: no value leaves a partition and comes back into it. Every provider is tried as the
    first to start, and the fewest partitions win.
    """
    starts = list(dict.fromkeys(id(owner) for owner in owners.values()))
    if not starts:
        return ()
    best = min((_drain(graph, owners, start) for start in starts), key=len)
    return tuple(best)


def _drain(graph: Graph, owners: Mapping[int, Candidate | None], start: int) -> list[PartitionSpec]:
    """Kahn's algorithm with one ready queue per provider; a queue is drained before the next."""
    missing = {
        index: len({p for n in graph.nodes[index].reads if (p := graph.producers.get(n)) in owners})
        for index in owners
    }
    ready: dict[int, list[int]] = {id(owner): [] for owner in owners.values()}
    for index, count in missing.items():
        if count == 0:
            heapq.heappush(ready[id(owners[index])], index)
    specs: list[PartitionSpec] = []
    current = start
    while any(ready.values()):
        if not ready[current]:
            current = max(ready, key=lambda key: (len(ready[key]), -(ready[key] or [0])[0]))
        taken: list[int] = []
        owner = owners[ready[current][0]]
        while ready[current]:
            index = heapq.heappop(ready[current])
            taken.append(index)
            for user in _users(graph, index):
                if user in missing:
                    missing[user] -= 1
                    if missing[user] == 0:
                        heapq.heappush(ready[id(owners[user])], user)
            if owner is None:
                break  # the core runs control flow node by node
        specs.append(PartitionSpec(owner, tuple(sorted(taken))))
    return specs


def _users(graph: Graph, index: int) -> set[int]:
    """Nodes that read any output of a node."""
    outputs = graph.nodes[index].outputs
    return {user for name in outputs if name for user in graph.consumers.get(name, ())}
