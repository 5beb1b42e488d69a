"""RNN, GRU and LSTM: a product for the input's part of all steps, then a launch for each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS
from ep_sdk.device_kernels.kernels.elementwise import dtype_of
from ep_sdk.device_kernels.launch import TABLE, Bench, signed, text_attribute
from ep_sdk.device_kernels.moving import Strided, move, strides_of
from ep_sdk.device_kernels.multiplier import Multiplier
from ep_sdk.device_kernels.product import Product
from ep_sdk.device_kernels.recurrence import DIRECTIONS, FORMS, activation_sources, known_forms
from ep_sdk.device_kernels.sources import read_source
from ep_sdk.device_kernels.vectors import long4
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Lengths of one call."""

    steps: int
    batch: int
    hidden: int
    directions: int
    batch_first: bool

    @property
    def state(self) -> Shape:
        """Shape of a final or initial state."""
        if self.batch_first:
            return (self.batch, self.directions, self.hidden)
        return (self.directions, self.batch, self.hidden)

    @property
    def all_states(self) -> Shape:
        """Shape of the states of all steps."""
        if self.batch_first:
            return (self.batch, self.steps, self.directions, self.hidden)
        return (self.steps, self.directions, self.batch, self.hidden)

    def state_place(self, direction: int) -> tuple[int, int]:
        """Start of a direction in a state, and the step between sequences."""
        if self.batch_first:
            return direction * self.hidden, self.directions * self.hidden
        return direction * self.batch * self.hidden, self.hidden


@dataclass(frozen=True, slots=True)
class _Memory:
    """Where the work of a call lies.

    Attributes:
        gates: the input's part of the gates, for all steps.
        weight: the recurrent weights as `cl/recurrent.cl` wants them.
        states: four of them; two take turns as old and new, the others are the operator's.
    """

    gates: DeviceBuffer
    weight: DeviceBuffer
    states: tuple[DeviceBuffer, ...]


