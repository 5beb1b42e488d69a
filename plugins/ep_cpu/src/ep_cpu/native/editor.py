"""A list of steps that is being rewritten: who makes a value, who reads it, what goes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ep_core.types import ValueType
from ep_cpu.native.steps import NativeStep, Types

__all__ = ["StepEditor"]


class StepEditor:
    """Steps in order, by position; a step that is taken out leaves a gap.

    Args:
        kept: values that are needed outside.
        constants: names of values that never change.
    """

    def __init__(
        self,
        steps: Sequence[NativeStep],
        kept: Collection[str],
        constants: Collection[str],
        types: Types,
    ) -> None:
        self._steps: list[NativeStep | None] = list(steps)
        self._kept = frozenset(kept)
        self._constants = frozenset(constants)
        self._types = types
        self._makers: dict[str, int] = {}
        self._readers: dict[str, set[int]] = {}
        for position, step in enumerate(steps):
            self._enter(position, step)

    @property
    def steps(self) -> tuple[NativeStep, ...]:
        """What is left, in order."""
        return tuple(step for step in self._steps if step is not None)

    def find(self, *kinds: str) -> Iterator[tuple[int, NativeStep]]:
        """Positions and steps of some kinds, as they are when their turn comes."""
        for position in range(len(self._steps)):
            step = self._steps[position]
            if step is not None and step.kind in kinds:
                yield position, step

    def maker(self, name: str, *kinds: str) -> tuple[int, NativeStep] | None:
        """The step that makes a value nobody else reads and nobody needs outside.

        None where there is no such step, or it is of another kind.
        """
        position = self._makers.get(name)
        if position is None or name in self._kept or len(self._readers.get(name, ())) != 1:
            return None
        step = self._steps[position]
        if step is None or step.kind not in kinds or len(step.outputs) != 1:
            return None
        return position, step

    def reader(self, name: str, *kinds: str) -> tuple[int, NativeStep] | None:
        """The only step that reads a value; None likewise."""
        readers = self._readers.get(name, set())
        if name in self._kept or len(readers) != 1:
            return None
        (position,) = readers
        step = self._steps[position]
        return None if step is None or step.kind not in kinds else (position, step)

    def source(self, name: str, *kinds: str) -> tuple[int, NativeStep] | None:
        """The step that makes a value, whoever reads it; None where it is of another kind."""
        position = self._makers.get(name)
        step = None if position is None else self._steps[position]
        if position is None or step is None or step.kind not in kinds:
            return None
        return position, step

    def readers_of(self, name: str) -> list[int]:
        """Positions of the steps that read a value."""
        return sorted(self._readers.get(name, ()))

    def rename_reads(self, name: str, other: str) -> None:
        """Let all readers of a value among their inputs read another one."""
        for position in self.readers_of(name):
            step = self._steps[position]
            assert step is not None
            inputs = tuple(other if item == name else item for item in step.inputs)
            self.replace(position, replace(step, inputs=inputs))

    def is_constant(self, name: str) -> bool:
        """True for a value that never changes."""
        return name in self._constants

    def type_of(self, name: str) -> ValueType | None:
        """The declared type of a value."""
        return self._types(name)

    def replace(self, position: int, step: NativeStep) -> None:
        """Put a step in place of another one."""
        self._leave(position)
        self._steps[position] = step
        self._enter(position, step)

    def remove(self, position: int) -> None:
        """Take a step out."""
        self._leave(position)
        self._steps[position] = None

    def _enter(self, position: int, step: NativeStep) -> None:
        for name in step.outputs:
            self._makers[name] = position
        for name in step.reads:
            self._readers.setdefault(name, set()).add(position)

    def _leave(self, position: int) -> None:
        step = self._steps[position]
        assert step is not None
        for name in step.outputs:
            if self._makers.get(name) == position:
                del self._makers[name]
        for name in step.reads:
            self._readers[name].discard(position)
