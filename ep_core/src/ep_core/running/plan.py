"""The plan: a flat tuple of steps that run a graph, and the steps themselves.

A step knows slots (positions in one list of values), partitions, streams and nothing else. All
decisions were taken by `planner.py` and `ordering.py`; a step only does its part. Events live in
slots like values.

Streams go by number. With n providers, stream i is where the provider at position i works; where
copies go on beside its work, n + i is for those into its memory and 2n + i for those out of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import numpy as np

from ep_core.contracts import Allocator, CompiledPartition, Stream, Value
from ep_core.errors import AllocationError, ContractError, EpError, RunError
from ep_core.memory import Hop, contiguous
from ep_core.types import DataType, MemoryInfo

__all__ = [
    "Copy",
    "Held",
    "HostWait",
    "Peak",
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

    def stream(self, number: int) -> Stream | None:
        """A stream of the run by its number; None for NO_STREAM."""
        ...

    def drain(self) -> None:
        """Let the queued work end, whatever becomes of it."""
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
        pinner: position of the provider whose page-locked memory the block is, None for plain.
    """

    dtype: DataType
    shape: tuple[int, ...]
    block: int
    pinner: int | None = None

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.numpy.itemsize


@dataclass(frozen=True, slots=True)
class Run:
    """Run a compiled partition.

    Attributes:
        label: for messages: provider and partition name.
        stream: number of the stream that gets the work, NO_STREAM for none.
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
        stream = state.stream(self.stream)
        try:
            self.call([values[slot] for slot in self.inputs], outputs, stream)
        finally:
            # Also what a partition made that fails then: whoever cleans up gives it back.
            for slot, value in zip(self.outputs, outputs, strict=False):
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
        stream: number of the stream that does it, NO_STREAM for a blocking copy.
        home: number of the stream in whose order the target's memory is given out, NO_STREAM for
            none.
        value, nbytes: for the report; bytes are None where the shape isn't static.
        scratch: position of the scratch array to copy into, None for a new array.
    """

    value: str
    source: int
    target: int
    hop: Hop
    allocator: Allocator | None
    stream: int
    home: int
    nbytes: int | None
    scratch: int | None = None

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return f"the copy of {self.value!r} from {self.hop.source} to {self.hop.target}"

    def execute(self, values: list[Any], state: RunState) -> None:
        source = values[self.source]
        if source is None:
            values[self.target] = None
            return
        stream = state.stream(self.stream)
        if isinstance(source, np.ndarray):
            source = contiguous(source)
            # The array that is really read has to live as long as the copy may run.
            values[self.source] = source
            dtype = DataType.from_numpy(source.dtype)
        else:
            dtype = source.dtype
        if self.allocator is None:
            values[self.target] = self._array(tuple(source.shape), dtype, state)
        else:
            home = None if stream is None else state.stream(self.home)
            values[self.target] = self.allocator.allocate(tuple(source.shape), dtype, home)
            if stream is not None and home is not None and home is not stream:
                # Work of its own stream may have used that memory until now.
                stream.wait(home.record())
        self.hop.transfer.copy(source, values[self.target], stream)

    def _array(
        self, shape: tuple[int, ...], dtype: DataType, state: RunState
    ) -> np.ndarray[Any, Any]:
        """The host memory to copy into."""
        if self.scratch is not None:
            array = state.scratch[self.scratch]
            if (array.shape, array.dtype) == (shape, dtype.numpy):  # the model may say otherwise
                return array
        return np.empty(shape, dtype.numpy)


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
        stream = state.stream(self.stream)
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
        stream = state.stream(self.stream)
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
            self.allocator.release(value, state.stream(self.stream))


@dataclass(frozen=True, slots=True)
class Held:
    """What a slot is for, as far as it concerns memory.

    Attributes:
        value: its name in the model; empty for memory of the caller's and for events.
        nbytes: None where the shape isn't static.
    """

    value: str
    memory: MemoryInfo
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that one run takes of a memory.

    Attributes:
        nbytes: None where it isn't known beforehand.
        unknown: why not, empty where it is known.
    """

    nbytes: int | None
    unknown: str = ""


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
        held: by slot, without those of events.
        makes: by step, the slots that it fills with memory.
        peaks: by memory, what one run takes without `RunState.scratch`; see `peak.py`.
    """

    inputs: tuple[str, ...]
    outputs: tuple[int, ...]
    copied_outputs: tuple[bool, ...]
    template: tuple[Any, ...]
    steps: tuple[Step, ...]
    owners: dict[int, tuple[Allocator, int]]
    subplans: tuple[Plan, ...] = ()
    held: tuple[Held, ...] = ()
    makes: tuple[tuple[int, ...], ...] = ()
    peaks: Mapping[MemoryInfo, Peak] = field(default_factory=dict)

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
