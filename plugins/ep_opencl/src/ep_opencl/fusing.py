"""Chains of elementwise operators become one kernel: nothing between them goes through memory.

A producer goes into its reader where nobody else reads it and both have the same static shape, so
that nothing is computed twice. Works on lowered steps, whose kernels say what they compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ep_core.contracts import FusedGroup, Support
from ep_core.graph import Graph
from ep_core.types import TensorType, ValueType
from ep_opencl.kernels.elementwise import ELEMENTWISE, ElementwiseKernel
from ep_sdk.lowering import Lowered, LoweredStep

__all__ = ["fuse_elementwise", "fused_groups"]

_MOST_INPUTS = 12
_MOST_OPERATIONS = 32
"""Beyond these a kernel has more arguments, and more live values, than devices like."""


def fuse_elementwise(lowered: Lowered) -> Lowered:
    """Return the same work with chains of elementwise steps joined."""
    steps = _Fuser(lowered).run()
    return lowered.with_steps(steps) if len(steps) < len(lowered.steps) else lowered


def fused_groups(graph: Graph, answers: Sequence[Support]) -> list[FusedGroup]:
    """What `fuse_elementwise` will join, if the provider gets all of it.

    A node goes into the group of its readers where they are all in one; so no path leaves a group
    and comes back.
    """
    readers = graph.consumers
    outputs = frozenset(graph.output_names)
    group_of: dict[int, int] = {}
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        is_elementwise = node.op_type in ELEMENTWISE and not node.domain and node.outputs
        if not answers[number].supported or not is_elementwise:
            continue
        group_of[number] = number
        name = node.outputs[0]
        found = {group_of.get(reader) for reader in readers.get(name, ())}
        if name in outputs or len(found) != 1 or None in found:
            continue
        (group,) = found
        assert group is not None
        last = graph.nodes[group].outputs[0]
        if _same_shape(graph.type_of(name), graph.type_of(last)):
            group_of[number] = group
    return _groups(graph, group_of)


def _groups(graph: Graph, group_of: Mapping[int, int]) -> list[FusedGroup]:
    members: dict[int, list[int]] = {}
    for number, group in sorted(group_of.items()):
        members.setdefault(group, []).append(number)
    found = []
    for numbers in members.values():
        made = {name for number in numbers for name in graph.nodes[number].outputs}
        read = {name for number in numbers for name in graph.nodes[number].inputs if name}
        if 1 < len(numbers) <= _MOST_OPERATIONS and len(read - made) <= _MOST_INPUTS:
            found.append(FusedGroup(tuple(numbers)))
    return found


class _Fuser:
    """The state of one walk over the steps, in order."""

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._readers = Counter(
            slot for step in lowered.steps for slot in dict.fromkeys(step.inputs)
        )
        self._outputs = frozenset(lowered.outputs)
        self._steps: list[LoweredStep | None] = []
        # Where the step stands that gives a slot, for steps that may go into their reader.
        self._makers: dict[int, int] = {}

    def run(self) -> list[LoweredStep]:
        """The steps that are left."""
        for step in self._lowered.steps:
            joined = step
            if isinstance(step.kernel, ElementwiseKernel):
                while (larger := self._absorb_one(joined)) is not None:
                    joined = larger
                self._makers[step.outputs[0]] = len(self._steps)
            self._steps.append(joined)
        return [step for step in self._steps if step is not None]

    def _absorb_one(self, step: LoweredStep) -> LoweredStep | None:
        """Put one producer into a step; None if there is none left that may go there."""
        types = self._lowered.types
        for source in dict.fromkeys(step.inputs):
            place = self._makers.get(source)
            if place is None or source in self._outputs or self._readers[source] != 1:
                continue
            producer = self._steps[place]
            if producer is None or not _same_shape(types[source], types[step.outputs[0]]):
                continue
            merged = _merged(step, source, producer)
            if merged is None:
                continue
            self._steps[place] = None
            for slot in set(step.inputs) & set(producer.inputs):
                # Both read it; from now on it is read once.
                self._readers[slot] -= 1
            return merged
        return None


def _merged(step: LoweredStep, source: int, producer: LoweredStep) -> LoweredStep | None:
    reader, maker = step.kernel, producer.kernel
    assert isinstance(reader, ElementwiseKernel)
    assert isinstance(maker, ElementwiseKernel)
    own = [step.inputs[position] for position in reader.positions]
    if source not in own:
        return None
    expression, sources = reader.expression.with_inputs_merged(own)
    number = sources.index(source)
    expression = expression.with_input_computed(number, maker.expression)
    slots = [slot for slot in sources if slot != source]
    slots += [producer.inputs[position] for position in maker.positions]
    expression, sources = expression.with_inputs_merged(slots)
    if len(sources) > _MOST_INPUTS or len(expression.operations) > _MOST_OPERATIONS:
        return None
    kernel = ElementwiseKernel(reader.bench, expression, range(len(sources)))
    return replace(step, kernel=kernel, inputs=sources)


def _same_shape(first: ValueType | None, second: ValueType | None) -> bool:
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return False
    shape = first.shape
    return shape is not None and None not in shape and shape == second.shape
