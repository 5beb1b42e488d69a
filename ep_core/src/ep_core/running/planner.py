"""Turns placed and compiled partitions into a plan: copies, waits, releases, reuse of buffers.

One `Planner` makes the plan of one graph; the plans of bodies are made first by `compiler.py`, and
share the scratch table. It decides what is done and where each value lies; when, and what must
happen in between, follows in `ordering.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ep_core.contracts import CompiledPartition
from ep_core.graph import Graph, Node, Subgraph
from ep_core.memory import Hop, direct_hop
from ep_core.partition import Candidate
from ep_core.running.control_flow import Body, control_flow_step
from ep_core.running.ordering import HOST, Draft, Order, Slot, hoisted
from ep_core.running.plan import Copy, Held, Plan, Run, Scratch, Step
from ep_core.running.scratch import share_scratch, static_bytes, static_tensor
from ep_core.types import (
    HOST_MEMORY,
    MapType,
    MemoryInfo,
    SequenceType,
    TensorType,
)

__all__ = ["Planner"]

_NEVER_EMPTY = (TensorType, SequenceType, MapType)


class Planner:
    """Builds the plan of one self-contained graph.

    Args:
        candidates: the session's providers; streams are numbered by position in this list.
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
        self._own = len(candidates)  # providers behind those only copy and allocate
        self._scratch = scratch
        self._slots: list[Slot] = []
        self._where: dict[tuple[str, MemoryInfo], int] = {}
        self._template: list[Any] = []
        self._drafts: list[Draft] = []
        self._subplans: list[Plan] = []
        for name in graph.input_names:
            self._new_slot(name, inputs.get(name, HOST_MEMORY), is_kept=True)

    # ------------------------------------------------------------ emitting steps

    def add_run(
        self, subgraph: Subgraph, partition: CompiledPartition, candidate: Candidate
    ) -> None:
        """Append a partition, preceded by the copies and waits that its inputs need."""
        memory = candidate.provider.memory
        party = self._party(self._position[candidate.name])
        inputs = tuple(self._value(name, memory) for name in subgraph.inputs)
        self._hold(inputs, subgraph.outputs)
        outputs = tuple(self._new_slot(name, memory) for name in subgraph.outputs)
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
        step = Run(partition, label, inputs, outputs, party, optional=optional)
        self._add(step, party, inputs, outputs)

    def add_control_flow(self, node: Node, bodies: Mapping[str, Body]) -> None:
        """Append a control-flow node whose bodies have plans; all its values are on the host."""
        captured = (name for body in bodies.values() for name in body.captures)
        names = dict.fromkeys([*(name for name in node.inputs if name), *captured])
        slots = {name: self._value(name, HOST_MEMORY) for name in names}
        self._hold(slots.values(), filter(None, node.outputs))
        outputs = tuple(
            self._new_slot(name, HOST_MEMORY) if name else None for name in node.outputs
        )
        types = tuple(self._graph.type_of(name) if name else None for name in node.outputs)
        self._subplans.extend(body.plan for body in bodies.values())
        step = control_flow_step(node, bodies, slots, outputs, types)
        made = tuple(slot for slot in outputs if slot is not None)
        self._add(step, HOST, tuple(slots.values()), made)

    def finish(self) -> Plan:
        """Bring the outputs to where they are wanted and return the plan."""
        outputs, copied = self._deliver()
        order = Order(hoisted(self._drafts, self._slots), self._slots, events=len(self._slots))
        share_scratch(order, self._scratch)
        owners = {
            position: (slot.allocator, slot.home)
            for position, slot in enumerate(self._slots)
            if not slot.is_kept and slot.allocator is not None
        }
        steps = order.steps()
        made = {id(draft.step): draft.makes for draft in order.drafts}
        return Plan(
            inputs=self._graph.input_names,
            outputs=tuple(outputs),
            copied_outputs=copied,
            template=(*self._template, *(None for _ in range(len(self._slots), order.events))),
            steps=steps,
            owners=owners,
            subplans=tuple(self._subplans),
            held=tuple(map(self._held, self._slots)),
            makes=tuple(made.get(id(step), ()) for step in steps),
        )

    def _held(self, slot: Slot) -> Held:
        kind = self._graph.type_of(slot.value) if slot.value else None
        return Held(slot.value, slot.memory, static_bytes(kind))

    def _deliver(self) -> tuple[list[int], tuple[bool, ...]]:
        """Slots of the outputs, on the host, and which of them may share memory with others."""
        outputs = [self._value(name, HOST_MEMORY) for name in self._graph.output_names]
        for slot in outputs:
            self._slots[slot].is_kept = True
        inputs = len(self._graph.input_names)
        first = {slot: position for position, slot in reversed(list(enumerate(outputs)))}
        copied = tuple(
            slot < inputs or self._template[slot] is not None or first[slot] < position
            for position, slot in enumerate(outputs)
        )
        return outputs, copied

    # ------------------------------------------------------------ values and copies

    def _add(
        self,
        step: Step,
        party: int,
        reads: tuple[int, ...],
        makes: tuple[int, ...],
        *,
        is_copy: bool = False,
    ) -> None:
        self._drafts.append(Draft(step, party, reads, makes, is_copy))

    def _new_slot(
        self,
        name: str,
        memory: MemoryInfo,
        *,
        is_kept: bool = False,
        carrier: int | None = None,
        content: Any = None,
    ) -> int:
        """A slot for a value, which in a device's memory was made there or brought by a carrier."""
        slot = Slot(memory, name, is_kept=is_kept)
        if memory != HOST_MEMORY and not is_kept:
            owner = self._owner(memory)
            slot.allocator = self._providers[owner].allocator
            slot.is_patient = self._overlaps(owner)
            if carrier is None:
                slot.home = self._party(owner)
            elif carrier != HOST or not slot.is_patient:
                slot.home = self._stream_into(owner)
        self._slots.append(slot)
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
            known = [self._new_slot(name, HOST_MEMORY, is_kept=True, content=content)]
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
        party = self._carrier(hop)
        target = self._new_slot(name, memory, carrier=party)
        made = self._slots[target]
        kind = self._graph.type_of(name)
        if memory == HOST_MEMORY:
            made.writable = static_tensor(kind)
        self._pin(source, hop)
        self._pin(target, hop)
        step = Copy(name, source, target, hop, made.allocator, party, made.home, static_bytes(kind))
        self._add(step, party, (source,), (target,), is_copy=True)
        return target

    def _pin(self, slot: int, hop: Hop) -> None:
        """Page-locked memory is good for this host value, if it gets reusable memory at all."""
        known = self._slots[slot]
        pins = hop.owner < self._own and self._providers[hop.owner].features.pinned_host
        if pins and known.memory == HOST_MEMORY and known.pinner is None:
            known.pinner = hop.owner

    # ------------------------------------------------------------ parties

    def _owner(self, memory: MemoryInfo) -> int:
        """Position of the provider that a device's memory belongs to."""
        for position, provider in enumerate(self._providers):
            if provider.memory == memory and provider.allocator is not None:
                return position
        raise AssertionError(f"no provider owns {memory}")

    def _party(self, owner: int) -> int:
        """Who does the work of a provider: its stream, or the host."""
        is_async = owner < self._own and self._providers[owner].features.asynchronous
        return owner if is_async else HOST

    def _overlaps(self, owner: int) -> bool:
        return self._party(owner) != HOST and self._providers[owner].features.overlaps_copies

    def _stream_into(self, owner: int) -> int:
        """Who copies into a provider's memory."""
        return self._own + owner if self._overlaps(owner) else self._party(owner)

    def _carrier(self, hop: Hop) -> int:
        """Who does a copy."""
        if hop.source == self._providers[hop.owner].memory and self._overlaps(hop.owner):
            return 2 * self._own + hop.owner
        return self._stream_into(hop.owner)

    def _hold(self, slots: Iterable[int], outputs: Iterable[str]) -> None:
        """Keep what is read, if an output may be a sequence or map, which holds on to arrays."""
        if all(isinstance(self._graph.type_of(name), TensorType) for name in outputs):
            return
        for slot in slots:
            self._slots[slot].is_held = True
