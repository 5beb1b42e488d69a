"""From a graph and open providers to a plan: place, compile, and place again after a refusal.

Also prepares the bodies of control-flow nodes: a body is closed over its outer scope first, so
that it is placed and planned like any other graph.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ep_core.artifacts.cache import ArtifactCache, make_partition
from ep_core.binding.layout import Item, Layout
from ep_core.contracts import CompiledPartition, PartitionMemory, Stream, Value
from ep_core.errors import CompileError, DeviceLostError
from ep_core.graph import Graph, Node, Subgraph, ValueInfo
from ep_core.partition import (
    CORE,
    Candidate,
    Partitioning,
    PartitionSpec,
    cut_claim,
    partition,
)
from ep_core.placement.decide import Decision
from ep_core.placement.rules import Rules
from ep_core.report import CopyReport, MemoryPeak, PartitionReport, PlacementReport, copies_of
from ep_core.running.control_flow import Body
from ep_core.running.plan import Plan, Scratch
from ep_core.running.planner import Planner
from ep_core.types import MemoryInfo

if TYPE_CHECKING:
    from ep_core.tuning.tuner import Tuner

__all__ = ["Compiler"]

_MAX_ATTEMPTS = 20
_MAX_SEARCHES = 4
"""Claims of one provider, per session, whose failure is looked into. A search compiles a claim of n
nodes about log2(n) more times, and compilers can be slow."""

_Key = tuple[str, tuple[int, ...], Graph]
_Compiled = dict[_Key, "_Made"]


@dataclass(frozen=True, slots=True)
class _Made:
    """A claim that was cut out and compiled, or taken from the cache.

    Attributes:
        takes: what it takes of its provider's memory, or why that isn't known.
    """

    subgraph: Subgraph
    part: CompiledPartition
    from_cache: bool
    takes: PartitionMemory | str


@dataclass
class Compiler:
    """Compiles a model's graphs for one session and remembers what the report needs.

    Attributes:
        rules: what the caller wants of the placement.
        tuner: places by measured costs; None without them.
        layout: of the graph compiled last, from which plans for other memories can be made.
    """

    candidates: Sequence[Candidate]
    cache: ArtifactCache | None = None
    rules: Rules = field(default_factory=Rules)
    tuner: Tuner | None = None
    scratch: list[Scratch] = field(default_factory=list)
    layout: Layout = field(init=False)
    _partitions: list[CompiledPartition] = field(default_factory=list)
    _takes: dict[int, PartitionMemory | str] = field(default_factory=dict)  # by id of a partition
    _constants: list[tuple[MemoryInfo, PartitionMemory | str]] = field(default_factory=list)
    _peaks: dict[str, MemoryPeak] = field(default_factory=dict)
    _decisions: dict[str, Decision] = field(default_factory=dict)  # by scope
    _parts: list[PartitionReport] = field(default_factory=list)
    _copies: list[CopyReport] = field(default_factory=list)
    _refused: list[str] = field(default_factory=list)
    _culprits: dict[str, set[str]] = field(default_factory=dict)  # operators by provider

    def compile(self, graph: Graph, scope: str = "") -> Plan:
        """Return the plan of a self-contained graph.

        Raises:
            PlacementError: nodes that nobody runs, or rules that can't be kept.
            CompileError: compilation kept failing.
        """
        if not scope:
            self.rules = self.rules.resolved(graph, _spellings(self.candidates))
        placed, compiled = self._place_and_compile(graph, scope)
        graph = placed.graph
        items: list[Item] = []
        for spec in placed.specs:
            if spec.candidate is None:
                node = graph.nodes[spec.indices[0]]
                items.append((node, self._bodies(graph, node, scope)))
            else:
                made = compiled[spec.candidate.name, spec.indices, graph]
                items.append((made.subgraph, made.part, spec.candidate))
        bodies = tuple(self.scratch)
        self.layout = Layout(graph, tuple(items), bodies, self._takes, self._constants)
        plan = self.layout.fill(Planner(graph, self.candidates, self.scratch))
        if not scope:
            self._peaks = self.layout.peaks(plan, self.scratch)
        self._copies += copies_of(plan, scope, self._decisions[scope].copies)
        return plan

    def report(self) -> PlacementReport:
        """What was decided, for everything compiled so far."""
        decisions = self._decisions.values()
        leading = max(decisions, key=lambda d: (_has_providers(d), d.strategy == "cost"))
        return PlacementReport(
            providers=tuple(c.name for c in self.candidates),
            nodes={scope: decision.placements for scope, decision in self._decisions.items()},
            partitions=tuple(self._parts),
            copies=tuple(self._copies),
            refused_claims=tuple(self._refused),
            notes=tuple(f"{c.name} gets no node: {c.note}" for c in self.candidates if c.note),
            strategy=leading.strategy,
            basis=leading.basis,
            predicted_seconds=_total(d.seconds for d in decisions),
            greedy_seconds=_total(d.greedy_seconds for d in decisions),
            peak_bytes=self._peaks,
        )

    def close(self) -> None:
        """Close every partition; failures of one don't keep the others open."""
        while self._partitions:
            with contextlib.suppress(Exception):
                self._partitions.pop().close()

    def _place_and_compile(self, graph: Graph, scope: str) -> tuple[Partitioning, _Compiled]:
        refusals: dict[tuple[str, str], str] = {}
        compiled: _Compiled = {}
        for _ in range(_MAX_ATTEMPTS):
            placed = self._place(graph, refusals, scope)
            wanted = [spec for spec in placed.specs if spec.candidate is not None]
            decision = placed.decision
            failed = [s for s in wanted if not self._compile(decision, s, compiled, refusals)]
            if not failed:
                self._keep(scope, wanted, compiled, decision)
                return placed, compiled
        raise CompileError(
            f"compilation failed {_MAX_ATTEMPTS} times over: {self._refused[-1]}",
            fix="Leave the failing provider out of the session's providers.",
        )

    def _place(
        self, graph: Graph, refusals: dict[tuple[str, str], str], scope: str
    ) -> Partitioning:
        """Decide who runs what."""
        if self.tuner is not None:
            return self.tuner.partition(graph, refusals, self.rules, scope)
        return partition(graph, self.candidates, refusals, self.rules, scope)

    def _compile(
        self,
        decision: Decision,
        spec: PartitionSpec,
        compiled: _Compiled,
        refusals: dict[tuple[str, str], str],
    ) -> bool:
        """Compile one claim unless an earlier attempt did; a failure becomes refusals."""
        candidate, graph = spec.candidate, decision.graph
        assert candidate is not None
        key = (candidate.name, spec.indices, graph)
        if key in compiled:
            return True
        name = f"{candidate.name}_{len(self._parts) + len(compiled)}"
        try:
            made = _compiled(graph, spec.indices, candidate, name, self.cache)
        except Exception as error:  # noqa: BLE001 - costs this claim only, or a part of it
            reason = f"compile failed: {type(error).__name__}: {error}"
            lost = self._blamed(graph, spec.indices, candidate, error)
            names = [decision.clones.get(node.name, node.name) for node in lost]
            refusals.update({(candidate.name, name): reason for name in names})
            kinds = ", ".join(sorted({node.key for node in lost}))
            count = f"{len(lost)} of {len(spec.indices)} node(s) [{kinds}]"
            self._refused.append(f"{candidate.name} refused {count}; {reason}")
            return False
        self._partitions.append(made.part)
        compiled[key] = made
        return True

    def _blamed(
        self, graph: Graph, indices: tuple[int, ...], candidate: Candidate, error: Exception
    ) -> list[Node]:
        """The nodes that a failed claim loses: those of the operators that are to blame, or all.

        One operator that a compiler doesn't like shouldn't cost it a whole model.
        """
        nodes = [graph.nodes[index] for index in indices]
        culprits = self._culprits.setdefault(candidate.name, set())
        if not any(node.key in culprits for node in nodes):
            if len(culprits) == _MAX_SEARCHES or isinstance(error, DeviceLostError):
                return nodes
            culprits.add(graph.nodes[_first_failing(graph, indices, candidate)].key)
        return [node for node in nodes if node.key in culprits]

    def _keep(
        self,
        scope: str,
        specs: Sequence[PartitionSpec],
        compiled: _Compiled,
        decision: Decision,
    ) -> None:
        """Record what is used; close what earlier attempts compiled for nothing."""
        used = set()
        for spec in specs:
            assert spec.candidate is not None
            key = (spec.candidate.name, spec.indices, decision.graph)
            used.add(key)
            made = compiled[key]
            self._takes[id(made.part)] = made.takes
            self._constants.append((spec.candidate.provider.memory, made.takes))
            device = spec.candidate.provider.device
            self._parts.append(
                PartitionReport(
                    scope=scope,
                    name=made.subgraph.name,
                    provider=spec.candidate.name,
                    device=f"{device.kind} {device.id}",
                    nodes=tuple(decision.graph.nodes[index].name for index in spec.indices),
                    inputs=made.subgraph.inputs,
                    outputs=made.subgraph.outputs,
                    from_cache=made.from_cache,
                    seconds=spec.seconds,
                )
            )
        for key in set(compiled) - used:
            part = compiled.pop(key).part
            self._partitions.remove(part)
            with contextlib.suppress(Exception):
                part.close()
        self._decisions[scope] = decision
        taken = Counter(self.rules.taken) + Counter(decision.needs)
        self.rules = replace(self.rules, taken=taken)
        if self.rules.settled is None and _has_providers(decision):
            self.rules = replace(self.rules, settled=decision.strategy)

    def _bodies(self, graph: Graph, node: Node, scope: str) -> dict[str, Body]:
        bodies = {}
        for name, body in node.bodies.items():
            inner = f"{scope}/{node.name}/{name}" if scope else f"{node.name}/{name}"
            closed, captures = close_over(body, graph)
            types = tuple(info.type or closed.type_of(info.name) for info in body.outputs)
            bodies[name] = Body(self.compile(closed, inner), captures, types)
        return bodies


