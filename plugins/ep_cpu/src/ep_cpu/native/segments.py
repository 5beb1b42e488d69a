"""Divides the nodes of a partition into native segments and nodes for the other kernels.

Nodes are put into another order that is as right as theirs, so that segments are few and long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ep_core.graph import Node, Subgraph
from ep_core.types import TensorType
from ep_cpu.native.program import NEEDS_KNOWN, SHAPE_KINDS, known_values
from ep_cpu.native.steps import NativeStep

__all__ = ["Segment", "divide"]

_TRIVIAL = frozenset(
    (
        *("reshape", "flatten", "squeeze", "unsqueeze", "identity", "shape", "size"),
        *("integer_arithmetic", "range", "fill", "cast", "gather", "concat"),
    )
)
"""What shapes are computed with, mostly: a segment of these alone isn't worth a call."""


@dataclass(frozen=True)
class Segment:
    """Some nodes, by their positions in the graph, in an order that is right.

    Attributes:
        native: one native program; else they go one by one.
        helpers: nodes of other segments that this one computes once more, ahead of its own, to
            know their results while it plans.
    """

    native: bool
    indices: tuple[int, ...]
    helpers: tuple[int, ...] = ()


def divide(subgraph: Subgraph, steps: Mapping[int, NativeStep]) -> list[Segment]:
    """Segments in the order in which they run.

    Args:
        steps: what the nodes come to that have a native operation, by position in the graph.
    """
    native = {index for index in subgraph.indices if index in steps}
    native -= {index for index in native if not _has_known_types(subgraph, index)}
    while True:
        segments = _alternate(subgraph, native)
        ordered = [steps[index] for index in subgraph.indices if index in native]
        known = known_values(ordered, subgraph.constants)
        misfits: set[int] = set()
        for segment in segments:
            if segment.native:
                misfits.update(_misfits(subgraph, segment, steps, known))
        if not misfits:
            return [_with_helpers(subgraph, segment, steps) for segment in segments]
        native -= misfits


def _has_known_types(subgraph: Subgraph, index: int) -> bool:
    node = subgraph.graph.nodes[index]
    names = (*(name for name in node.inputs if name), *(name for name in node.outputs if name))
    return all(isinstance(subgraph.graph.type_of(name), TensorType) for name in names)


def _misfits(
    subgraph: Subgraph, segment: Segment, steps: Mapping[int, NativeStep], known: Collection[str]
) -> Sequence[int]:
    """Nodes of a native segment that can't be, or had better not be, native."""
    is_needed = bool(Subgraph.cut(subgraph.graph, segment.indices).outputs)
    if not is_needed or all(steps[index].kind in _TRIVIAL for index in segment.indices):
        return segment.indices
    return [
        index
        for index in segment.indices
        if any(name not in known for name in _must_be_known(steps[index]))
    ]


def _must_be_known(step: NativeStep) -> list[str]:
    positions = NEEDS_KNOWN.get(step.kind, ())
    return [step.inputs[at] for at in positions if at < len(step.inputs) and step.inputs[at]]


def _with_helpers(subgraph: Subgraph, segment: Segment, steps: Mapping[int, NativeStep]) -> Segment:
    """The same with all that it has to know."""
    if not segment.native:
        return segment
    makers = {
        name: index
        for index in subgraph.indices
        for name in subgraph.graph.nodes[index].outputs
        if name
    }
    own = frozenset(segment.indices)
    helpers: set[int] = set()
    seen: set[str] = set()
    open_names = [name for index in segment.indices for name in _must_be_known(steps[index])]
    while open_names:
        name = open_names.pop()
        if name in seen or name not in makers:
            continue
        seen.add(name)
        index = makers[name]
        if index not in own:
            helpers.add(index)
        if steps[index].kind not in SHAPE_KINDS:
            open_names.extend(steps[index].reads)
    return replace(segment, helpers=tuple(sorted(helpers)))


def _alternate(subgraph: Subgraph, native: set[int]) -> list[Segment]:
    graph = subgraph.graph
    makers = {name: i for i in subgraph.indices for name in graph.nodes[i].outputs if name}
    waits = {i: _needs(graph.nodes[i], makers) for i in subgraph.indices}
    readers: dict[int, list[int]] = {}
    for index, needed in waits.items():
        for maker in needed:
            readers.setdefault(maker, []).append(index)
    counts = {index: len(needed) for index, needed in waits.items()}
    ready = sorted(index for index, count in counts.items() if count == 0)
    segments: list[Segment] = []
    turn = True
    while ready:
        taken = _take(ready, counts, readers, native if turn else set(counts) - native)
        if taken:
            segments.append(Segment(turn, tuple(taken)))
        turn = not turn
    return segments


def _take(
    ready: list[int],
    counts: dict[int, int],
    readers: Mapping[int, Sequence[int]],
    allowed: set[int],
) -> list[int]:
    """Move all that is allowed and ready, or becomes so, out of `ready`."""
    taken: list[int] = []
    work = [index for index in ready if index in allowed]
    ready[:] = [index for index in ready if index not in allowed]
    while work:
        index = work.pop(0)
        taken.append(index)
        for reader in readers.get(index, ()):
            counts[reader] -= 1
            if counts[reader] == 0:
                (work if reader in allowed else ready).append(reader)
        work.sort()
    return taken


def _needs(node: Node, makers: Mapping[str, int]) -> set[int]:
    return {makers[name] for name in node.reads if name in makers}