class _Recurrent:
    """A kernel for one node."""

    def __init__(self, node: KernelNode) -> None:
        self._bench = Bench(node)
        self._form = FORMS[node.node.op_type]
        self._op_type = node.node.op_type
        dtype = dtype_of(node, 0)
        wide = DataType.DOUBLE if dtype is DataType.DOUBLE else DataType.FLOAT
        self._dtype, self._wide = dtype, wide
        self._backwards = DIRECTIONS[text_attribute(node, "direction", "forward").lower()]
        self._batch_first = bool(node.attr("layout", 0))
        self._resets_after = bool(node.attr("linear_before_reset", 0))
        self._wants = [node.wants_output(number) for number in range(1 + self._form.states)]
        helpers = read_source("elementwise.cl")
        self._heads = [helpers + text for text in activation_sources(node, wide)]
        self._defines: dict[str, object] = {
            "T": ELEMENTS[dtype].code,
            "NUMBER": "double" if wide is DataType.DOUBLE else "float",
        }
        self._step_defines = {**self._defines, "GATES": self._form.gates}
        for macro, used in (
            ("HAS_BIAS", node.has_input(3)),
            ("HAS_LENGTHS", node.has_input(4)),
            ("HAS_Y", self._wants[0]),
            ("HAS_PEEPHOLES", node.has_input(7)),
            ("COUPLED", bool(node.attr("input_forget", 0))),
        ):
            if used:
                self._step_defines[macro] = 1
        weight = node.constants[1]
        single = weight[0] if weight is not None and len(weight) == 1 else None
        product = Product(self._bench, dtype, dtype, wide, dtype)
        self._multiply = Multiplier(self._bench, product, turn_b=True, weight=single)
        self._recurrent = None
        if node.constants[2] is not None and node.constants[2].ndim == len("dgh"):
            turned = np.ascontiguousarray(node.constants[2].transpose(0, 2, 1))
            self._recurrent = self._bench.constant(turned)

    def __call__(
        self,
        stream: DeviceStream,
        x: DeviceBuffer,
        w: DeviceBuffer,
        r: DeviceBuffer,
        bias: DeviceBuffer | None = None,
        lengths: DeviceBuffer | None = None,
        *states_and_peepholes: DeviceBuffer | None,
    ) -> tuple[DeviceBuffer | None, ...]:
        sizes = self._sizes(x, w, r, bias, lengths)
        states = states_and_peepholes[: self._form.states]
        initial = [*states, *([None] * (self._form.states - len(states)))]
        peepholes = states_and_peepholes[self._form.states :]
        for state in initial:
            if state is not None and state.shape != sizes.state:
                raise RunError("an initial state", expected=sizes.state, got=state.shape)
        if peepholes and peepholes[0] is not None:
            _check_shape("peepholes", peepholes[0], (sizes.directions, 3 * sizes.hidden))
        self._check_lengths(stream, lengths, sizes)
        made: list[DeviceBuffer | None] = []
        shapes = (sizes.all_states, *([sizes.state] * self._form.states))
        try:
            for shape, wanted in zip(shapes, self._wants, strict=True):
                if not wanted:
                    made.append(None)
                    continue
                with self._bench.writing(stream, shape, self._dtype) as target:
                    made.append(target)
            self._run(stream, (x, w, r), (bias, lengths, *peepholes), initial, made, sizes)
        except BaseException:
            for buffer in made:
                if buffer is not None:
                    self._bench.release(stream, buffer)
            raise
        return tuple(made)

    def _sizes(
        self,
        x: DeviceBuffer,
        w: DeviceBuffer,
        r: DeviceBuffer,
        bias: DeviceBuffer | None,
        lengths: DeviceBuffer | None,
    ) -> _Sizes:
        directions, gates = len(self._backwards), self._form.gates
        if len(x.shape) != 3 or len(r.shape) != 3:
            raise RunError("recurrent layers need three axes", got=(x.shape, r.shape))
        steps, batch = x.shape[:2][::-1] if self._batch_first else x.shape[:2]
        hidden = r.shape[2]
        _check_shape("recurrent weights", r, (directions, gates * hidden, hidden))
        _check_shape("weights", w, (directions, gates * hidden, x.shape[2]))
        if bias is not None:
            _check_shape("bias", bias, (directions, 2 * gates * hidden))
        if lengths is not None:
            _check_shape("lengths of sequences", lengths, (batch,))
        return _Sizes(steps, batch, hidden, directions, self._batch_first)

    def _check_lengths(
        self, stream: DeviceStream, lengths: DeviceBuffer | None, sizes: _Sizes
    ) -> None:
        if lengths is None:
            return
        kernel = self._bench.kernel("recurrent.cl", "check_lengths", self._defines)
        arguments = [lengths.handle, np.int32(sizes.steps), stream.fault_word()]
        kernel.launch(stream, (sizes.batch,), None, arguments)

    def _run(
        self,
        stream: DeviceStream,
        operands: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer],
        extras: Sequence[DeviceBuffer | None],
        initial: Sequence[DeviceBuffer | None],
        outputs: Sequence[DeviceBuffer | None],
        sizes: _Sizes,
    ) -> None:
        x, w, r = operands
        rows, wide = sizes.steps * sizes.batch, self._form.gates * sizes.hidden
        gates_shape = (sizes.directions, rows, wide)
        state_shape = (sizes.batch, sizes.hidden)
        with ExitStack() as taken:

            def scratch(shape: Shape, dtype: DataType) -> DeviceBuffer:
                return taken.enter_context(self._bench.scratch(stream, shape, dtype))

            gates = scratch(gates_shape, self._wide)
            self._multiply(stream, x.reshaped((rows, x.shape[2])), w, self._wide, gates)
            weight = self._recurrent
            if weight is None:
                weight = scratch((sizes.directions, sizes.hidden, wide), self._dtype)
                self._turn(stream, r, weight)
            states = tuple(scratch(state_shape, self._wide) for _ in range(4))
            memory = _Memory(gates, weight, states)
            for direction in range(sizes.directions):
                self._run_direction(stream, direction, memory, extras, initial, outputs, sizes)

    def _turn(self, stream: DeviceStream, weight: DeviceBuffer, target: DeviceBuffer) -> None:
        """Lay [directions, gates, hidden] as [directions, hidden, gates]."""
        steps = strides_of(weight.shape)
        source = Strided(weight, 0, (steps[0], steps[2], steps[1]))
        place = Strided(target, 0, strides_of(target.shape))
        move(self._bench, stream, source, place, target.shape)

    def _run_direction(
        self,
        stream: DeviceStream,
        direction: int,
        memory: _Memory,
        extras: Sequence[DeviceBuffer | None],
        initial: Sequence[DeviceBuffer | None],
        outputs: Sequence[DeviceBuffer | None],
        sizes: _Sizes,
    ) -> None:
        old, new, own, scaled = memory.states
        for state, given in zip((old, own), initial, strict=False):
            self._take_state(stream, state, given, direction, sizes)
        places = self._places(direction, sizes)
        bias, lengths, *peepholes = extras
        tail: list[Any] = [item.handle for item in (bias, lengths) if item is not None]
        tail.append(np.int32(sizes.steps))
        if outputs[0] is not None:
            tail.append(outputs[0].handle)
        weights = [memory.weight.handle, *signed(direction * math.prod(memory.weight.shape[1:]))]
        head = [memory.gates.handle, *weights]
        cells = [own.handle, *(item.handle for item in peepholes if item is not None)]
        backwards = np.int32(self._backwards[direction])
        for step in range(sizes.steps):
            for name, target, more in self._launches(new, own, scaled, cells):
                kernel = self._bench.kernel(
                    "recurrent.cl", name, self._step_defines, head=self._heads[direction]
                )
                numbers = [*places, np.int32(step), backwards, *tail, *more]
                arguments = [*head, old.handle, target.handle, *numbers]
                kernel.launch(stream, (sizes.hidden, sizes.batch), None, arguments)
            old, new = new, old
        for state, output in zip((old, own), outputs[1:], strict=False):
            if output is not None:
                self._give_state(stream, state, output, direction, sizes)

    def _launches(
        self, new: DeviceBuffer, own: DeviceBuffer, scaled: DeviceBuffer, cells: list[Any]
    ) -> list[tuple[str, DeviceBuffer, list[Any]]]:
        """The kernels of one step, what each writes as a state, and its further arguments."""
        if self._op_type == "RNN":
            return [("rnn_step", new, [])]
        if self._op_type == "LSTM":
            return [("lstm_step", new, cells)]
        if self._resets_after:
            return [("gru_step", new, [])]
        updates = own.handle
        return [
            ("gru_reset", scaled, [updates]),
            ("gru_update", new, [updates, scaled.handle]),
        ]

    def _places(self, direction: int, sizes: _Sizes) -> list[Any]:
        """`place` and `step_by` of the kernels."""
        wide = self._form.gates * sizes.hidden
        y_steps = strides_of(sizes.all_states)
        if self._batch_first:
            steps = (wide, sizes.steps * wide, y_steps[1], y_steps[0])
            y_start = direction * y_steps[2]
        else:
            steps = (sizes.batch * wide, wide, y_steps[0], y_steps[2])
            y_start = direction * y_steps[1]
        gates_start = direction * sizes.steps * sizes.batch * wide
        starts = (gates_start, direction * 2 * wide, y_start, direction * 3 * sizes.hidden)
        return [long4(starts), long4(steps)]

    def _take_state(
        self,
        stream: DeviceStream,
        state: DeviceBuffer,
        given: DeviceBuffer | None,
        direction: int,
        sizes: _Sizes,
    ) -> None:
        kernel = self._bench.kernel("recurrent.cl", "take_state", self._defines)
        source = state if given is None else given
        place = signed(*sizes.state_place(direction))
        arguments = [state.handle, source.handle, *place, np.int32(given is not None)]
        kernel.launch(stream, (sizes.hidden, sizes.batch), None, arguments)

    def _give_state(
        self,
        stream: DeviceStream,
        state: DeviceBuffer,
        output: DeviceBuffer,
        direction: int,
        sizes: _Sizes,
    ) -> None:
        kernel = self._bench.kernel("recurrent.cl", "give_state", self._defines)
        place = signed(*sizes.state_place(direction))
        arguments = [state.handle, output.handle, *place]
        kernel.launch(stream, (sizes.hidden, sizes.batch), None, arguments)


def _check_shape(what: str, buffer: DeviceBuffer, wanted: Shape) -> None:
    if buffer.shape != wanted:
        raise RunError(f"{what} of a recurrent layer", expected=wanted, got=buffer.shape)


def _make(node: KernelNode) -> Kernel:
    return _Recurrent(node)


for _op_type in FORMS:
    TABLE.kernel(_op_type, types={"T": FLOATS}, predicate=known_forms)(_make)
