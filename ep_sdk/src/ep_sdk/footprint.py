"""What a run of a lowered subgraph takes of the memory it works in, worked out beforehand.

The steps are walked as the programs walk them: a value takes memory from the step that makes it to
the last that touches it, a view takes none, and a kernel takes what its `workspace` says beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ep_core.contracts import PartitionMemory
from ep_core.types import DataType, TensorType, ValueType
from ep_sdk.lowering import NOWHERE, Lowered, LoweredStep

__all__ = ["Footprint", "bytes_of", "ends_of"]

_REFERENCE_BYTES = 8


def bytes_of(kind: ValueType | None) -> int | None:
    """Bytes of a tensor of static type, strings counted as references; None for anything else."""
    shape = kind.static_shape if isinstance(kind, TensorType) else None
    if shape is None or not isinstance(kind, TensorType):
        return None
    is_text = kind.dtype is DataType.STRING
    return math.prod(shape) * (_REFERENCE_BYTES if is_text else kind.dtype.numpy.itemsize)


def ends_of(lowered: Lowered) -> list[list[int]]:
    """By step the values whose memory nobody needs afterwards; never inputs or constants."""
    ends: list[list[int]] = [[] for _ in lowered.steps]
    for slot, number in enumerate(lowered.last_touch):
        if slot and slot not in lowered.given and number < len(ends):
            ends[number].append(slot)
    return ends


@dataclass(frozen=True)
class Footprint:
    """Counts bytes along the steps.

    Attributes:
        fixed: values that lie in memory which is there for the whole run, of `fixed_bytes`.
        workspaces: what each step's kernel takes for itself, None where it isn't known.
        views_may_copy: a view may turn out to be new memory.
    """

    lowered: Lowered
    workspaces: Sequence[int | None]
    fixed: frozenset[int] = frozenset()
    fixed_bytes: int = 0
    views_may_copy: bool = False

    def memory(self) -> PartitionMemory:
        """What a partition takes."""
        lowered = self.lowered
        sizes = [bytes_of(TensorType(c.dtype, c.shape)) or 0 for c in lowered.constants.values()]
        outputs = [bytes_of(lowered.types[slot]) for slot in lowered.outputs]
        stages = self._stages()
        if not stages:
            return PartitionMemory(sum(sizes), None, _total(outputs))
        workspace = max(own for own, _ in stages)
        if None in outputs:
            return PartitionMemory(sum(sizes), workspace, None)
        together = max(own + sum(outputs[at] or 0 for at in there) for own, there in stages)
        return PartitionMemory(sum(sizes), workspace, _total(outputs), together, stages)

    def _stages(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """As in `PartitionMemory`; the last one has all outputs."""
        lowered = self.lowered
        place_of = {slot: place for place, slot in enumerate(lowered.outputs)}
        there: tuple[int, ...] = ()
        most = {there: self.fixed_bytes}
        sizes: dict[int, int] = {}  # of what is alive and no output
        alive = self.fixed_bytes
        for step, ends, workspace in zip(
            lowered.steps, ends_of(lowered), self.workspaces, strict=True
        ):
            made = self._made(step)
            there += tuple(place_of[slot] for slot in made if slot in place_of)
            for slot in made:
                size = 0 if slot in place_of else bytes_of(lowered.types[slot])
                if size is None:
                    return ()
                sizes[slot] = size
                alive += size
            if workspace is None:
                return ()
            most[there] = max(most.get(there, 0), alive + workspace)
            alive -= sum(sizes.pop(slot, 0) for slot in ends)
        # What is a view of something is copied in the end.
        views = tuple(place for place in range(len(lowered.outputs)) if place not in there)
        most.setdefault(there + views, alive)
        return tuple((own, outputs) for outputs, own in most.items())

    def _made(self, step: LoweredStep) -> list[int]:
        """The outputs of a step for which it takes new memory."""
        if step.aliases and not (self.views_may_copy and step.writes_out):
            return []
        asked = (slot for slot in step.outputs if slot != NOWHERE)
        return [slot for slot in asked if slot not in self.fixed]


def _total(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)
