"""The plan: a flat tuple of steps that run a graph, and the steps themselves.

A step knows slots (positions in one list of values), partitions, streams and nothing else. All
decisions were taken by `planner.py`; a step only does its part. Streams are addressed by the
position of their provider, events live in slots like values.
"""

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from ep_core.contracts import Allocator, CompiledPartition, Stream, Value
from ep_core.errors import AllocationError, ContractError, EpError, RunError
from ep_core.memory import Hop, contiguous
from ep_core.types import DataType

__all__ = [
    "Copy",
    "HostWait",
    "Plan",
    "Record",
    "Release",
    "Run",
    "RunState",
    "Scratch",
    "Step",
    "StreamWait",
    "reraise",
]

NO_STREAM = -1


class RunState(Protocol):
    """What steps see of the run they belong to."""

    @property
    def streams(self) -> Sequence[Stream | None]:
        """One per provider, None where the provider has no streams."""
        ...

    def check(self) -> None:
        """Raise RunCancelledError if the caller asked to stop."""
        ...

    @property
    def scratch(self) -> Sequence[np.ndarray[Any, Any]]:
        """Reusable host arrays, one per `Scratch` of the session's plans."""
        ...


class Step(Protocol):
    """One step of a plan."""

    @property
    def label(self) -> str:
        """What it does, for messages."""
        ...

    def execute(self, values: list[Any], state: RunState) -> None:
        """Do it: read and write `values` by slot."""
        ...


def reraise(error: BaseException, label: str) -> NoReturn:
    """Raise an error of the project in place of what a provider or the data gave rise to."""
    try:
        if isinstance(error, EpError) or not isinstance(error, Exception):
            raise error
        if isinstance(error, MemoryError):
            raise AllocationError(f"{label} ran out of memory: {error}") from error
        raise RunError(f"{label} failed: {type(error).__name__}: {error}") from error
    finally:
        del error  # else error, traceback and this frame keep the run's values until a collection


@dataclass(frozen=True, slots=True)
class Scratch:
    """A host array for a value of static shape, shared by values that don't live together.

    Attributes:
        block: which block of memory it lies in; arrays in one block are never alive together.
    """

    dtype: DataType
    shape: tuple[int, ...]
    block: int

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.numpy.itemsize


