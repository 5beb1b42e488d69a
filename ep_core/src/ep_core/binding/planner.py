"""Plans for inputs and outputs that lie where the caller wants them.

The partitions are those of every other run. What differs: no copy brings an input to where it is
already, an output stays where it is wanted, and memory of the caller's is written by the partition
itself or, where it can't be, by a copy at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ep_core.contracts import Allocator, CompiledPartition, ExecutionProvider
from ep_core.errors import FeedError
from ep_core.graph import Graph, Subgraph
from ep_core.memory import Hop, contiguous, copy_value, direct_hop
from ep_core.partition import Candidate
from ep_core.running.ordering import HOST
from ep_core.running.plan import Plan, Run, RunState, Scratch
from ep_core.running.planner import Planner
from ep_core.running.scratch import static_bytes, static_tensor
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo

__all__ = ["BoundPlanner", "CopyInto", "Duplicate", "Target", "Wish"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where an output is wanted.

    Attributes:
        is_given: the caller brings the memory.
    """

    name: str
    memory: MemoryInfo
    is_given: bool


@dataclass(frozen=True, slots=True)
class Wish:
    """What a plan is made for.

    Attributes:
        inputs: memory of each input, in the graph's order.
        outputs: those that are wanted, in the caller's order.
    """

    inputs: tuple[MemoryInfo, ...]
    outputs: tuple[Target, ...]
    _hash: int = field(init=False, compare=False)  # each run looks its plan up

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.inputs, self.outputs)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class CopyInto:
    """Copy a tensor into the caller's memory.

    Attributes:
        hop: who copies; None from host to host.
        stream: number of the stream that does it, NO_STREAM for a blocking copy.
        value, nbytes: for the report; bytes are None where the shape isn't static.
    """

    value: str
    source: int
    target: int
    hop: Hop | None
    stream: int
    nbytes: int | None

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return f"the copy of {self.value!r} into the memory that is bound to it"

    def execute(self, values: list[Any], state: RunState) -> None:
        source, target = values[self.source], values[self.target]
        _check_fit(self.value, source, target)
        if self.hop is None:
            np.copyto(target, source)
            return
        if isinstance(source, np.ndarray):
            # The array that is really read has to live as long as the copy may run.
            source = values[self.source] = contiguous(source)
        self.hop.transfer.copy(source, target, state.stream(self.stream))


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Copy a host value that is also an input, a constant or another output."""

    value: str
    source: int
    target: int

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return f"the copy of {self.value!r}, which is an input, a constant or another output"

    def execute(self, values: list[Any], state: RunState) -> None:
        values[self.target] = copy_value(values[self.source])


class BoundPlanner(Planner):
    """Builds a plan whose inputs are those of the graph, followed by the memory that is given.

    Its outputs are those of `wish`, in that order.

    Args:
        guests: open providers of memories that aren't the session's; they only copy and allocate.
    """

    def __init__(
        self,
        graph: Graph,
        candidates: Sequence[Candidate],
        scratch: list[Scratch],
        wish: Wish,
        guests: Sequence[ExecutionProvider] = (),
    ) -> None:
        super().__init__(
            graph, candidates, scratch, dict(zip(graph.input_names, wish.inputs, strict=True))
        )
        self._providers = [*self._providers, *guests]
        self._wish = wish
        self._given = {
            target.name: self._new_slot("", target.memory, is_kept=True)
            for target in wish.outputs
            if target.is_given
        }
        self._borrowed = len(self._slots)  # slots before that are the caller's
        self._memory_of = {target.name: target.memory for target in wish.outputs}
        self._leaving: dict[int, tuple[Allocator, int]] = {}

    def add_run(
        self, subgraph: Subgraph, partition: CompiledPartition, candidate: Candidate
    ) -> None:
        """Append a partition; what it can write straight into given memory, it shall."""
        super().add_run(subgraph, partition, candidate)
        draft = self._drafts[-1]
        assert isinstance(draft.step, Run)
        given = []
        for position, name in enumerate(subgraph.outputs):
            fits = self._memory_of.get(name) == candidate.provider.memory
            is_static = static_tensor(self._graph.type_of(name)) is not None
            if name in self._given and fits and is_static and partition.accepts_outputs[position]:
                given.append((position, self._given.pop(name)))
                self._slots[draft.makes[position]].is_kept = True
        draft.step = replace(draft.step, given=tuple(given))

    def finish(self) -> Plan:
        """Bring the outputs to where they are wanted and return the plan.

        Outputs on a device belong to the caller; the plan releases them only after an error.
        """
        plan = super().finish()
        return replace(plan, owners={**plan.owners, **self._leaving})

    def _deliver(self) -> tuple[list[int], tuple[bool, ...]]:
        outputs: list[int] = []
        for target in self._wish.outputs:
            if target.name in self._given:
                slot = self._copied_into(target, self._given[target.name])
            else:
                slot = self._value(target.name, target.memory)
                if self._is_shared(slot) or slot in outputs:
                    slot = self._duplicated(target, slot)
            outputs.append(slot)
            made = self._slots[slot]
            if made.allocator is not None and not made.is_kept:
                self._leaving[slot] = (made.allocator, made.home)
            made.is_kept = True
        return outputs, (False,) * len(outputs)

    def _is_shared(self, slot: int) -> bool:
        return slot < self._borrowed or self._template[slot] is not None

    def _copied_into(self, target: Target, slot: int) -> int:
        source = self._nearest(target.name, target.memory)
        hop: Hop | None = None
        party = HOST
        if (self._slots[source].memory, target.memory) != (HOST_MEMORY, HOST_MEMORY):
            hop = direct_hop(self._slots[source].memory, target.memory, self._providers)
            assert hop is not None
            party = self._carrier(hop)
            self._pin(source, hop)
        size = static_bytes(self._graph.type_of(target.name))
        step = CopyInto(target.name, source, slot, hop, party, size)
        self._add(step, party, (source,), (slot,), is_copy=True)
        return slot

    def _duplicated(self, target: Target, slot: int) -> int:
        """A slot of the same memory that shares nothing with anybody."""
        if target.memory != HOST_MEMORY:
            return self._copy(target.name, self._nearest(target.name, target.memory), target.memory)
        copied = self._new_slot("", HOST_MEMORY)
        self._slots[copied].value = target.name
        self._add(Duplicate(target.name, slot, copied), HOST, (slot,), (copied,))
        return copied


def _check_fit(name: str, source: Any, target: Any) -> None:
    """Shapes that aren't static are compared when they are known."""
    if source is None:
        raise FeedError(f"output {name!r} is empty; it can't be bound to memory")
    wanted, given = _type_of(source), _type_of(target)
    if wanted != given:
        raise FeedError(
            f"the memory bound to output {name!r} doesn't fit this run",
            expected=f"{wanted[0].text}{list(wanted[1])}",
            got=f"{given[0].text}{list(given[1])}",
            fix="Bind the output to a device without memory, and the run allocates it.",
        )


def _type_of(tensor: Any) -> tuple[DataType, tuple[int, ...]]:
    dtype = tensor.dtype
    kind = dtype if isinstance(dtype, DataType) else DataType.from_numpy(dtype)
    return kind, tuple(tensor.shape)
