"""Turns placed and compiled partitions into a plan: copies, waits, releases, reuse of buffers.

One `Planner` makes the plan of one graph; the plans of bodies are made first by `compiler.py`, and
share the scratch table. Steps are emitted in execution order; what must follow a step (events
somebody waits for, releases) is spliced in at the end, when all uses are known.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ep_core.contracts import Allocator, CompiledPartition
from ep_core.graph import Graph, Node, Subgraph
from ep_core.memory import direct_hop
from ep_core.partition import Candidate
from ep_core.running.control_flow import Body, control_flow_step
from ep_core.running.plan import (
    NO_STREAM,
    Copy,
    HostWait,
    Plan,
    Record,
    Release,
    Run,
    Scratch,
    Step,
    StreamWait,
)
from ep_core.types import (
    HOST_MEMORY,
    DataType,
    MapType,
    MemoryInfo,
    SequenceType,
    TensorType,
    ValueType,
)

__all__ = ["Planner"]

_NEVER_EMPTY = (TensorType, SequenceType, MapType)
HOST = NO_STREAM
"""The host as a party that waits and produces, beside the streams 0, 1, ..."""


@dataclass
class _Slot:
    """What the planner knows of one slot."""

    memory: MemoryInfo
    stream: int = HOST
    made_at: int = -1
    uses: list[tuple[int, int]] = field(default_factory=list)  # (step, party)
    pinned: bool = False  # not released by the plan: a feed, a constant, or read by async work
    kept: bool = False  # may live on inside a sequence, so its memory isn't used again
    writable: TensorType | None = None  # its producer can write into given memory of this type


class Planner:
    """Builds the plan of one self-contained graph.

    Args:
        candidates: the session's providers; streams are addressed by position in this list.
        scratch: table of reusable host arrays, shared by all plans of a session.
        inputs: memories of inputs that aren't on the host, by name.
    """

    def __init__(
        self,
        graph: Graph,
        candidates: Sequence[Candidate],
        scratch: list[Scratch],
        inputs: Mapping[str, MemoryInfo] = MappingProxyType({}),
    ) -> None:
        self._graph = graph
        self._position = {c.name: position for position, c in enumerate(candidates)}
        self._providers = [c.provider for c in candidates]
        self._scratch = scratch
        self._slots: list[_Slot] = []
        self._where: dict[tuple[str, MemoryInfo], int] = {}
        self._template: list[Any] = []
        self._steps: list[Step] = []
        self._records: dict[tuple[int, int], int] = {}  # (stream, step) -> event slot
        self._seen: dict[tuple[int, int], int] = {}  # (waiter, stream) -> step known as done
        self._subplans: list[Plan] = []
        for name in graph.input_names:
            self._new_slot(name, inputs.get(name, HOST_MEMORY), pinned=True)

    # ------------------------------------------------------------ emitting steps

    def add_run(
        self, subgraph: Subgraph, partition: CompiledPartition, candidate: Candidate
    ) -> None:
        """Append a partition, preceded by the copies and waits that its inputs need."""
        memory = candidate.provider.memory
        party = self._party(self._position[candidate.name])
        inputs = [self._value(name, memory) for name in subgraph.inputs]
        for slot in inputs:
            self._order(slot, party)
        at = len(self._steps)
        kept = self._may_keep(subgraph)
        for slot in inputs:
            self._slots[slot].uses.append((at, party))
            self._slots[slot].kept |= kept
            self._slots[slot].pinned |= memory == HOST_MEMORY and party != HOST
        outputs = tuple(
            self._new_slot(name, memory, stream=party, made_at=at) for name in subgraph.outputs
        )
        for name, slot, accepts in zip(
            subgraph.outputs, outputs, partition.accepts_outputs, strict=True
        ):
            if accepts and memory == HOST_MEMORY and party == HOST:
                self._slots[slot].writable = static_tensor(self._graph.type_of(name))
        optional = frozenset(
            slot
            for name, slot in zip(subgraph.outputs, outputs, strict=True)
            if not isinstance(self._graph.type_of(name), _NEVER_EMPTY)
        )
        label = f"{candidate.name} partition {subgraph.name!r}"
        step = Run(partition, label, tuple(inputs), outputs, party, optional=optional)
        self._steps.append(step)

    def add_control_flow(self, node: Node, bodies: Mapping[str, Body]) -> None:
        """Append a control-flow node whose bodies have plans; all its values are on the host."""
        captured = (name for body in bodies.values() for name in body.captures)
        names = dict.fromkeys([*(name for name in node.inputs if name), *captured])
        slots = {name: self._value(name, HOST_MEMORY) for name in names}
        for slot in slots.values():
            self._order(slot, HOST)
        at = len(self._steps)
        for slot in slots.values():
            self._slots[slot].uses.append((at, HOST))
        outputs = tuple(
            self._new_slot(name, HOST_MEMORY, made_at=at) if name else None for name in node.outputs
        )
        types = tuple(self._graph.type_of(name) if name else None for name in node.outputs)
        self._subplans.extend(body.plan for body in bodies.values())
        self._steps.append(control_flow_step(node, bodies, slots, outputs, types))

    def finish(self) -> Plan:
        """Bring the outputs to where they are wanted and return the plan."""
        outputs, copied = self._deliver()
        self._share_scratch()
        owners = {
            position: owner
            for position, slot in enumerate(self._slots)
            if not slot.pinned and (owner := self._memory_owner(slot.memory)) is not None
        }
        steps = self._spliced(owners)
        return Plan(
            inputs=self._graph.input_names,
            outputs=tuple(outputs),
            copied_outputs=copied,
            template=tuple(self._template),
            steps=steps,
            owners=owners,
            subplans=tuple(self._subplans),
        )

    def _deliver(self) -> tuple[list[int], tuple[bool, ...]]:
        """Slots of the outputs, on the host, and which of them may share memory with others."""
        outputs = [self._value(name, HOST_MEMORY) for name in self._graph.output_names]
        for slot in outputs:
            self._order(slot, HOST)
            self._slots[slot].pinned = True
        inputs = len(self._graph.input_names)
        first = {slot: position for position, slot in reversed(list(enumerate(outputs)))}
        copied = tuple(
            slot < inputs or self._template[slot] is not None or first[slot] < position
            for position, slot in enumerate(outputs)
        )
        return outputs, copied

    # ------------------------------------------------------------ values and their order

    def _new_slot(
        self,
        name: str,
        memory: MemoryInfo,
        *,
        stream: int = HOST,
        made_at: int = -1,
        pinned: bool = False,
        content: Any = None,
    ) -> int:
        self._slots.append(_Slot(memory, stream, made_at, pinned=pinned))
        self._template.append(content)
        if name:
            self._where[name, memory] = len(self._slots) - 1
        return len(self._slots) - 1

    def _value(self, name: str, memory: MemoryInfo) -> int:
        """The slot of a value in a memory; emits the copies that bring it there, once."""
        found = self._where.get((name, memory))
        if found is not None:
            return found
        nearest = self._nearest(name, memory)
        if self._slots[nearest].memory == memory:
            return nearest
        return self._copy(name, nearest, memory)

    def _nearest(self, name: str, memory: MemoryInfo) -> int:
        """A slot from which a value can be copied to a memory directly."""
        known = [slot for m in self._memories() if (slot := self._where.get((name, m))) is not None]
        if not known:
            constant = self._graph.constant(name)
            assert constant is not None, f"{name!r} is neither produced nor constant"
            content = constant.numpy()
            known = [self._new_slot(name, HOST_MEMORY, pinned=True, content=content)]
        for slot in known:
            source = self._slots[slot].memory
            if HOST_MEMORY in (source, memory) or direct_hop(source, memory, self._providers):
                return slot
        return self._value(name, HOST_MEMORY)

    def _memories(self) -> list[MemoryInfo]:
        return list(dict.fromkeys([HOST_MEMORY, *(p.memory for p in self._providers)]))

    def _copy(self, name: str, source: int, memory: MemoryInfo) -> int:
        hop = direct_hop(self._slots[source].memory, memory, self._providers)
        assert hop is not None
        party = self._party(hop.owner)
        self._order(source, party)
        at = len(self._steps)
        self._slots[source].uses.append((at, party))
        if self._slots[source].memory == HOST_MEMORY and party != HOST:
            self._slots[source].pinned = True
        target = self._new_slot(name, memory, stream=party, made_at=at)
        allocator, keeper = self._memory_owner(memory) or (None, HOST)
        size = static_bytes(self._graph.type_of(name))
        step = Copy(name, source, target, hop, allocator, party, keeper == party, size)
        self._steps.append(step)
        return target

    def _order(self, slot: int, waiter: int) -> None:
        """Make `waiter` wait for the work that produces `slot`, unless it already did."""
        made = self._slots[slot]
        self._wait(waiter, made.stream, made.made_at)

    def _wait(self, waiter: int, stream: int, step: int) -> None:
        if stream in (HOST, waiter) or self._seen.get((waiter, stream), -1) >= step:
            return
        event = self._records.get((stream, step))
        if event is None:
            event = self._new_slot("", HOST_MEMORY, pinned=True)
            self._records[stream, step] = event
        self._seen[waiter, stream] = step
        self._steps.append(HostWait(event) if waiter == HOST else StreamWait(waiter, event))

    # ------------------------------------------------------------ lifetimes

    def _party(self, owner: int) -> int:
        """Who does the work of a provider: its stream, or the host."""
        return owner if self._providers[owner].features.asynchronous else HOST

    def _memory_owner(self, memory: MemoryInfo) -> tuple[Allocator, int] | None:
        """Allocator of a device memory, and the party whose stream orders its releases."""
        if memory == HOST_MEMORY:
            return None
        for position, provider in enumerate(self._providers):
            if provider.memory == memory and provider.allocator is not None:
                return provider.allocator, self._party(position)
        raise AssertionError(f"no provider owns {memory}")

    def _spliced(self, owners: dict[int, tuple[Allocator, int]]) -> tuple[Step, ...]:
        """The steps with events recorded after the work they mark and values released."""
        after: dict[int, list[Step]] = {}
        for position, slot in enumerate(self._slots):
            if slot.pinned:
                continue
            last = max((step for step, _ in slot.uses), default=slot.made_at)
            allocator, party = owners.get(position, (None, HOST))
            steps = after.setdefault(last, [])
            for used_at, user in slot.uses:
                if allocator is not None and user not in (HOST, party):
                    steps.extend(self._wait_before_release(party, user, used_at))
            steps.append(Release(position, allocator, party))
        records: dict[int, list[Step]] = {}
        for (stream, at), event in self._records.items():
            records.setdefault(at, []).append(Record(stream, event))
        result: list[Step] = []
        for position, step in enumerate(self._steps):
            result += [step, *records.get(position, ()), *after.get(position, ())]
        return tuple(result)

    def _wait_before_release(self, party: int, user: int, step: int) -> list[Step]:
        """Foreign work still reads the buffer: its owner's stream (or the host) waits for it."""
        event = self._records.get((user, step))
        if event is None:
            event = self._new_slot("", HOST_MEMORY, pinned=True)
            self._records[user, step] = event
        return [HostWait(event) if party == HOST else StreamWait(party, event)]

    # ------------------------------------------------------------ reuse of host arrays

    def _may_keep(self, subgraph: Subgraph) -> bool:
        """True if an output may be a sequence or map, which holds on to arrays put into it."""
        kinds = (self._graph.type_of(name) for name in subgraph.outputs)
        return not all(isinstance(kind, TensorType) for kind in kinds)

    def _share_scratch(self) -> None:
        """Give values of static shape memory that is used again once they are dead.

        Linear scan over the steps; a dead block goes to the smallest value that still fills at
        least half of it, so that a large block isn't tied up by small values.
        """
        block = 1 + max((item.block for item in self._scratch), default=-1)
        free: list[tuple[int, int]] = []  # size and block, ascending
        dying: dict[int, list[tuple[int, int]]] = {}
        for at, step in enumerate(self._steps):
            chosen: list[int | None] = []
            for position in step.outputs if isinstance(step, Run) else ():
                slot = self._slots[position]
                if slot.writable is None or slot.pinned or slot.kept or not slot.uses:
                    chosen.append(None)
                    continue
                size = static_bytes(slot.writable) or 0
                found = bisect.bisect_left(free, (size, 0))
                if found < len(free) and free[found][0] <= 2 * size:
                    entry = free.pop(found)
                else:
                    entry = (size, block)
                    block += 1
                dying.setdefault(max(use for use, _ in slot.uses), []).append(entry)
                chosen.append(len(self._scratch))
                shape = slot.writable.static_shape or ()
                self._scratch.append(Scratch(slot.writable.dtype, shape, entry[1]))
            if isinstance(step, Run) and any(item is not None for item in chosen):
                self._steps[at] = replace(step, scratch=tuple(chosen))
            for entry in dying.pop(at, ()):
                bisect.insort(free, entry)


def static_tensor(kind: ValueType | None) -> TensorType | None:
    """The type if it is a tensor of static shape and fixed element size."""
    return kind if isinstance(kind, TensorType) and static_bytes(kind) is not None else None


def static_bytes(kind: ValueType | None) -> int | None:
    """Bytes of a host array of a type, None where shape or element size is unknown."""
    if not isinstance(kind, TensorType) or kind.dtype is DataType.STRING:
        return None
    shape = kind.static_shape
    return None if shape is None else math.prod(shape) * kind.dtype.numpy.itemsize
