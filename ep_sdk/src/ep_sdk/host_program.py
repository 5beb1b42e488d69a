"""Running a lowered subgraph in host memory: a flat loop over kernels, with a planned arena.

Values of static type that kernels can write into given memory share one arena per concurrent run.
A model may declare anything, and numpy broadcasts into memory that is too large; so the plan is
used only after one run has shown that the declared types are the real ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableSequence, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ep_core.contracts import Stream, Value
from ep_core.errors import AllocationError, EpError, RunError
from ep_core.memory import contiguous, copy_value
from ep_core.types import DataType, TensorType, ValueType
from ep_sdk.failures import node_error
from ep_sdk.footprint import Footprint
from ep_sdk.host import aligned_bytes, as_value, copy_into, has_type, shares_memory
from ep_sdk.kernels import Kernel
from ep_sdk.lowering import NOWHERE, Lowered, LoweredStep
from ep_sdk.memory_plan import ALIGNMENT, Lifetime, MemoryPlan, plan_memory

__all__ = ["HostProgram"]

_MOST_BYTES = 2**48
"""Values beyond any machine's memory aren't planned; making such a value fails by itself."""

_Shape = tuple[int, ...]


class _Call(NamedTuple):
    """One kernel call, ready for the loop.

    Attributes:
        gather: picks the inputs out of the slots.
        target: slot of the only output; NOWHERE for a step with several.
        targets: slots of the outputs, as in the step.
        expected: static shapes of the outputs where the plan relies on them; empty if it doesn't.
        drops: slots to empty afterwards.
        number: position of the step.
    """

    kernel: Kernel
    gather: Callable[[list[Value]], Sequence[Value]]
    writes_out: bool
    target: int
    targets: tuple[int, ...]
    expected: tuple[_Shape | None, ...]
    drops: tuple[int, ...]
    number: int


class _Output(NamedTuple):
    """How one output of the partition leaves.

    Attributes:
        direct: its static type if its kernel can write into the caller's memory, else None.
        rivals: slots that it might share memory with; it is copied if it does.
    """

    name: str
    slot: int
    direct: TensorType | None
    rivals: tuple[int, ...]


class HostProgram:
    """Meets `ep_core.contracts.CompiledPartition` for host memory; runs on any number of threads.

    Attributes:
        plan: where intermediate values lie, and how many bytes planning saves.

    Args:
        on_close: called once, with the program, when it is closed.
    """

    def __init__(self, lowered: Lowered, on_close: Callable[[Any], None]) -> None:
        self._lowered = lowered
        self._on_close = on_close
        self._template: list[Value] = [None] * len(lowered.names)
        for slot, constant in lowered.constants.items():
            self._template[slot] = constant.numpy()
        self._inputs_end = 1 + len(lowered.inputs)
        self._input_shapes = tuple(_static_shape(lowered.types[slot]) for slot in lowered.inputs)
        self._outputs = _make_outputs(lowered)
        self._planned = _plannable(lowered)
        self.plan = _plan(lowered, self._planned)
        self._plain_calls = _make_calls(lowered, checked=False)
        self._checked_calls = _make_calls(lowered, checked=True)
        direct = {output.slot for output in self._outputs if output.direct is not None}
        self._relied_on = direct.union(self._planned)
        # None until a run has compared the declared types with the real ones.
        self._trusted: bool | None = None if self._relied_on else False
        # Slots with the views of one arena in place; each is used by one run at a time.
        self._frames: list[list[Value]] = []
        self._closed = False

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        """Which outputs their kernel writes straight into the caller's memory."""
        return [output.direct is not None for output in self._outputs]

    @property
    def footprint(self) -> Footprint:
        """What a run takes of host memory."""
        lowered = self._lowered
        return Footprint(
            lowered,
            [step.workspace for step in lowered.steps],
            frozenset(self._planned),
            self.plan.planned_bytes + ALIGNMENT if self._planned else 0,
            views_may_copy=True,
        )

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None = None,
    ) -> None:
        """Compute the outputs; see `CompiledPartition.run`."""
        if self._closed:
            raise RunError("the partition is closed", fix="Compile the subgraph again.")
        with np.errstate(all="ignore"):
            if self._trusted is False or not self._inputs_as_declared(inputs):
                self._run_plain(inputs, outputs)
            elif self._trusted is None:
                self._run_watched(inputs, outputs)
            elif not self._run_planned(inputs, outputs):
                self._trusted = False
                self._frames.clear()
                self._run_plain(inputs, outputs)

    def change_kernels(self, change: Callable[[LoweredStep], Kernel]) -> None:
        """Put other kernels in place of those of the steps; not while a run is under way."""
        self._lowered = self._lowered.with_kernels(change)
        self._plain_calls = _make_calls(self._lowered, checked=False)
        self._checked_calls = _make_calls(self._lowered, checked=True)

    def close(self) -> None:
        """Give up constants and arenas; twice without harm."""
        if self._closed:
            return
        self._closed = True
        self._frames.clear()
        self._template = []
        self._on_close(self)

    def _inputs_as_declared(self, inputs: Sequence[Value]) -> bool:
        for value, shape in zip(inputs, self._input_shapes, strict=True):
            if shape is not None and value.shape != shape:
                return False
        return True

    def _run_planned(self, inputs: Sequence[Value], outputs: MutableSequence[Value | None]) -> bool:
        """Run inside the arena; False if a value hasn't the shape that the plan relies on."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._make_frame()
        try:
            slots = frame.copy()
            slots[1 : self._inputs_end] = inputs
            for output, memory in zip(self._outputs, outputs, strict=True):
                if memory is not None and has_type(memory, output.direct):
                    slots[output.slot] = memory
            if not self._loop(slots, self._checked_calls):
                return False
            self._hand_over(slots, outputs)
            return True
        finally:
            if not self._closed:
                self._frames.append(frame)

    def _run_plain(self, inputs: Sequence[Value], outputs: MutableSequence[Value | None]) -> None:
        """Run with memory that the kernels make."""
        slots = self._template.copy()
        slots[1 : self._inputs_end] = inputs
        self._loop(slots, self._plain_calls)
        self._hand_over(slots, outputs)

    def _run_watched(self, inputs: Sequence[Value], outputs: MutableSequence[Value | None]) -> None:
        """Run with memory that the kernels make, and compare declared types with real ones."""
        slots = self._template.copy()
        slots[1 : self._inputs_end] = inputs
        types = self._lowered.types
        true = True
        for call, plain in zip(self._checked_calls, self._plain_calls, strict=True):
            true &= self._loop(slots, (call,))
            if call.target in self._relied_on:
                value = slots[call.target]
                true &= has_type(value, types[call.target])
                if isinstance(value, np.ndarray):
                    # Later runs have it packed in the plan; kernels that round by layout, such as
                    # matrix products, must see the same thing now.
                    slots[call.target] = contiguous(value)
                del value
            for slot in plain.drops:
                slots[slot] = None
        self._trusted = true
        self._hand_over(slots, outputs)

    def _loop(self, slots: list[Value], calls: Sequence[_Call]) -> bool:
        """Run the calls; stop with False at the first output of an unexpected shape."""
        number = 0
        array = np.ndarray
        try:
            for call in calls:
                kernel, gather, writes_out, target, targets, expected, drops, number = call
                if writes_out:
                    result = kernel(*gather(slots), out=slots[target])
                else:
                    result = kernel(*gather(slots))
                if target >= 0:
                    slots[target] = result if type(result) is array else as_value(result)
                else:
                    _store(slots, targets, result)
                if expected and not _as_expected(slots, targets, expected):
                    return False
                for slot in drops:
                    slots[slot] = None
        except Exception as error:
            reads = self._lowered.steps[number].inputs
            failure = self._failure(error, number, [slots[slot] for slot in reads])
            if failure is error:
                raise
            raise failure from error
        return True

    def _failure(self, error: Exception, number: int, inputs: Sequence[Value]) -> EpError:
        return node_error(error, self._lowered.steps[number].node, inputs)

    def _hand_over(self, slots: list[Value], outputs: MutableSequence[Value | None]) -> None:
        for position, (name, slot, _, rivals) in enumerate(self._outputs):
            value = slots[slot]
            memory = outputs[position]
            if memory is None:
                if rivals and shares_memory(value, [slots[rival] for rival in rivals]):
                    value = copy_value(value)
                outputs[position] = value
            elif value is not memory:
                copy_into(memory, value, name)

    def _make_frame(self) -> list[Value]:
        """Allocate one arena; returns the template with views of it in the planned slots."""
        frame = self._template.copy()
        if not self._planned:
            return frame
        try:
            arena = aligned_bytes(self.plan.planned_bytes, ALIGNMENT)
        except (MemoryError, ValueError) as error:
            raise AllocationError(
                "no memory for the values inside a partition",
                expected=f"{self.plan.planned_bytes} bytes",
                got=str(error),
            ) from error
        for slot, offset in zip(self._planned, self.plan.offsets, strict=True):
            kind = self._lowered.types[slot]
            assert isinstance(kind, TensorType)
            shape = kind.static_shape
            assert shape is not None
            span = arena[offset : offset + _nbytes(kind)]
            frame[slot] = span.view(kind.dtype.numpy).reshape(shape)
        return frame


def _store(slots: list[Value], targets: Sequence[int], result: Any) -> None:
    """Store the outputs of a step that has several, or none that anybody asked for."""
    items = result if isinstance(result, tuple) else (result,)
    if len(items) < len(targets):
        raise RunError(
            "the kernel returned too few outputs",
            expected=f"a tuple of {len(targets)}",
            got=len(items),
        )
    for slot, item in zip(targets, items, strict=False):
        if slot != NOWHERE:
            slots[slot] = as_value(item)


def _as_expected(
    slots: list[Value], targets: Sequence[int], expected: Sequence[_Shape | None]
) -> bool:
    return all(
        shape is None or (isinstance(slots[slot], np.ndarray) and slots[slot].shape == shape)
        for slot, shape in zip(targets, expected, strict=True)
    )


def _make_calls(lowered: Lowered, *, checked: bool) -> tuple[_Call, ...]:
    """The calls of all steps; `checked` ones compare shapes of what isn't written into the plan."""
    calls: list[_Call] = []
    outputs = frozenset(lowered.outputs)
    dropped_after: dict[int, list[int]] = {}
    for slot, number in enumerate(lowered.last_use):
        if slot and slot not in lowered.given and slot not in outputs:
            dropped_after.setdefault(number, []).append(slot)
    planned = frozenset(_plannable(lowered)) if checked else frozenset()
    for number, step in enumerate(lowered.steps):
        single = len(step.outputs) == 1 or step.writes_out
        targets = step.outputs[:1] if single else step.outputs
        expected: tuple[_Shape | None, ...] = ()
        if checked and not step.writes_out:
            expected = tuple(
                None if slot == NOWHERE else _static_shape(lowered.types[slot]) for slot in targets
            )
        calls.append(
            _Call(
                kernel=step.kernel,
                gather=_gatherer(step.inputs),
                writes_out=step.writes_out,
                target=targets[0] if single else NOWHERE,
                targets=targets,
                expected=expected if any(shape is not None for shape in expected) else (),
                drops=tuple(s for s in dropped_after.get(number, ()) if s not in planned),
                number=number,
            )
        )
    return tuple(calls)