def _spellings(candidates: Sequence[Candidate]) -> dict[str, str]:
    """A candidate's name by each word that means it and no other."""
    words = {c.name: (c.info.name, *c.info.aliases) for c in candidates}
    uses = Counter(word for own in words.values() for word in set(own))
    found = {word: name for name, own in words.items() for word in own if uses[word] == 1}
    return found | {name: name for name in words}


def _total(seconds: Iterable[float | None]) -> float | None:
    known = list(seconds)
    return None if None in known else sum(value or 0.0 for value in known)


def _has_providers(decision: Decision) -> bool:
    return any(placement.provider != CORE for placement in decision.placements)


def close_over(body: Graph, outer: Graph) -> tuple[Graph, tuple[str, ...]]:
    """Make a body self-contained: outer constants become its own, other captures its inputs.

    Returns:
        The closed graph, and the names of the captures that became its last inputs.
    """
    constants = {name: c for name in body.captures if (c := outer.constant(name)) is not None}
    captures = tuple(name for name in body.captures if name not in constants)
    infos = tuple(ValueInfo(name, outer.type_of(name)) for name in captures)
    closed = body.replace(
        inputs=(*body.inputs, *infos),
        initializers={**constants, **body.initializers},
        values={**{info.name: info for info in infos}, **body.values},
    )
    return closed, captures


