"""`IOBinding`: where the inputs and outputs of a session's runs lie."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from ep_core.binding.planner import Target, Wish
from ep_core.binding.plans import BoundPlans, Filled
from ep_core.contracts import Buffer, ExecutionProvider, HostArray, Value
from ep_core.errors import FeedError, NotSupportedError, OptionError, RunError, did_you_mean
from ep_core.graph import Graph
from ep_core.report import CopyReport, MemoryPeak
from ep_core.running.executor import Terminable
from ep_core.signature import Signature, check_feed, check_shape
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo, OptionalType, TensorType, ValueType
from ep_core.values.devices import HOST, Place, adopt, find_place, to_host
from ep_core.values.dlpack import RawTensor
from ep_core.values.holds import DeviceTensor
from ep_core.values.pointers import array_at, element_type_of, shape_of
from ep_core.values.value import OrtValue

__all__ = ["IOBinding", "Ports"]


@dataclass(frozen=True, slots=True)
class Ports:
    """What can be bound in a session, and what runs it.

    Attributes:
        graph: its inputs and the types of its outputs.
        providers: the session's, open.
        kinds: types of the outputs by name.
    """

    graph: Graph
    signature: Signature
    providers: Sequence[ExecutionProvider]
    plans: BoundPlans
    kinds: dict[str, ValueType | None]


@dataclass(frozen=True, slots=True)
class _Bound:
    """An input, or where an output goes.

    Attributes:
        content: a host value, or a tensor on a device; None for an output without memory.
        provider: of the memory, None for the host.
    """

    memory: MemoryInfo
    content: Value | DeviceTensor | None = None
    provider: ExecutionProvider | None = None

    @property
    def value(self) -> Value:
        """What a plan works with."""
        content = self.content
        return content.buffer if isinstance(content, DeviceTensor) else content


class IOBinding:
    """Says for each input where it is, and for each output where it shall be.

    Made by `InferenceSession.io_binding`, used by `run_with_iobinding`, by one thread at a time.
    Whatever is bound stays bound until it is bound anew or cleared, also after a run has failed.
    Only outputs that are bound are delivered.
    """

    def __init__(self, session: object, ports: Ports) -> None:
        self._session = session  # kept open by whoever can still run with it
        self._ports = ports
        # Never changed, only replaced: a run under way has what was bound when it began.
        self._inputs: dict[str, _Bound] = {}
        self._outputs: dict[str, _Bound] = {}
        self._filled: Filled | None = None  # made of both, for the next run
        self._results: list[OrtValue] | None = None
        self._users: deque[object] = deque()  # the run under way, and those that it refuses

    # ------------------------------------------------------------ inputs

    def bind_cpu_input(self, name: str, arr_on_cpu: Value) -> None:
        """Bind an input to a value on the host.

        Args:
            arr_on_cpu: what `run` takes. An array isn't copied: each run reads what it holds then.

        Raises:
            FeedError: unknown name, wrong type or shape.
        """
        value = check_feed(name, self._input_kind(name), arr_on_cpu)
        # A view of its own: whatever the caller does to the array object, this stays as checked.
        self._bind(name, _Bound(HOST_MEMORY, value.view() if _is_array(value) else value))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int | str,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to raw memory, which must stay valid until it is bound anew.

        Nobody can check an address. What writes the memory must have ended before each run.

        Args:
            device_type: `"cpu"`, or the name of a provider, one of the session's or not.
            device_id: the device as `ep providers` lists it.
            element_type: a numpy dtype, or the number of an ONNX element type.
            buffer_ptr: the address of the C-contiguous elements.

        Raises:
            FeedError: unknown name, wrong type or shape.
            OptionError, ProviderNotFoundError, ProviderUnavailableError: no such device, or an
                address that can't be one.
            NotSupportedError: memory of a device whose provider takes none from others.
        """
        self._input_kind(name)
        place = find_place(device_type, device_id, self._ports.providers)
        content = _raw(name, place, element_type, shape, buffer_ptr)
        self._bind_content(name, content)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value, wherever it lies; runs copy it only if they have to.

        Raises:
            FeedError: unknown name, no OrtValue, wrong type or shape.
        """
        self._input_kind(name)
        self._bind_content(name, _content_of(ortvalue))

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs = {}
        self._filled = None

    # ------------------------------------------------------------ outputs

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int | str = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Have an output delivered to a device, in memory that each run allocates.

        Args:
            device_type: `"cpu"`, or the name of a provider, one of the session's or not.
            device_id: the device as `ep providers` lists it.
            element_type, shape, buffer_ptr: raw memory to write into, as in `bind_input`.

        Raises:
            FeedError: unknown name, wrong type or shape; an output that isn't a tensor can't
                leave the host.
            OptionError, ProviderNotFoundError, ProviderUnavailableError: no such device, or an
                address that can't be one.
            NotSupportedError: an address on a device whose provider takes none from others.
        """
        kind = self._output_kind(name)
        place = find_place(device_type, device_id, self._ports.providers)
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise OptionError(f"output {name!r}: buffer_ptr needs element_type and shape")
            self._bind_memory(name, kind, _raw(name, place, element_type, shape, buffer_ptr))
            return
        if place is not HOST and (
            not isinstance(kind, TensorType) or kind.dtype is DataType.STRING
        ):
            raise FeedError(
                f"output {name!r} can't lie in {place.memory}",
                expected="a tensor of numbers",
                got=str(kind),
                fix="Bind it to 'cpu'.",
            )
        self._aim(name, _Bound(place.memory, None, place.provider))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written into the memory of a value.

        After a run that failed its content is undefined.

        Raises:
            FeedError: unknown name, no tensor, wrong type or shape, read-only memory.
        """
        kind = self._output_kind(name)
        self._bind_memory(name, kind, _content_of(ortvalue))

    def clear_binding_outputs(self) -> None:
        """Forget all outputs, and the results of the last run."""
        self._outputs = {}
        self._filled = None
        self._results = None

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were first bound.

        Raises:
            RunError: no run has succeeded since the outputs were bound.
        """
        if self._results is None:
            raise RunError(
                "the binding has no outputs yet", fix="Call run_with_iobinding(binding) first."
            )
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Value]:
        """The outputs of the last run as host values; what is on the host isn't copied.

        Raises:
            RunError: as in `get_outputs`, or a copy failed.
        """
        contents = [value._content for value in self.get_outputs()]
        return [to_host(item) if isinstance(item, DeviceTensor) else item for item in contents]

    # ------------------------------------------------------------ order, and what will be copied

    def synchronize_inputs(self) -> None:
        """Does nothing: values are ready when they can be bound. Here for code that calls it."""

    def synchronize_outputs(self) -> None:
        """Does nothing: outputs are ready when a run returns. Here for code that calls it."""

    def get_copies(self) -> tuple[CopyReport, ...]:
        """The copies that a run with this binding makes, outside control-flow bodies.

        Raises:
            FeedError: see `run_with_iobinding`.
            SessionClosedError: the session is closed.
        """
        return self._ports.plans.copies(self._ready())

    def get_peak_bytes(self) -> dict[str, MemoryPeak]:
        """What the session takes at most while a run with this binding is under way, by memory.

        As planned: constants, and what the run allocates; memory that is bound isn't in it.

        Raises:
            FeedError: see `run_with_iobinding`.
            SessionClosedError: the session is closed.
        """
        return self._ports.plans.peaks(self._ready())

    # ------------------------------------------------------------ running

    def run(self, options: Terminable | None) -> None:
        """Run the model; for `InferenceSession.run_with_iobinding`."""
        user = object()
        try:
            # Inside, so that an interrupt can't leave an entry behind.
            self._users.append(user)
            if self._users[0] is not user:
                raise RunError(
                    "the binding is in use by another run",
                    fix="Give each thread a binding of its own.",
                )
            filled = self._ready()
            self._results = None  # what nobody else refers to can be used again by this run
            contents = self._ports.plans.run(filled, options)
            self._results = [
                OrtValue(
                    content if given is None else filled.bound[1][target.name].content,
                    self._ports.kinds[target.name],
                )
                for target, given, content in zip(
                    filled.wish.outputs, filled.given, contents, strict=True
                )
            ]
        finally:
            if user in self._users:
                self._users.remove(user)

    # ------------------------------------------------------------ inside

    def _ready(self) -> Filled:
        filled, inputs, outputs = self._filled, self._inputs, self._outputs
        if filled is None or filled.bound[0] is not inputs or filled.bound[1] is not outputs:
            filled = self._filled = self._fill(inputs, outputs)
        return filled

    def _fill(self, fed: dict[str, _Bound], outputs: dict[str, _Bound]) -> Filled:
        if not outputs:
            raise FeedError("no output is bound", fix="Call bind_output(name) for one at least.")
        inputs = [
            fed.get(info.name) or _Bound(HOST_MEMORY, self._ports.signature.left_out(info, fed))
            for info in self._ports.graph.inputs
        ]
        _check_overlaps(fed, outputs)
        targets = tuple(
            Target(name, bound.memory, bound.content is not None) for name, bound in outputs.items()
        )
        given = tuple(bound.value for bound in outputs.values())
        own = {provider.memory for provider in self._ports.providers}
        return Filled(
            bound=(fed, outputs),
            wish=Wish(tuple(bound.memory for bound in inputs), targets),
            inputs=(*(bound.value for bound in inputs), *(m for m in given if m is not None)),
            given=given,
            guests={
                bound.memory: bound.provider
                for bound in (*inputs, *outputs.values())
                if bound.provider is not None and bound.memory not in own
            },
        )

    def _bind_memory(self, name: str, kind: ValueType | None, content: Any) -> None:
        what = f"the memory for output {name!r}"
        if isinstance(content, DeviceTensor):
            buffer = content.buffer
            _check_tensor(what, kind, buffer.dtype, buffer.shape)
            if content.is_read_only:
                raise FeedError(what, expected="writeable", got="memory that is read-only")
            self._aim(name, _Bound(buffer.memory, content, content.provider))
            return
        if not _is_array(content):
            raise FeedError(what, expected="a tensor", got=type(content).__name__)
        _check_tensor(what, kind, DataType.from_numpy(content.dtype), content.shape)
        if not content.flags.writeable or not content.flags.c_contiguous:
            raise FeedError(what, expected="writeable and C-contiguous", got=str(content.flags))
        self._aim(name, _Bound(HOST_MEMORY, content.view()))

    def _bind_content(self, name: str, content: Value | DeviceTensor) -> None:
        if not isinstance(content, DeviceTensor):
            self.bind_cpu_input(name, content)
            return
        kind = self._input_kind(name)
        _check_tensor(f"input {name!r}", kind, content.buffer.dtype, content.buffer.shape)
        self._bind(name, _Bound(content.buffer.memory, content, content.provider))

    def _bind(self, name: str, bound: _Bound) -> None:
        self._inputs = {**self._inputs, name: bound}
        self._filled = None

    def _aim(self, name: str, bound: _Bound) -> None:
        self._outputs = {**self._outputs, name: bound}
        self._filled = None
        self._results = None

    def _input_kind(self, name: Any) -> ValueType | None:
        return _kind_of("input", name, {info.name: info.type for info in self._ports.graph.inputs})

    def _output_kind(self, name: Any) -> ValueType | None:
        return _kind_of("output", name, self._ports.kinds)


