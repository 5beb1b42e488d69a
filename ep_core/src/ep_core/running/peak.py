"""The most that a run takes of each memory, from the plan and from what partitions tell.

Steps are walked in the order in which the host executes them, which is the order in which memory
is asked for and given back, whatever streams do later. What the caller brings isn't counted, nor
are the arrays that runs share and use again (`scratch.py`); results are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ep_core.contracts import PartitionMemory
from ep_core.running.control_flow import bodies_of
from ep_core.running.plan import Copy, Held, Peak, Plan, Release, Run
from ep_core.types import MemoryInfo

__all__ = ["Told", "peaks_of"]

Told = Mapping[int, PartitionMemory | str]
"""What each partition takes, by the `id` of the partition, or why that isn't known."""


def peaks_of(plan: Plan, told: Told) -> dict[MemoryInfo, Peak]:
    """Return what one run of a plan takes at most, by memory.

    Plans of bodies have their `peaks` already. A body counts as often as it is held at one time.
    """
    walk = _Walk(plan, told)
    for step, made in zip(plan.steps, plan.makes, strict=True):
        if isinstance(step, Release):
            walk.release(step.slot)
        elif isinstance(step, Run):
            walk.run(step)
        elif isinstance(step, Copy):
            walk.make(made if step.scratch is None else ())
        else:
            bodies, times = bodies_of(step)
            walk.bodies(bodies, made, times)
            walk.make(made)
    copied = zip(plan.outputs, plan.copied_outputs, strict=True)
    walk.make_copies(slot for slot, is_copied in copied if is_copied)
    return walk.peaks()


class _Walk:
    """Counts along the steps, memory by memory."""

    def __init__(self, plan: Plan, told: Told) -> None:
        self._held = plan.held
        self._told = told
        self._alive: dict[MemoryInfo, int] = {held.memory: 0 for held in plan.held}
        self._most = dict(self._alive)
        self._unknown: dict[MemoryInfo, str] = {}
        self._owned: set[int] = set()

    def make(self, slots: Iterable[int]) -> None:
        """Fill slots with new memory."""
        for slot in slots:
            held = self._held[slot]
            self._alive[held.memory] += self._size(held)
            self._owned.add(slot)
            self._reach(held.memory, 0)

    def release(self, slot: int) -> None:
        """Give the memory of a slot back, if it is the run's."""
        if slot in self._owned:
            self._owned.remove(slot)
            self._alive[self._held[slot].memory] -= self._size(self._held[slot])

    def run(self, step: Run) -> None:
        """Run a partition, which makes those outputs that it isn't given memory for."""
        given = {position for position, _ in step.given}
        given |= {at for at, scratch in enumerate(step.scratch) if scratch is not None}
        made = {at: slot for at, slot in enumerate(step.outputs) if at not in given}
        memory = self._held[step.outputs[0]].memory
        told = self._told.get(id(step.partition), f"{step.label} doesn't tell what it takes")
        if isinstance(told, str):
            self._unknown.setdefault(memory, told)
        elif told.workspace_bytes is None or (made and told.output_bytes is None):
            self._unknown.setdefault(memory, f"what {step.label} takes isn't known before the run")
        else:
            sizes = {at: self._size(self._held[slot]) for at, slot in made.items()}
            # Without stages at least: with given memory no more than without, nor than in sum.
            apart = told.workspace_bytes + sum(sizes.values())
            bound = min(apart, apart if told.together_bytes is None else told.together_bytes)
            stages = (own + sum(sizes.get(at, 0) for at in there) for own, there in told.stages)
            self._reach(memory, max(stages, default=bound))
        self.make(made.values())

    def bodies(self, plans: Iterable[Plan], made: Iterable[int], times: int) -> None:
        """Run one of several bodies, with what is kept of outputs meanwhile."""
        for plan in plans:
            for memory, peak in plan.peaks.items():
                self._alive.setdefault(memory, 0)
                if peak.nbytes is None:
                    self._unknown.setdefault(memory, peak.unknown)
                kept = (self._held[slot] for slot in made if self._held[slot].memory == memory)
                self._reach(memory, (peak.nbytes or 0) + times * sum(map(self._size, kept)))

    def make_copies(self, slots: Iterable[int]) -> None:
        """Copy results that are also something else."""
        for slot in slots:
            held = self._held[slot]
            self._alive[held.memory] += self._size(held)
            self._reach(held.memory, 0)

    def peaks(self) -> dict[MemoryInfo, Peak]:
        """What has been counted."""
        found = {}
        for memory, most in self._most.items():
            unknown = self._unknown.get(memory, "")
            found[memory] = Peak(None if unknown else most, unknown)
        return found

    def _size(self, held: Held) -> int:
        if held.nbytes is None:
            if held.value:
                text = f"the size of {held.value!r} isn't known before the run"
                self._unknown.setdefault(held.memory, text)
            return 0  # without a name it is the caller's
        return held.nbytes

    def _reach(self, memory: MemoryInfo, more: int) -> None:
        self._most[memory] = max(self._most.get(memory, 0), self._alive[memory] + more)
