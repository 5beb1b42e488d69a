"""Running a lowered subgraph on a device with streams: submit kernels, release in stream order.

Running never waits for the device. Memory between kernels comes from the provider's allocator and
goes back on the same stream right after the last use has been submitted, so that the allocator
can hand it to the next kernel.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from itertools import chain, repeat
from typing import Any, Protocol

from ep_core.contracts import Allocator, Buffer, DataTransfer, Event, Stream, Value
from ep_core.errors import CompileError, ContractError, EpError, RunError
from ep_core.types import DataType
from ep_sdk.failures import node_error
from ep_sdk.footprint import Footprint, ends_of
from ep_sdk.kernels import Kernel
from ep_sdk.lowering import NOWHERE, Lowered, LoweredStep

__all__ = ["StreamDevice", "StreamProgram"]


class StreamDevice(Protocol):
    """The parts of a provider that a program needs."""

    @property
    def allocator(self) -> Allocator | None: ...

    @property
    def data_transfer(self) -> DataTransfer | None: ...

    def create_stream(self) -> Stream | None: ...


class _Run:
    """The state of one run.

    Attributes:
        slots: values by slot.
        given: memory for outputs that the caller brought, by slot.
        owned: buffers that the kernels made and nobody has released, by slot.
        copies: outputs that were copied because they are views of something else.
    """

    def __init__(self, slots: list[Value], given: dict[int, Value], stream: Stream) -> None:
        self.slots = slots
        self.given = given
        self.stream = stream
        self.owned: dict[int, Buffer] = {}
        self.copies: list[Buffer] = []


class StreamProgram:
    """Meets `ep_core.contracts.CompiledPartition` for a device; runs on any number of threads.

    Args:
        on_close: called once, with the program, when it is closed.
    """

    def __init__(
        self, lowered: Lowered, device: StreamDevice, on_close: Callable[[Any], None]
    ) -> None:
        allocator = device.allocator
        transfer = device.data_transfer
        if allocator is None or transfer is None:
            raise ContractError("a provider that uses streams has no allocator or no data transfer")
        self._lowered = lowered
        self._allocator: Allocator = allocator
        self._transfer: DataTransfer = transfer
        self._on_close = on_close
        self._writable = frozenset(
            step.outputs[0] for step in lowered.steps if step.writes_out and not step.aliases
        )
        self._drops = ends_of(lowered)
        self._lock = threading.Lock()
        self._pending: list[Event] = []
        self._closed = False
        self._constants = self._load_constants(device)

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        """Which outputs their kernel writes straight into the caller's memory."""
        return [slot in self._writable for slot in self._lowered.outputs]

    @property
    def footprint(self) -> Footprint:
        """What a run takes of the device's memory."""
        return Footprint(self._lowered, [step.workspace for step in self._lowered.steps])

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None = None,
    ) -> None:
        """Submit the work to `stream`; see `CompiledPartition.run`."""
        if self._closed:
            raise RunError("the partition is closed", fix="Compile the subgraph again.")
        if stream is None:
            raise ContractError(
                "a partition on a device was run without a stream",
                expected="a stream of its provider's create_stream()",
            )
        slots: list[Value] = [None] * len(self._lowered.names)
        slots[1 : 1 + len(inputs)] = inputs
        for slot, constant in self._constants.items():
            slots[slot] = constant
        slots_given = zip(self._lowered.outputs, outputs, strict=True)
        run = _Run(slots, {s: memory for s, memory in slots_given if memory is not None}, stream)
        try:
            for step, drops in zip(self._lowered.steps, self._drops, strict=True):
                self._submit(step, run)
                for slot in drops:
                    self._release(run.owned.pop(slot, None), stream)
            made = [self._leave(slot, run) for slot in self._lowered.outputs]
            self._remember(stream.record())
        except BaseException:
            self._release_all((*run.owned.values(), *run.copies), stream)
            raise
        for slot, buffer in run.owned.items():
            if slot not in self._lowered.outputs or slot in run.given:
                self._release(buffer, stream)
        outputs[:] = made

    def change_kernels(self, change: Callable[[LoweredStep], Kernel]) -> None:
        """Put other kernels in place of those of the steps; not while a run is under way."""
        self._lowered = self._lowered.with_kernels(change)

    def close(self) -> None:
        """Wait for work that still reads the constants, then release them; twice without harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pending = self._pending
            self._pending = []
        for event in pending:
            # Whoever waits for the results gets the error; here only the end of the work counts.
            with contextlib.suppress(EpError):
                event.synchronize()
        self._release_all(self._constants.values(), None)
        self._constants = {}
        self._on_close(self)

    def _submit(self, step: LoweredStep, run: _Run) -> None:
        values = [run.slots[slot] for slot in step.inputs]
        try:
            if step.writes_out:
                memory = None if step.aliases else run.given.get(step.outputs[0])
                result = step.kernel(run.stream, *values, out=memory)
            else:
                result = step.kernel(run.stream, *values)
            self._store(step, result, run)
        except Exception as error:
            failure = node_error(error, step.node, values)
            if failure is error:
                raise
            raise failure from error

    def _store(self, step: LoweredStep, result: Any, run: _Run) -> None:
        items = result if isinstance(result, tuple) else (result,)
        asked = len(step.outputs) if not step.writes_out else 1
        if len(items) < asked:
            raise RunError(
                "the kernel returned too few outputs",
                expected=f"a tuple of {asked}",
                got=len(items),
            )
        for slot, item in zip(chain(step.outputs, repeat(NOWHERE)), items, strict=False):
            is_new = item is not None and not step.aliases and item is not run.given.get(slot)
            if slot == NOWHERE:
                self._release(item if is_new else None, run.stream)
                continue
            run.slots[slot] = item
            if is_new:
                run.owned[slot] = item

    def _leave(self, slot: int, run: _Run) -> Value:
        """Make the value of a slot an output: the caller's memory, or a buffer that it will own."""
        value = run.slots[slot]
        memory = run.given.get(slot)
        if value is memory or value is None:
            return value
        if memory is None:
            if slot in run.owned:
                return value
            memory = self._allocator.allocate(value.shape, value.dtype, run.stream)
            run.copies.append(memory)
        elif memory.shape != value.shape or memory.dtype != value.dtype:
            raise RunError(
                f"memory given for output {self._lowered.names[slot]!r} doesn't fit",
                expected=f"{value.dtype.text}{list(value.shape)}",
                got=f"{memory.dtype.text}{list(memory.shape)}",
            )
        self._transfer.copy(value, memory, run.stream)
        return memory

    def _load_constants(self, device: StreamDevice) -> dict[int, Buffer]:
        """Copy the constants into the device's memory, once."""
        loaded: dict[int, Buffer] = {}
        if not self._lowered.constants:
            return loaded
        stream = device.create_stream()
        try:
            for slot, constant in self._lowered.constants.items():
                if constant.dtype is DataType.STRING:
                    raise CompileError(f"constant {constant.name!r} holds strings")
                array = constant.numpy()
                array = array if array.flags.c_contiguous else array.copy()
                loaded[slot] = self._allocator.allocate(array.shape, constant.dtype, stream)
                self._transfer.copy(array, loaded[slot], stream)
            if stream is not None:
                stream.synchronize()
        except BaseException:
            self._release_all(loaded.values(), stream)
            raise
        finally:
            if stream is not None:
                stream.close()
        return loaded

    def _remember(self, event: Event) -> None:
        with self._lock:
            self._pending = [earlier for earlier in self._pending if not earlier.done()]
            self._pending.append(event)

    def _release(self, buffer: Buffer | None, stream: Stream | None) -> None:
        if buffer is not None:
            self._allocator.release(buffer, stream)

    def _release_all(self, buffers: Iterable[Buffer], stream: Stream | None) -> None:
        """Release after a failure, or at the end; a lost device has nothing more to say."""
        for buffer in buffers:
            with contextlib.suppress(EpError):
                self._allocator.release(buffer, stream)
