"""Places a model as a session would, and keeps the graphs that were placed.

The report of a session names nodes and values; a picture and the partitions' models need the graphs
behind them, which a session lets go. A model may also be placed on devices that aren't here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ep_core import PlacementReport, SessionOptions
from ep_core.candidates import close_candidates, open_candidates
from ep_core.compiler import Compiler
from ep_core.errors import OptionError, ProviderNotFoundError, ProviderUnavailableError
from ep_core.expanding import expand_functions
from ep_core.folding import Evaluator
from ep_core.fusing import PlacementGuard
from ep_core.graph import Graph, Node
from ep_core.loading.load import load_model
from ep_core.partition import CORE, Candidate
from ep_core.passes import optimize
from ep_core.running.plan import Copy, Plan, Run
from ep_core.tuning.tuner import make_tuner
from ep_core.types import HOST_MEMORY
from ep_tools.explain_measured import MeasuredRuns
from ep_tools.explain_what_if import StandIn, dry, stand_in
from ep_tools.requests import SessionRequest
from ep_tools.sessions import provider_options, session_options

__all__ = ["Placed", "PlacedProvider", "PlannedStep", "place_model"]

_FALLBACK = "cpu"
_ORT_SUFFIX = "ExecutionProvider"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a scope's plan, of those that a reader cares for.

    Attributes:
        kind: what `index` counts: the report's `partitions`, its `copies`, or the graph's nodes,
            for control flow that the core runs.
    """

    kind: Literal["partition", "copy", "node"]
    index: int


@dataclass(frozen=True, slots=True)
class PlacedProvider:
    """A provider as far as it matters to a reader: in whose memory it works, and on what."""

    name: str
    device: str
    memory: str
    stands_in: bool = False


@dataclass(frozen=True)
class Placed:
    """A placement with what it is about.

    Attributes:
        report: as a session of the same request has it.
        providers: in order of preference; last the core itself, if it runs anything.
        graphs: by scope, as they were placed: optimised, bodies closed over outer values.
        steps: by scope, in the order in which they run.
        notes: what isn't known about it, in sentences.
        rules: what the caller asked for, as pairs of a title and a text.
        measured: what a trace says of it, if one was joined.
    """

    report: PlacementReport
    providers: tuple[PlacedProvider, ...]
    graphs: Mapping[str, Graph]
    steps: Mapping[str, tuple[PlannedStep, ...]]
    notes: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    measured: MeasuredRuns | None = None

    @property
    def host_memory(self) -> str:
        """Where inputs come from, outputs go to, and the core works."""
        return str(HOST_MEMORY)

    def body_scope(self, scope: str, node: Node, body: str) -> str | None:
        """The scope of a node's body, None where its provider runs the node as a whole."""
        inner = f"{scope}/{node.name}/{body}" if scope else f"{node.name}/{body}"
        return inner if inner in self.graphs else None


def place_model(
    request: SessionRequest, certificates: Sequence[str] = (), *, compiled: bool = True
) -> Placed:
    """Place a model.

    Args:
        certificates: files that stand in for their providers. One whose provider the request
            doesn't name is preferred to all that are named. With any, nothing is compiled.
        compiled: have the providers compile, so that claims which fail to are known.

    Raises:
        EpError: as a session of the request would; also a certificate that can't be read, or
            that contradicts the request.
    """
    options = session_options(request)
    if certificates and options.tune:
        raise OptionError("--tune needs the devices that --what-if only supposes")
    with contextlib.ExitStack() as undo:
        candidates = _open(request, options, certificates, undo)
        graph = _prepared(request.model, candidates, options)
        if certificates or not compiled:
            candidates = [
                candidate if isinstance(candidate.provider, StandIn) else dry(candidate)
                for candidate in candidates
            ]
        measuring = compiled and not certificates
        watcher = _Watcher(
            candidates,
            rules=options.placement_rules,
            tuner=make_tuner(options, candidates, None, measuring=measuring),
        )
        undo.callback(watcher.close)
        watcher.compile(graph)
        report = watcher.report()
        return Placed(
            report=report,
            providers=_providers(candidates, report),
            graphs=watcher.graphs,
            steps={scope: _steps(scope, watcher.plans[scope], watcher) for scope in watcher.graphs},
            notes=tuple(
                note
                for candidate in candidates
                if isinstance(candidate.provider, StandIn)
                for note in candidate.provider.notes
            ),
            rules=request.placement.in_words,
        )


@dataclass
class _Watcher(Compiler):
    """A compiler that remembers what it was given and what came of it, by scope."""

    graphs: dict[str, Graph] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)

    def compile(self, graph: Graph, scope: str = "") -> Plan:
        self.graphs[scope] = graph  # before the bodies inside, so that a scope precedes its own
        plan = super().compile(graph, scope)
        self.graphs[scope] = self.layout.graph
        self.plans[scope] = plan
        return plan