def _kind_of(what: str, name: Any, kinds: dict[str, ValueType | None]) -> ValueType | None:
    if not isinstance(name, str) or name not in kinds:
        fix = did_you_mean(str(name), kinds)
        raise FeedError(f"the model has no {what} {name!r}", fix=fix)
    return kinds[name]


def _content_of(value: Any) -> Any:
    if not isinstance(value, OrtValue):
        raise FeedError("ortvalue", expected="an OrtValue", got=type(value).__name__)
    return value._content


def _raw(
    name: str, place: Place, element_type: Any, shape: Any, address: Any
) -> HostArray | DeviceTensor:
    """Memory of the caller's, known by its address."""
    array = array_at(address, shape_of(shape), element_type_of(element_type), repr(name))
    provider = place.provider
    if provider is None:
        return array
    device = provider.device.dlpack_device
    if device is None or not provider.features.imports_dlpack:
        raise NotSupportedError(
            f"{name!r}: an address in {place.memory} can't be bound",
            expected=f"provider {provider.info.name!r} to take memory of others (imports_dlpack)",
            fix="Bind an OrtValue with bind_ortvalue_input or bind_ortvalue_output.",
        )
    return adopt(RawTensor(array, device), provider)


def _is_array(value: Value) -> TypeGuard[HostArray]:
    return isinstance(value, np.ndarray)


