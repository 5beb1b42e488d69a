"""The placement report: where every node runs and why, as data that prints itself.

Made once when a session is created. Knows partitions and plans; knows no session.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ep_core.contracts import PartitionMemory
from ep_core.partition import CORE, NodePlacement
from ep_core.placement.place import PredictedCopy
from ep_core.running.plan import Copy, Peak, Plan
from ep_core.types import HOST_MEMORY, MemoryInfo

__all__ = [
    "CopyReport",
    "MemoryPeak",
    "PartitionReport",
    "PlacementReport",
    "copies_of",
    "peaks_by_memory",
]

_SHOWN_TYPES = 6
_SHOWN_NODES = 4


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition.

    Attributes:
        scope: the path of the graph it is in, `""` for the main graph.
        from_cache: it was imported from `SessionOptions.cache_dir` instead of compiled.
        seconds: predicted for one run of it, its start included; None where costs aren't known.
    """

    scope: str
    name: str
    provider: str
    device: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    from_cache: bool = False
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CopyReport:
    """One copy between memories.

    Attributes:
        nbytes: None where the shape isn't static.
        seconds: predicted, for lengths that are assumed where they aren't known; None where costs
            aren't known.
    """

    scope: str
    value: str
    source: str
    target: str
    nbytes: int | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """What a session takes of one memory at most, in bytes, as planned.

    Attributes:
        constant_bytes: of partitions, from the session's start to its end; None if not known.
        run_bytes: of one run of `run` beside them, its results included and what the caller brings
            not; None if that isn't known. Runs at the same time take as much each.
        unknown: why something isn't known, empty where all is.
    """

    constant_bytes: int | None
    run_bytes: int | None
    unknown: str = ""

    def __str__(self) -> str:
        unknown = "an unknown amount"
        constants = unknown if self.constant_bytes is None else _bytes(self.constant_bytes)
        run = unknown if self.run_bytes is None else f"at most {_bytes(self.run_bytes)}"
        why = f" ({self.unknown})" if self.unknown else ""
        return f"{constants} for constants, {run} in a run{why}"


