"""One inference request: inputs in, outputs out, and nothing kept of either.

Small tensors are copied to and from the request's own memory, which takes less time than telling
OpenVINO about other memory; large ones are read and written where they are.
"""

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.contracts import HostArray, Value
from ep_core.errors import RunError
from ep_openvino.convert import writable
from ep_sdk.host import copy_into

__all__ = ["Port", "Request"]

_SMALL_BYTES = 2**14
"""Up to here a copy takes less than two calls of OpenVINO's and the making of a tensor."""


@dataclass(frozen=True)
class Port:
    """An input or output of a compiled model.

    Attributes:
        name: of the value.
        place: among the subgraph's inputs or outputs.
        index: among those of the compiled model.
        shape: None where a length isn't known beforehand.
    """

    name: str
    place: int
    index: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None

    @property
    def is_static(self) -> bool:
        """Whether every length is known."""
        return self.shape is not None

    @property
    def is_small(self) -> bool:
        """Whether it is better copied than told of."""
        if self.shape is None:
            return False
        return math.prod(self.shape) * self.dtype.itemsize <= _SMALL_BYTES


class Request:
    """Runs a compiled model, one run at a time.

    Args:
        request: `openvino.InferRequest`, which nobody else uses.
        inputs, outputs: the ports of the model.
    """

    def __init__(self, request: Any, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        import openvino

        self.raw = request
        self._tensor = openvino.Tensor
        # What is under OpenVINO's own `infer`, without its looking for the kind of inputs.
        underneath: Any = super(openvino.InferRequest, request)
        self._infer = underneath.infer
        self._nothing: dict[int, Any] = {}
        # Tuples, as they are read at every run.
        self._copied = tuple(
            (port.place, request.get_input_tensor(port.index).data, port.shape, port.dtype, port)
            for port in inputs
            if port.is_small
        )
        self._shared = tuple((port.place, port.index, port) for port in inputs if not port.is_small)
        self._small = tuple(
            (port.place, port.index, request.get_output_tensor(port.index).data)
            for port in outputs
            if port.is_small
        )
        self._large = tuple(
            (port.place, port.index, port)
            for port in outputs
            if port.is_static and not port.is_small
        )
        self._dynamic = tuple(
            (port.place, port.index, port.name) for port in outputs if not port.is_static
        )

    def run(self, inputs: Sequence[Value], outputs: MutableSequence[Value | None]) -> None:
        """Compute the outputs; see `CompiledPartition.run`.

        Raises:
            RunError: an input isn't what the model was compiled for.
            RuntimeError: OpenVINO failed.
        """
        for place, memory, shape, dtype, port in self._copied:
            value = inputs[place]
            if value.shape != shape or value.dtype != dtype:
                raise _misfit(port, value)
            memory[...] = value
        if self._shared or self._large:
            self._run_shared(inputs, outputs)
        else:
            self._infer(self._nothing, True, False)
        for place, _, memory in self._small:
            given = outputs[place]
            if given is None:
                outputs[place] = memory.copy()
            else:
                given[...] = memory
        for place, index, name in self._dynamic:
            result = self.raw.get_output_tensor(index).data
            given = outputs[place]
            if given is None:
                outputs[place] = result.copy()
            else:
                copy_into(given, result, name)

    def _run_shared(self, inputs: Sequence[Value], outputs: MutableSequence[Value | None]) -> None:
        """Run with tensors over other memory, which is kept for as long as the run takes.

        A request doesn't keep the memory of its tensors alive, and forgets it at the next run.
        """
        request = self.raw
        readable = [_readable(inputs[place], port) for place, _, port in self._shared]
        for (_, index, _), array in zip(self._shared, readable, strict=True):
            request.set_input_tensor(index, self._tensor(array, True))
        targets = [_target(outputs[place], port) for place, _, port in self._large]
        for (_, index, _), target in zip(self._large, targets, strict=True):
            request.set_output_tensor(index, self._tensor(target, True))
        self._infer(self._nothing, True, False)
        for (place, _, _), target in zip(self._large, targets, strict=True):
            _leave(outputs, place, target)


def _readable(value: HostArray, port: Port) -> HostArray:
    """An input as OpenVINO takes it: contiguous, and marked as writable."""
    if value.dtype != port.dtype or (port.shape is not None and value.shape != port.shape):
        raise _misfit(port, value)
    return writable(value if value.flags.c_contiguous else np.array(value, order="C"))


def _target(given: HostArray | None, port: Port) -> HostArray:
    """Memory for an output: what was given, if OpenVINO can write there."""
    assert port.shape is not None
    if given is None or not given.flags.c_contiguous:
        return np.empty(port.shape, port.dtype)
    return given


def _leave(outputs: MutableSequence[Value | None], place: int, result: HostArray) -> None:
    """Put a result into the memory that was given for it, or hand it over."""
    given = outputs[place]
    if given is None:
        outputs[place] = result
    elif given is not result:
        given[...] = result


def _misfit(port: Port, value: HostArray) -> RunError:
    return RunError(
        f"input {port.name!r} isn't what the model was compiled for",
        expected=f"{port.dtype}{list(port.shape or ())}",
        got=f"{value.dtype}{list(value.shape)}",
        fix="The model declares another type or shape than it computes.",
    )