def _compiled(
    graph: Graph,
    indices: tuple[int, ...],
    candidate: Candidate,
    name: str,
    cache: ArtifactCache | None = None,
) -> _Made:
    """Cut a claim out and have the provider make a partition of it."""
    subgraph = cut_claim(graph, indices, candidate, name)
    part, from_cache = make_partition(candidate, subgraph, cache)
    takes = _takes(candidate, part)
    if not candidate.provider.features.concurrent_runs:
        part = _TakingTurns(part)
    return _Made(subgraph, part, from_cache, takes)


def _takes(candidate: Candidate, part: CompiledPartition) -> PartitionMemory | str:
    """What a partition takes of its provider's memory; why that isn't known is a sentence."""
    if not candidate.provider.features.tells_memory:
        return f"{candidate.name} doesn't tell what its partitions take"
    try:
        told = candidate.provider.get_partition_memory(part)
    except Exception as error:  # noqa: BLE001 - the plan lacks a number, and the session works
        return f"get_partition_memory of {candidate.name} raised {type(error).__name__}: {error}"
    if not isinstance(told, PartitionMemory):
        return f"get_partition_memory of {candidate.name} gave a {type(told).__name__}"
    return told


def _first_failing(graph: Graph, indices: tuple[int, ...], candidate: Candidate) -> int:
    """The node up to which a claim doesn't compile, though it does up to the one before it.

    A claim's nodes up to any one of them are convex like the claim itself.
    """
    works, fails = 0, len(indices)
    while fails - works > 1:
        middle = (works + fails) // 2
        try:
            made = _compiled(graph, indices[:middle], candidate, f"{candidate.name}_search")
        except Exception:  # noqa: BLE001 - that it fails is the answer
            fails = middle
        else:
            works = middle
            with contextlib.suppress(Exception):
                made.part.close()
    return indices[fails - 1]


class _TakingTurns:
    """A partition that runs on one thread at a time, for providers that need that."""

    def __init__(self, part: CompiledPartition) -> None:
        self._part = part
        self._turn = threading.Lock()

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        return self._part.accepts_outputs

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None,
    ) -> None:
        with self._turn:
            self._part.run(inputs, outputs, stream)

    def close(self) -> None:
        self._part.close()