@dataclass(frozen=True)
class PlacementReport:
    """Where everything runs.

    Attributes:
        providers: the session's providers in order of preference.
        nodes: by scope (`""` is the main graph, `if_1/then_branch` a body), one entry per node
            that an output depends on.
        partitions: in execution order within each scope.
        copies: between memories.
        refused_claims: compilations that failed, with the reason; their nodes went elsewhere.
        notes: what concerns a provider as a whole, such as a missing certificate.
        strategy, basis: `cost` or `greedy`, and why. Where a body exceeds limits by greedy, `cost`
            is the word although other graphs are placed by greedy.
        predicted_seconds: of one run, nothing overlapping, each body running once; None where
            costs aren't known.
        greedy_seconds: the same, had every node gone to the first provider that can run it.
        peak_bytes: what the session takes at most, by memory.
    """

    providers: tuple[str, ...]
    nodes: dict[str, tuple[NodePlacement, ...]]
    partitions: tuple[PartitionReport, ...]
    copies: tuple[CopyReport, ...]
    refused_claims: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    strategy: str = "greedy"
    basis: str = ""
    predicted_seconds: float | None = None
    greedy_seconds: float | None = None
    peak_bytes: Mapping[str, MemoryPeak] = field(default_factory=dict)

    def provider_of(self, node: str, scope: str = "") -> str:
        """Name of the provider that runs a node; KeyError for unknown or unused nodes."""
        for placement in self.nodes[scope]:
            if placement.node == node:
                return placement.provider
        raise KeyError(node)

    @property
    def summary(self) -> str:
        """One line, e.g. `openvino 410 of 412 nodes, cpu 2 [TopK]; 2 copies, 1.2 MiB`."""
        placements = [p for scope in self.nodes.values() for p in scope]
        counts = Counter(p.provider for p in placements)
        parts: list[str] = []
        for name in (*self.providers, CORE):
            if name not in counts:
                continue
            text = f"{name} {counts[name]}"
            if not parts:
                text += f" of {_nodes(len(placements))}"
            else:
                kinds = sorted({p.op_type for p in placements if p.provider == name})
                shown = kinds[:_SHOWN_TYPES] + (["..."] if len(kinds) > _SHOWN_TYPES else [])
                text += f" [{', '.join(shown)}]"
            parts.append(text)
        copies = _copies_text(self.copies)
        return f"{', '.join(parts) or 'no nodes'}; {copies}"

    def to_dict(self) -> dict[str, Any]:
        """The whole report as plain data, ready for JSON."""
        return {
            "summary": self.summary,
            "strategy": self.strategy,
            "basis": self.basis,
            "predicted_seconds": self.predicted_seconds,
            "greedy_seconds": self.greedy_seconds,
            "providers": list(self.providers),
            "nodes": {
                scope: [
                    {field.name: _plain(getattr(p, field.name)) for field in dataclasses.fields(p)}
                    for p in placements
                ]
                for scope, placements in self.nodes.items()
            },
            "partitions": [dataclasses.asdict(p) for p in self.partitions],
            "copies": [dataclasses.asdict(c) for c in self.copies],
            "peak_bytes": {name: dataclasses.asdict(p) for name, p in self.peak_bytes.items()},
            "refused_claims": list(self.refused_claims),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [self.summary, f"  by {self.strategy}: {self.basis}"]
        if self.predicted_seconds is not None:
            lines[-1] += f"; {self.predicted_seconds * 1e3:.3g} ms predicted"
        for part in self.partitions:
            where = f"{part.scope}: " if part.scope else ""
            count = _nodes(len(part.nodes)) + (", from the cache" if part.from_cache else "")
            lines.append(f"  {where}{part.name} on {part.provider} ({part.device}): {count}")
        for copy in self.copies:
            size = "unknown size" if copy.nbytes is None else _bytes(copy.nbytes)
            lines.append(f"  copy {copy.value!r} {copy.source} -> {copy.target}, {size}")
        lines.extend(f"  memory {name}: {peak}" for name, peak in self.peak_bytes.items())
        lines.extend(f"  {reason}" for reason in (*self.notes, *self.refused_claims))
        refused: dict[tuple[str, str], list[str]] = {}
        for scope, placements in self.nodes.items():
            for p in placements:
                name = f"{scope}/{p.node}" if scope else p.node
                for provider, reason in p.refusals.items():
                    refused.setdefault((provider, reason), []).append(f"{name} ({p.op_type})")
        for (provider, reason), names in refused.items():
            rest = len(names) - _SHOWN_NODES
            shown = [*names[:_SHOWN_NODES], f"{rest} more"] if rest > 0 else names
            lines.append(f"  {', '.join(shown)} not on {provider}: {reason}")
        return "\n".join(lines)


def copies_of(plan: Plan, scope: str, predicted: Iterable[PredictedCopy]) -> list[CopyReport]:
    """The copies of one plan, without its subplans."""
    seconds = {(copy.value, copy.source, copy.target): copy.seconds for copy in predicted}
    return [
        CopyReport(
            scope=scope,
            value=step.value,
            source=str(step.hop.source),
            target=str(step.hop.target),
            nbytes=step.nbytes,
            seconds=seconds.get((step.value, step.hop.source, step.hop.target)),
        )
        for step in plan.steps
        if isinstance(step, Copy)
    ]


def peaks_by_memory(
    runs: Mapping[MemoryInfo, Peak],
    partitions: Iterable[tuple[MemoryInfo, PartitionMemory | str]],
    scratch_bytes: int,
) -> dict[str, MemoryPeak]:
    """Put together what runs and what partitions take.

    Args:
        runs: the most of one run, without reusable arrays.
        partitions: with the memory that each works in; a sentence where one doesn't tell.
        scratch_bytes: reusable arrays of one run, on the host.
    """
    constants: dict[MemoryInfo, int] = {}
    unknown = {memory: peak.unknown for memory, peak in runs.items() if peak.unknown}
    untold: set[MemoryInfo] = set()
    for memory, told in partitions:
        if isinstance(told, str):
            unknown.setdefault(memory, told)
            untold.add(memory)
        else:
            constants[memory] = constants.get(memory, 0) + told.constant_bytes
    found = {}
    for memory in sorted({*runs, *constants, *untold}, key=str):
        most = runs[memory].nbytes if memory in runs else 0
        if most is not None and memory == HOST_MEMORY:
            most += scratch_bytes
        held = None if memory in untold else constants.get(memory, 0)
        found[str(memory)] = MemoryPeak(held, most, unknown.get(memory, ""))
    return found


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _copies_text(copies: tuple[CopyReport, ...]) -> str:
    """E.g. `2 copies, 1.2 MiB`; sizes that aren't known beforehand are said to be unknown."""
    if not copies:
        return "no copies"
    sizes = [copy.nbytes for copy in copies if copy.nbytes is not None]
    parts = [_bytes(sum(sizes))] if sizes else []
    if len(sizes) < len(copies):
        parts.append(f"{len(copies) - len(sizes)} of unknown size")
    return f"{len(copies)} cop{'y' if len(copies) == 1 else 'ies'}, {' and '.join(parts)}"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{min(count, 2**99) / size:.1f} {unit}"  # a model may state any shape
    return f"{count} B"