@dataclass(frozen=True, slots=True)
class Run:
    """Run a compiled partition.

    Attributes:
        label: for messages: provider and partition name.
        stream: position of the provider whose stream gets the work, NO_STREAM for none.
        scratch: for each output the position of the scratch array to write into, or None where
            the partition makes the value; empty if it makes them all.
        optional: slots of outputs that may be an empty optional.
        given: positions of outputs, each with the slot that holds the caller's memory for it.
    """

    partition: CompiledPartition
    label: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    stream: int = NO_STREAM
    scratch: tuple[int | None, ...] = ()
    optional: frozenset[int] = frozenset()
    given: tuple[tuple[int, int], ...] = ()

    def execute(self, values: list[Any], state: RunState) -> None:
        outputs: list[Value | None] = [None] * len(self.outputs)
        if self.scratch:
            outputs = [None if at is None else state.scratch[at] for at in self.scratch]
        for position, slot in self.given:
            outputs[position] = values[slot]
        stream = None if self.stream == NO_STREAM else state.streams[self.stream]
        self.call([values[slot] for slot in self.inputs], outputs, stream)
        for slot, value in zip(self.outputs, outputs, strict=True):
            values[slot] = value

    def call(
        self, inputs: Sequence[Value], outputs: MutableSequence[Value | None], stream: Stream | None
    ) -> None:
        """Run the partition, and check that it gave every output."""
        self.partition.run(inputs, outputs, stream)
        if len(outputs) != len(self.outputs):
            raise ContractError(
                f"{self.label} changed its list of outputs",
                expected=f"{len(self.outputs)} entries",
                got=len(outputs),
            )
        for position, value in enumerate(outputs):
            if value is None and self.outputs[position] not in self.optional:
                raise ContractError(f"{self.label} gave no value for its output {position}")


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a tensor from one memory to another.

    Attributes:
        allocator: gives the target's memory; None for host memory.
        stream: position of the provider whose stream does it, NO_STREAM for a blocking copy.
        owned: the target's memory is ordered on that same stream.
        value, nbytes: for the report; bytes are None where the shape isn't static.
    """

    value: str
    source: int
    target: int
    hop: Hop
    allocator: Allocator | None
    stream: int
    owned: bool
    nbytes: int | None

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return f"the copy of {self.value!r} from {self.hop.source} to {self.hop.target}"

    def execute(self, values: list[Any], state: RunState) -> None:
        source = values[self.source]
        if source is None:
            values[self.target] = None
            return
        stream = None if self.stream == NO_STREAM else state.streams[self.stream]
        target: Any
        if isinstance(source, np.ndarray):
            source = contiguous(source)
            # The array that is really read has to live as long as the copy may run.
            values[self.source] = source
            dtype = DataType.from_numpy(source.dtype)
        else:
            dtype = source.dtype
        if self.allocator is None:
            target = np.empty(source.shape, dtype.numpy)
        else:
            order = stream if self.owned else None
            target = self.allocator.allocate(tuple(source.shape), dtype, order)
        values[self.target] = target
        self.hop.transfer.copy(source, target, stream)


@dataclass(frozen=True, slots=True)
class Record:
    """Record an event on a stream into a slot."""

    stream: int
    event: int

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return "the event of a stream"

    def execute(self, values: list[Any], state: RunState) -> None:
        stream = state.streams[self.stream]
        assert stream is not None
        values[self.event] = stream.record()


@dataclass(frozen=True, slots=True)
class StreamWait:
    """Let later work on a stream wait for an event of another stream; the host goes on."""

    stream: int
    event: int

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return "the wait for another stream"

    def execute(self, values: list[Any], state: RunState) -> None:
        stream = state.streams[self.stream]
        assert stream is not None
        stream.wait(values[self.event])


@dataclass(frozen=True, slots=True)
class HostWait:
    """Block the host until an event has happened."""

    event: int

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return "the wait for a stream"

    def execute(self, values: list[Any], state: RunState) -> None:
        values[self.event].synchronize()


@dataclass(frozen=True, slots=True)
class Release:
    """Give up a value after its last use, device memory through its allocator."""

    slot: int
    allocator: Allocator | None
    stream: int

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return "the release of memory"

    def execute(self, values: list[Any], state: RunState) -> None:
        value = values[self.slot]
        values[self.slot] = None
        if self.allocator is not None and value is not None:
            stream = None if self.stream == NO_STREAM else state.streams[self.stream]
            self.allocator.release(value, stream)


@dataclass(frozen=True)
class Plan:
    """Everything needed to run one graph, decided beforehand.

    Attributes:
        inputs: names, in the order of the values given to the executor (slots 0, 1, ...).
        outputs: slots of the results, all in host memory.
        copied_outputs: which results may be an input, a constant or another result, and are
            therefore copied before they leave.
        template: initial content of the slots; constants are in place.
        steps: in order.
        owners: allocator and stream of each slot in device memory, to clean up after an error.
        subplans: plans of the bodies of control-flow nodes.
    """

    inputs: tuple[str, ...]
    outputs: tuple[int, ...]
    copied_outputs: tuple[bool, ...]
    template: tuple[Any, ...]
    steps: tuple[Step, ...]
    owners: dict[int, tuple[Allocator, int]]
    subplans: tuple[Plan, ...] = ()

    @property
    def partitions(self) -> list[CompiledPartition]:
        """Every partition of this plan and its subplans."""
        own = [step.partition for step in self.steps if isinstance(step, Run)]
        return own + [p for sub in self.subplans for p in sub.partitions]

    @property
    def whole_model(self) -> Run | None:
        """The step that runs one host partition, if that is the whole plan."""
        if len(self.steps) != 1 or any(self.copied_outputs):
            return None
        (step,) = self.steps
        if not isinstance(step, Run) or step.stream != NO_STREAM or step.scratch:
            return None
        straight = step.inputs == tuple(range(len(self.inputs))) and step.outputs == self.outputs
        return step if straight else None