def _gatherer(reads: tuple[int, ...]) -> Callable[[list[Value]], Sequence[Value]]:
    """Pick slots; itemgetter returns a bare item for one index, so one or none goes by slice."""
    if len(reads) > 1:
        return itemgetter(*reads)
    start = reads[0] if reads else 0
    return itemgetter(slice(start, start + len(reads)))


def _make_outputs(lowered: Lowered) -> tuple[_Output, ...]:
    """How each output leaves: it must share memory with nobody else."""
    writable = {step.outputs[0] for step in lowered.steps if step.writes_out and not step.aliases}
    rank = {slot: position for position, slot in enumerate(lowered.outputs)}
    sharing: dict[int, list[int]] = {}
    for slot in (*lowered.given, *lowered.outputs):
        for root in lowered.roots[slot]:
            sharing.setdefault(root, []).append(slot)
    made: list[_Output] = []
    for position, slot in enumerate(lowered.outputs):
        found = dict.fromkeys(other for root in lowered.roots[slot] for other in sharing[root])
        rivals = [other for other in found if other != slot]
        kind = lowered.types[slot]
        direct = None
        # Written straight into the caller's memory it could no longer be told from its rivals.
        if slot in writable and not rivals and isinstance(kind, TensorType) and _nbytes(kind):
            direct = kind
        # Of two outputs in the same memory the first keeps it and the second is copied.
        earlier = tuple(rival for rival in rivals if rank.get(rival, -1) < position)
        made.append(_Output(lowered.names[slot], slot, direct, earlier))
    return tuple(made)


