"""What a run of a lowered subgraph takes of the memory it works in, worked out beforehand.

The steps are walked as the programs walk them: a value takes memory from the step that makes it to
the last that touches it, a view takes none, and a kernel takes what its `workspace` says beside.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
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
        direct: outputs that are written straight into memory that the caller gives.
        fixed: values that lie in memory which is there for the whole run, of `fixed_bytes`.
        workspaces: what each step's kernel takes for itself, None where it isn't known.
        views_may_copy: a view may turn out to be new memory.
    """

    lowered: Lowered
    direct: frozenset[int]
    workspaces: Sequence[int | None]
    fixed: frozenset[int] = frozenset()
    fixed_bytes: int = 0
    views_may_copy: bool = False

    def memory(self) -> PartitionMemory:
        """What a partition takes."""
        constants = self.lowered.constants.values()
        outputs = [bytes_of(self.lowered.types[slot]) for slot in self.lowered.outputs]
        return PartitionMemory(
            constant_bytes=sum(
                bytes_of(TensorType(item.dtype, item.shape)) or 0 for item in constants
            ),
            workspace_bytes=self.most(are_given=True),
            output_bytes=_total(outputs),
            together_bytes=self.most(are_given=False),
        )

    def most(self, *, are_given: bool) -> int | None:
        """The most bytes at any time.

        Args:
            are_given: the caller brings memory for the outputs.
        """
        lowered = self.lowered
        elsewhere = self.fixed | (self.direct if are_given else frozenset())
        sizes: dict[int, int] = {}  # of what is alive
        most = alive = self.fixed_bytes
        for step, ends, workspace in zip(
            lowered.steps, ends_of(lowered), self.workspaces, strict=True
        ):
            for slot in self._made(step, elsewhere):
                size = bytes_of(lowered.types[slot])
                if size is None:
                    return None
                sizes[slot] = size
                alive += size
            if workspace is None:
                return None
            most = max(most, alive + workspace)
            alive -= sum(sizes.pop(slot, 0) for slot in ends)
        if are_given:
            return most
        views = [slot for slot in lowered.outputs if slot not in sizes]
        copies = _total(bytes_of(lowered.types[slot]) for slot in views)
        return None if copies is None else max(most, alive + copies)

    def _made(self, step: LoweredStep, elsewhere: Collection[int]) -> list[int]:
        """The outputs of a step for which it takes new memory."""
        if step.aliases and not (self.views_may_copy and step.writes_out):
            return []
        asked = (slot for slot in step.outputs if slot != NOWHERE)
        return [slot for slot in asked if slot not in elsewhere]


def _total(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)
