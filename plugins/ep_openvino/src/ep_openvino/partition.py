"""A compiled model of OpenVINO's as a partition: binding by name, requests, memory.

Requests are pooled, so that runs on many threads don't wait for each other. How one request gets
its inputs and gives its outputs is in `request.py`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

from ep_core.contracts import HostArray, NodeTime, Stream, Value
from ep_core.errors import CompileError, RunError
from ep_core.graph import Graph, Subgraph
from ep_core.types import TensorType
from ep_openvino.convert import ELEMENT_TYPES, input_label
from ep_openvino.lengths import LengthCheck, needs_length_check
from ep_openvino.library import translated
from ep_openvino.profile import NodeNames, node_times
from ep_openvino.request import Port, Request

__all__ = ["OpenVinoPartition"]


@dataclass(frozen=True)
class _Profile:
    """Who is told of the times of nodes, and what the nodes are called."""

    record: Callable[[NodeTime], None]
    names: NodeNames


class OpenVinoPartition:
    """Meets `ep_core.contracts.CompiledPartition`.

    Args:
        compiled: `openvino.CompiledModel`.
        subgraph: what it was compiled from.
        on_close: called once, with the partition, when it is closed.
        memory: what the compiled model reads for as long as it lives.
        read: reads the subgraph as an `openvino.Model`.

    Raises:
        CompileError: inputs or outputs aren't those of the subgraph.
    """

    def __init__(
        self,
        compiled: Any,
        subgraph: Subgraph,
        on_close: Callable[[OpenVinoPartition], None],
        memory: HostArray | None,
        read: Callable[[], Any],
    ) -> None:
        self.subgraph = subgraph
        self._label = f"'openvino', subgraph {subgraph.name!r}"
        self._on_close = on_close
        self._memory = memory
        self._lengths = LengthCheck(self._label, read) if needs_length_check(subgraph) else None
        self._profile: _Profile | None = None
        self._closing = threading.Lock()
        self._take(compiled)

    def _take(self, compiled: Any) -> None:
        self._compiled = compiled
        graph = self.subgraph.graph
        places = {input_label(place): place for place in range(len(self.subgraph.inputs))}
        self._inputs = []
        for index, port in enumerate(compiled.inputs):
            label = port.get_node().get_friendly_name()
            if label not in places:
                raise CompileError(f"{self._label}: the compiled model has an input {label!r}")
            name = self.subgraph.inputs[places[label]]
            self._inputs.append(_port(port, graph, name, places[label], index))
        found = list(compiled.outputs)
        if len(found) != len(self.subgraph.outputs):
            raise CompileError(
                f"{self._label}: outputs of the compiled model",
                expected=len(self.subgraph.outputs),
                got=len(found),
            )
        self._outputs = [
            _port(port, graph, name, index, index)
            for index, (port, name) in enumerate(zip(found, self.subgraph.outputs, strict=True))
        ]
        self._idle: deque[Request] = deque()

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        """True for outputs of static shape."""
        return [port.is_static for port in self._outputs]

    @property
    def compiled(self) -> Any:
        """The `openvino.CompiledModel`.

        Raises:
            CompileError: the partition is closed.
        """
        if self._compiled is None:
            raise CompileError(f"{self._label}: the partition is closed")
        return self._compiled

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None = None,
    ) -> None:
        """Run the model; see `CompiledPartition.run`."""
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._new_request()
        try:
            if (lengths := self._lengths) is not None:
                lengths.check(inputs)
            if self._profile is None:
                request.run(inputs, outputs)
            else:
                self._run_timed(request, inputs, outputs, self._profile)
        except Exception as error:
            # The request may be in any state; it isn't used again.
            raise translated(error, f"{self._label} failed", RunError) from error
        self._idle.append(request)

    def _new_request(self) -> Request:
        compiled = self._compiled
        if compiled is None:
            raise RunError(f"{self._label} is closed", fix="Compile the subgraph again.")
        try:
            return Request(compiled.create_infer_request(), self._inputs, self._outputs)
        except Exception as error:
            raise translated(error, f"{self._label} can't be run", RunError) from error

    def profile(self, compiled: Any, record: Callable[[NodeTime], None]) -> None:
        """Go on with a model that was compiled for being timed, and report each node's time."""
        self._take(compiled)
        self._profile = _Profile(record, NodeNames(self.subgraph, compiled))

    def _run_timed(
        self,
        request: Request,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        profile: _Profile,
    ) -> None:
        begin = time.perf_counter_ns()
        request.run(inputs, outputs)
        for timed in node_times(request, profile.names, begin, time.perf_counter_ns()):
            profile.record(timed)

    def close(self) -> None:
        """Release the compiled model and its requests; twice without harm."""
        with self._closing:
            if self._compiled is None:
                return
            self._compiled = None
        self._idle.clear()
        self._memory = None
        self._lengths = None
        self._on_close(self)


def _port(port: Any, graph: Graph, name: str, place: int, index: int) -> Port:
    kind = graph.type_of(name)
    if not isinstance(kind, TensorType) or kind.dtype not in ELEMENT_TYPES:
        raise CompileError(f"value {name!r} of type {kind} can't pass to or from OpenVINO")
    told = port.get_element_type().get_type_name()
    if told != ELEMENT_TYPES[kind.dtype]:
        raise CompileError(
            f"value {name!r} has another type in the compiled model",
            expected=ELEMENT_TYPES[kind.dtype],
            got=told,
        )
    shape = port.get_partial_shape()
    static = tuple(shape.to_shape()) if shape.is_static else None
    if kind.static_shape != static:
        static = None
    return Port(name, place, index, kind.dtype.numpy, static)
