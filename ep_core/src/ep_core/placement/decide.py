"""From the providers' answers and the caller's rules to a placement that says why.

Chooses the strategy, has the nodes placed, and puts it in the words of a report. Providers are
names and answers here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ep_core.contracts import Support
from ep_core.errors import PlacementError
from ep_core.graph import Graph, Node
from ep_core.placement.build import CONTROL_FLOW, CORE, Offer, Wishes
from ep_core.placement.place import SHORT_OF_ROOM, Note, PredictedCopy, Strategy, place
from ep_core.placement.rules import Rules
from ep_core.types import HOST_MEMORY, MemoryInfo

__all__ = ["Decision", "NodePlacement", "decide", "live_nodes"]

_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Where one node runs and why.

    Attributes:
        provider: name of the provider, or `core` for control flow that the core runs.
        runner_up: the provider that would have taken it instead, None if there is none.
        cost: seconds as they were measured, or else as the provider estimates them; None where
            neither is known.
        reason: why this provider.
        refusals: reason of each provider that comes before it in the caller's order.
        difference: predicted seconds that moving it alone to the runner-up would add, copies
            included; None where costs aren't known.
        seconds: predicted for it alone, from the provider's estimate or the device's speed; None
            where costs aren't known.
    """

    node: str
    op_type: str
    provider: str
    runner_up: str | None
    cost: float | None
    reason: str
    refusals: Mapping[str, str]
    difference: float | None = None
    seconds: float | None = None

    @property
    def why_here(self) -> str:
        """E.g. `cpu, which runs TopK 'best': not on npu: operator TopK has no kernel`."""
        told = "; ".join(f"not on {name}: {why}" for name, why in self.refusals.items())
        return f"{self.provider}, which runs {self.op_type} {self.node!r}: {told or self.reason}"


@dataclass(frozen=True)
class Decision:
    """The answer for one graph.

    Attributes:
        placements: one per live node.
        partitions: position of an offer, or their number for the core, and positions of nodes,
            ascending; in execution order.
        strategy, basis: what it was placed by, and why.
        seconds: predicted for one run, None where costs aren't known.
        greedy_seconds: the same, had every node gone to the first provider that can run it.
        partition_seconds: what each partition takes, its start included; None likewise.
        copies: of one run; none where costs aren't known.
        graph: the one that was placed, with copies of cheap nodes where these spare copies of
            their results.
        indices: by placement the position of its node, or of what that is a copy of, in the graph
            that was given.
        clones: by name of such a copy the node that it is a copy of.
        needs: predicted bytes by memory that has a limit.
        bias: seconds by which preferences that it doesn't follow count against it.
    """

    placements: tuple[NodePlacement, ...]
    partitions: tuple[tuple[int, tuple[int, ...]], ...]
    strategy: Strategy
    basis: str
    seconds: float | None
    greedy_seconds: float | None
    partition_seconds: tuple[float | None, ...]
    copies: tuple[PredictedCopy, ...]
    graph: Graph
    indices: tuple[int, ...]
    clones: Mapping[str, str]
    needs: Mapping[MemoryInfo, int]
    bias: float = 0.0


def decide(
    graph: Graph,
    offers: Sequence[Offer],
    rules: Rules,
    scope: str = "",
    direct: Iterable[tuple[MemoryInfo, MemoryInfo]] = (),
    lead: str | None = None,
) -> Decision:
    """Place every node that an output depends on.

    Args:
        offers: in order of preference.
        scope: the path of the graph, for the patterns of the rules.
        direct: pairs of device memories, source and target, with a way that avoids the host.
        lead: a provider that gets all that it can run; see `place`. The strategy has to be "cost".

    Raises:
        PlacementError: nodes that nobody may run, with each provider's reason; or rules that
            can't be kept.
    """
    live = live_nodes(graph)
    offers = [
        replace(offer, answers=rules.answers(graph, scope, offer.name, offer.answers))
        for offer in offers
    ]
    _check_placed(graph, live, offers)
    wishes = rules.wishes(graph, scope, {offer.name: offer.answers for offer in offers})
    strategy, basis, known = _strategy(rules, offers, live)
    room = _room(rules, offers)
    find = partial(place, graph, live, offers, wishes=wishes, direct=direct, room=room, lead=lead)
    if rules.strategy == "auto" and strategy == "greedy":
        placed = find(strategy=strategy)
        if any(rules.limits.excess(placed.chosen)):
            strategy, basis = "cost", f"limits that greedy exceeds; {basis}"
    if rules.strategy != "auto" or strategy == "cost":
        placed = find(strategy=strategy, limits=rules.limits)
    known = known or strategy == "cost"
    placements, clones = [], {}
    for position, found in sorted(placed.notes.items()):
        index, note = placed.origins[position], found
        if strategy == "greedy":
            note = _classic(note, index, offers, wishes)
        if index in wishes.pins:
            note = replace(note, reason=f"pinned by {wishes.sources[index]!r}")
        node = placed.graph.nodes[position]
        placements.append(_placement(node, index, note, offers, known))
        if node.name != graph.nodes[index].name:
            clones[node.name] = graph.nodes[index].name
    return Decision(
        graph=placed.graph,
        indices=tuple(placed.origins[position] for position in sorted(placed.notes)),
        clones=clones,
        placements=tuple(placements),
        partitions=placed.partitions,
        strategy=strategy,
        basis="; ".join([basis, *_short_of_room(placements)]),
        seconds=placed.chosen.seconds if known else None,
        greedy_seconds=placed.greedy.seconds if known else None,
        partition_seconds=placed.partition_seconds if known else (None,) * len(placed.partitions),
        copies=placed.copies if known else (),
        needs=placed.needs,
        bias=placed.chosen.cost - placed.chosen.seconds,
    )