def _check_tensor(
    what: str, kind: ValueType | None, dtype: DataType, shape: tuple[int, ...]
) -> None:
    kind = kind.element if isinstance(kind, OptionalType) else kind
    if kind is None:
        return
    if not isinstance(kind, TensorType) or kind.dtype is not dtype:
        raise FeedError(what, expected=kind, got=f"tensor({dtype.text})")
    check_shape(what, kind.shape, shape)


def _check_overlaps(inputs: dict[str, _Bound], outputs: dict[str, _Bound]) -> None:
    """No output may be written over an input or another output."""
    others = [(f"input {name!r}", bound.value) for name, bound in inputs.items()]
    for name, bound in outputs.items():
        if bound.content is None:
            continue
        for what, value in others:
            if _overlap(bound.value, value):
                raise FeedError(
                    f"the memory bound to output {name!r} overlaps that of {what}",
                    expected="memory that nothing else in the run uses",
                )
        others.append((f"output {name!r}", bound.value))


def _overlap(memory: Value, other: Value) -> bool:
    if _is_array(memory):
        return any(np.may_share_memory(memory, array) for array in _arrays(other))
    if _is_array(other) or not isinstance(other, Buffer) or memory.memory != other.memory:
        return False
    try:
        begin, end = memory.data_ptr(), other.data_ptr()
    except BufferError:
        return memory is other
    return bool(begin < end + other.nbytes and end < begin + memory.nbytes)


def _arrays(value: Value) -> Iterator[HostArray]:
    """The arrays in a host value; a buffer has none."""
    if _is_array(value):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _arrays(item)