def _plannable(lowered: Lowered) -> tuple[int, ...]:
    """Slots that can lie in the arena: static, writable, and never seen outside."""
    leaving = frozenset(lowered.outputs).union(*(lowered.roots[slot] for slot in lowered.outputs))
    found: list[int] = []
    for number, step in enumerate(lowered.steps):
        slot = step.outputs[0] if step.writes_out else NOWHERE
        if slot == NOWHERE or slot in leaving or lowered.last_use[slot] == number:
            continue
        kind = lowered.types[slot]
        if isinstance(kind, TensorType) and 0 < _nbytes(kind) <= _MOST_BYTES:
            found.append(slot)
    return tuple(found)


def _plan(lowered: Lowered, planned: Sequence[int]) -> MemoryPlan:
    written = {step.outputs[0]: n for n, step in enumerate(lowered.steps) if step.writes_out}
    lifetimes: list[Lifetime] = []
    for slot in planned:
        kind = lowered.types[slot]
        assert isinstance(kind, TensorType)
        lifetimes.append(Lifetime(_nbytes(kind), written[slot], lowered.last_touch[slot]))
    return plan_memory(lifetimes)


def _static_shape(kind: ValueType | None) -> _Shape | None:
    return kind.static_shape if isinstance(kind, TensorType) else None


def _nbytes(kind: TensorType) -> int:
    """Bytes of a host array of a static type; 0 for other types and for strings."""
    shape = kind.static_shape
    if shape is None or kind.dtype is DataType.STRING:
        return 0
    return math.prod(shape) * kind.dtype.numpy.itemsize
