"""From a subgraph to an engine: parsing, profiles, settings, building."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from ep_core.errors import CompileError
from ep_core.graph import Subgraph
from ep_core.types import TensorType
from ep_tensorrt.claims import parser_errors
from ep_tensorrt.elements import ELEMENT_TYPES
from ep_tensorrt.library import Library, said
from ep_tensorrt.profiles import Ranges

__all__ = ["EngineBuilder"]


class EngineBuilder:
    """Builds engines for one device.

    Args:
        library: that builds.
        target: compute capability, such as `sm_89`.
        options: of the provider, parsed.
    """

    def __init__(self, library: Library, target: str, options: Mapping[str, Any]) -> None:
        self._library = library
        self._target = target
        self._options = options
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Have builds that go on, and later ones, end with an error."""
        self._cancelled.set()

    def check(self, subgraph: Subgraph) -> None:
        """Raise CompileError where the parser doesn't take a subgraph."""
        with self._library.listening() as told:
            self._parse(self._library.trt.Builder(self._library.log), subgraph, told)

    def build(self, subgraph: Subgraph, ranges: Ranges) -> bytes:
        """Return a serialized engine.

        Args:
            ranges: the shapes of each input.

        Raises:
            CompileError: with the library's words, or as the build took too long or was cancelled.
        """
        trt = self._library.trt
        what = f"{self._library.name} can't build {subgraph.name!r} ({len(subgraph.nodes)} nodes)"
        with self._library.listening() as told:
            builder = trt.Builder(self._library.log)
            network, content = self._parse(builder, subgraph, told)
            monitor = _make_monitor(trt, self._cancelled, self._options["build_timeout"])
            config = self._configured(builder, network, ranges)
            config.progress_monitor = monitor
            engine = builder.build_serialized_network(network, config)
            del content
        if engine is None and monitor.stopped:
            raise CompileError(
                f"{what}: {monitor.stopped} while {monitor.phase!r}",
                fix="Raise the option 'build_timeout'." if not self._cancelled.is_set() else None,
            )
        if engine is None:
            raise CompileError(f"{what}: {said(told) or 'it says nothing'}")
        return bytes(engine)

    def _parse(self, builder: Any, subgraph: Subgraph, told: list[str]) -> tuple[Any, bytes]:
        """The network, and the bytes that it refers to."""
        library = self._library
        network = builder.create_network(library.network_flags())
        parser = library.trt.OnnxParser(network, library.log)
        try:
            content = subgraph.to_model().SerializeToString()
        except ValueError as error:
            raise CompileError(f"{subgraph.name!r} is too large for a model: {error}") from error
        if not parser.parse(content):
            words = parser_errors(parser) or said(told)
            raise CompileError(f"{library.name} can't parse {subgraph.name!r}: {words}")
        self._check_boundary(network, subgraph)
        return network, content

    def _check_boundary(self, network: Any, subgraph: Subgraph) -> None:
        tensors = [network.get_input(n) for n in range(network.num_inputs)]
        for tensor in tensors:
            if tensor.is_shape_tensor:
                raise CompileError(
                    f"input {tensor.name!r} gives a shape, whose values must be known"
                )
        tensors += [network.get_output(n) for n in range(network.num_outputs)]
        if {tensor.name for tensor in tensors} != {*subgraph.inputs, *subgraph.outputs}:
            raise CompileError(
                f"{self._library.name} reads {subgraph.name!r} with other inputs or outputs",
                expected=[*subgraph.inputs, *subgraph.outputs],
                got=[tensor.name for tensor in tensors],
            )
        for tensor in tensors:
            kind = subgraph.graph.type_of(tensor.name)
            wanted = ELEMENT_TYPES.get(kind.dtype) if isinstance(kind, TensorType) else None
            if tensor.dtype.name != wanted:
                raise CompileError(
                    f"value {tensor.name!r} has another type in TensorRT",
                    expected=wanted,
                    got=tensor.dtype.name,
                )

    def _configured(self, builder: Any, network: Any, ranges: Ranges) -> Any:
        trt = self._library.trt
        options = self._options
        config = builder.create_builder_config()
        if self._library.builds_anywhere:
            config.num_compute_capabilities = 1
            config.set_compute_capability(self._library.targets[self._target], 0)
        config.builder_optimization_level = options["trt_builder_optimization_level"]
        if options["trt_auxiliary_streams"] >= 0:
            config.max_aux_streams = options["trt_auxiliary_streams"]
        if options["trt_max_workspace_size"]:
            limit = options["trt_max_workspace_size"]
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, limit)
        # TF32 is on where nobody says otherwise.
        if not options["trt_tf32_enable"]:
            config.clear_flag(trt.BuilderFlag.TF32)
        if options["trt_fp16_enable"]:
            config.set_flag(trt.BuilderFlag.FP16)
        profile = builder.create_optimization_profile()
        for number in range(network.num_inputs):
            name = network.get_input(number).name
            span = ranges[name]
            profile.set_shape(name, span.least, span.best, span.most)
        if config.add_optimization_profile(profile) < 0:
            raise CompileError(f"{self._library.name} refuses the shapes {dict(ranges)}")
        return config


def _make_monitor(trt: Any, cancelled: threading.Event, timeout: int) -> Any:
    """A monitor that knows the phase, and ends a build that is cancelled or takes too long."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.phase = "starting"
            self.stopped = ""
            self._end = time.monotonic() + timeout if timeout else None

        def phase_start(self, name: str, parent: str | None, steps: int) -> None:
            self.phase = name

        def phase_finish(self, name: str) -> None:
            pass

        def step_complete(self, name: str, step: int) -> bool:
            if cancelled.is_set():
                self.stopped = "it was cancelled"
            elif self._end is not None and time.monotonic() > self._end:
                self.stopped = f"it takes longer than {timeout} s"
            return not self.stopped

    return Monitor()