def _prepared(model: str, candidates: Sequence[Candidate], options: SessionOptions) -> Graph:
    """The graph that a session places, made the way that a session makes it."""
    real = [candidate for candidate in candidates if not isinstance(candidate.provider, StandIn)]
    evaluate = Evaluator(real)
    accept = PlacementGuard(candidates)
    level = options.graph_optimization_level
    loaded = load_model(
        model, limits=options.load_limits, free_dimensions=options.free_dimensions
    ).graph
    graph = optimize(loaded, level, evaluate=evaluate, accept=accept)
    expanded = expand_functions(graph, candidates)
    if expanded is graph:
        return graph
    return optimize(expanded, level, evaluate=evaluate, accept=accept)


def _steps(scope: str, plan: Plan, watcher: _Watcher) -> tuple[PlannedStep, ...]:
    report = watcher.report()
    parts = iter([i for i, part in enumerate(report.partitions) if part.scope == scope])
    copies = iter([i for i, copy in enumerate(report.copies) if copy.scope == scope])
    nodes = watcher.graphs[scope].nodes
    control = {f"{node.op_type} {node.name!r}": i for i, node in enumerate(nodes) if node.bodies}
    steps = []
    for step in plan.steps:
        if isinstance(step, Run):
            steps.append(PlannedStep("partition", next(parts)))
        elif isinstance(step, Copy):
            steps.append(PlannedStep("copy", next(copies)))
        elif step.label in control:
            steps.append(PlannedStep("node", control[step.label]))
    return tuple(steps)


def _providers(
    candidates: Sequence[Candidate], report: PlacementReport
) -> tuple[PlacedProvider, ...]:
    found = [
        PlacedProvider(
            name=candidate.name,
            device=f"{candidate.provider.device.kind} {candidate.provider.device.id}",
            memory=str(candidate.provider.memory),
            stands_in=isinstance(candidate.provider, StandIn),
        )
        for candidate in candidates
    ]
    if any(node.provider == CORE for nodes in report.nodes.values() for node in nodes):
        found.append(PlacedProvider(CORE, "host", str(HOST_MEMORY)))
    return tuple(found)


# ---------------------------------------------------------------- providers that are not here


def _open(
    request: SessionRequest,
    options: SessionOptions,
    certificates: Sequence[str],
    undo: contextlib.ExitStack,
) -> list[Candidate]:
    """All candidates in the order of the caller's wish; `undo` closes those that are real."""
    if not certificates:
        real = open_candidates(request.providers, provider_options(request), options)
        undo.callback(close_candidates, real)
        return real
    absent = _stand_ins(certificates)
    _check_options(request, absent)
    names = None if request.providers is None else list(request.providers)
    if names is None or any(_short(name) not in absent for name in names):
        left = names and [name for name in names if _short(name) not in absent]
        wish = replace(request, providers=left)
        real = open_candidates(left, provider_options(wish), options)
    else:
        real = _open_fallback(options)
    undo.callback(close_candidates, real)
    return _ordered(names or [], absent, [c for c in real if c.info.name not in absent])


def _stand_ins(certificates: Sequence[str]) -> dict[str, Candidate]:
    absent: dict[str, Candidate] = {}
    for path in certificates:
        candidate = stand_in(path)
        if candidate.name in absent:
            raise OptionError(
                f"two certificates are of provider {candidate.name!r}",
                fix="Give one of them at a time.",
            )
        absent[candidate.name] = candidate
    return absent


def _check_options(request: SessionRequest, absent: Mapping[str, Candidate]) -> None:
    for provider, key, _ in request.provider_options:
        if _short(provider) in absent:
            raise OptionError(
                f"--provider-option {provider}.{key} is for a provider that isn't opened",
                fix="Leave it out: a stand-in takes no options.",
            )


def _open_fallback(options: SessionOptions) -> list[Candidate]:
    """The CPU provider, which a session appends where it is installed; nobody named it."""
    try:
        found = open_candidates([_FALLBACK], None, options)
        return [replace(candidate, named=False) for candidate in found]
    except (ProviderNotFoundError, ProviderUnavailableError):
        return []


def _ordered(
    names: Sequence[str], absent: Mapping[str, Candidate], real: Sequence[Candidate]
) -> list[Candidate]:
    """Stand-ins at the places where they are named, or in front; the others as they were opened."""
    wished = [_short(name) for name in names]
    result = [candidate for name, candidate in absent.items() if name not in wished]
    rest = list(real)
    for name in wished:
        if name in absent:
            result.append(absent[name])
        elif rest:
            result.append(rest.pop(0))
    return [*result, *rest]


def _short(name: str) -> str:
    """A provider's own name, also from ONNX Runtime's spelling of it."""
    return name.removesuffix(_ORT_SUFFIX).lower() if name.endswith(_ORT_SUFFIX) else name