def _room(rules: Rules, offers: Sequence[Offer]) -> dict[MemoryInfo, int]:
    """Bytes that are left of each memory with a limit: the caller's, or the device's own size.

    Raises:
        PlacementError: a limit for a provider in host memory.
    """
    room: dict[MemoryInfo, int] = {}
    for offer in offers:
        limit = rules.memory_limits.get(offer.name)
        if offer.memory == HOST_MEMORY:
            if limit is not None:
                raise PlacementError(
                    f"memory_limits names {offer.name!r}, which works in host memory",
                    fix="Leave it out: only a device's own memory has a limit.",
                )
            continue
        limit = limit if limit is not None else offer.memory_bytes or None
        if limit is not None:
            room[offer.memory] = min(limit, room.get(offer.memory, limit))
    return {memory: max(0, limit - rules.taken.get(memory, 0)) for memory, limit in room.items()}


def _short_of_room(placements: Sequence[NodePlacement]) -> list[str]:
    """The reasons that are memory budgets."""
    reasons = (placement.reason.split("; ")[0] for placement in placements)
    return list(dict.fromkeys(reason for reason in reasons if reason.startswith(SHORT_OF_ROOM)))


def live_nodes(graph: Graph) -> list[int]:
    """Indices of the nodes that some output depends on, ascending."""
    pending = list(graph.output_names)
    live: set[int] = set()
    while pending:
        index = graph.producers.get(pending.pop())
        if index is not None and index not in live:
            live.add(index)
            pending.extend(graph.nodes[index].reads)
    return sorted(live)


def _strategy(
    rules: Rules, offers: Sequence[Offer], live: Sequence[int]
) -> tuple[Strategy, str, bool]:
    """What to place by, why, and whether everybody's costs are known."""
    silent = [offer for offer in offers if not offer.declared and _is_silent(offer, live)]
    named = [offer for offer in offers if offer.named]
    lacking = [offer for offer in named if offer in silent]
    if not any(offer.declared or _claims(offer, live) for offer in named):
        lacking = named
    wanted = rules.strategy
    if wanted == "auto":
        wanted = rules.settled or ("greedy" if lacking else "cost")
    if wanted == "greedy":
        names = ", ".join(offer.name for offer in lacking)
        unknown = f"neither speed nor costs are known of {names}"
        return "greedy", "asked for" if rules.strategy == wanted else unknown, not silent
    basis = "asked for" if rules.strategy == wanted else "speeds or costs are known"
    if silent:
        basis += f", and assumed for {', '.join(offer.name for offer in silent)}"
    return "cost", basis, True


def _claims(offer: Offer, live: Sequence[int]) -> list[Support]:
    """What it would run."""
    return [answer for index in live if (answer := offer.answers[index]).supported]


def _is_silent(offer: Offer, live: Sequence[int]) -> bool:
    """It would run a node and doesn't say what that costs."""
    return any(answer.cost is None for answer in _claims(offer, live))


def _classic(note: Note, index: int, offers: Sequence[Offer], wishes: Wishes) -> Note:
    """The same with the words of greedy, where the runner-up is the next in order."""
    if note.owner == len(offers) or index in wishes.pins:
        return note
    able = [at for at, offer in enumerate(offers) if offer.answers[index].supported]
    runner_up = next((at for at in able if at != note.owner), None)
    difference = note.difference if runner_up == note.runner_up else None
    if wishes.prefer.get(index) == offers[note.owner].name:
        reason = "preferred"
    elif note.owner != able[0]:
        reason = f"{SHORT_OF_ROOM} {offers[able[0]].name}"
    else:
        reason = "first in the caller's order" if note.owner == 0 else "first that supports it"
    return replace(note, runner_up=runner_up, difference=difference, reason=reason)


def _placement(
    node: Node, index: int, note: Note, offers: Sequence[Offer], known: bool
) -> NodePlacement:
    refused = {
        offer.name: offer.answers[index].reason
        for offer in offers[: note.owner]
        if not offer.answers[index].supported
    }
    if note.owner == len(offers):
        reason = "control flow that no provider takes as a whole"
        return NodePlacement(node.name, node.key, CORE, None, None, reason, refused)
    owner = offers[note.owner]
    told = owner.answers[index]
    reasons = [note.reason, told.reason, f"fused with {_listed(note.fused)}" if note.fused else ""]
    return NodePlacement(
        node=node.name,
        op_type=node.key,
        provider=owner.name,
        runner_up=None if note.runner_up is None else offers[note.runner_up].name,
        cost=told.cost,
        reason="; ".join(filter(None, reasons)),
        refusals=refused,
        difference=note.difference if known else None,
        seconds=note.seconds if known else None,
    )


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _check_placed(graph: Graph, live: Sequence[int], offers: Sequence[Offer]) -> None:
    """Raise PlacementError for nodes that nobody may run."""
    unplaced = []
    for index in live:
        node = graph.nodes[index]
        core = not node.domain and node.op_type in CONTROL_FLOW
        if not core and not any(offer.answers[index].supported for offer in offers):
            unplaced.append((node, {o.name: o.answers[index].reason for o in offers}))
    if unplaced:
        raise _unplaced_error(unplaced)


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
