"""The provider: claims by the parser's own answers, building engines, artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from ep_core.contracts import (
    Capability,
    CompiledPartition,
    ProviderFeatures,
    ProviderInfo,
    Support,
)
from ep_core.errors import CompileError, EpError, OptionError
from ep_core.graph import Graph, Subgraph
from ep_core.types import DeviceInfo, TensorType
from ep_sdk.base import ProviderBase
from ep_tensorrt.artifact import pack, unpack
from ep_tensorrt.build import EngineBuilder
from ep_tensorrt.claims import Claims
from ep_tensorrt.devices import BUILD_ONLY
from ep_tensorrt.library import open_library
from ep_tensorrt.partition import Runner, TensorRtPartition
from ep_tensorrt.profiles import Range, Ranges, declared

__all__ = ["TensorRtProvider"]


class TensorRtProvider(ProviderBase):
    """Builds engines of subgraphs, and runs them on arrays in host memory."""

    features: ClassVar[ProviderFeatures] = ProviderFeatures(
        concurrent_runs=False, deterministic=False, artifacts=True
    )

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        super().__init__(info, device, options)
        self._library = open_library()
        target = device.properties["compute capability"]
        if self._library.builds_anywhere and target not in self._library.targets:
            raise CompileError(
                f"{self._library.name} {self._library.version} builds nothing for {target}",
                expected=", ".join(self._library.targets),
            )
        if options["trt_fp16_enable"] and not self._library.has_fp16:
            raise OptionError(
                f"{self._library.name} {self._library.version} computes in the types of the model",
                got="trt_fp16_enable",
                fix="Convert the model to 16-bit floats.",
            )
        self._claims = Claims(self._library, options["trt_min_subgraph_size"])
        self._builder = EngineBuilder(self._library, target, options)

    def get_capability(self, graph: Graph) -> Capability:
        """Answer for every node; see `ep_tensorrt.claims`."""
        try:
            return Capability(self._claims.answers(graph))
        except Exception as error:  # noqa: BLE001 - a claim must not raise, whatever the graph
            reason = f"TensorRT can't be asked: {type(error).__name__}: {error}"
            return Capability((Support(False, reason),) * len(graph.nodes))

    def compile(self, subgraph: Subgraph) -> TensorRtPartition:
        """Build an engine, or, where lengths aren't told, make ready for building it in a run.

        Raises:
            CompileError: with TensorRT's words.
            OptionError: declared shapes contradict themselves or the model.
            ProviderError: the provider is closed.
        """
        self.check_open()
        ranges = self._ranges(subgraph)
        if ranges is not None:
            engine = (self._build(subgraph, ranges), ranges)
            return self._partition(subgraph, engine)
        if self._is_build_only:
            raise CompileError(
                f"the lengths of inputs of {subgraph.name!r} aren't known, and there is no GPU "
                "to see them in a run",
                expected="shapes of " + ", ".join(subgraph.inputs),
                fix="Declare them with trt_profile_min_shapes and its sisters.",
            )
        self._builder.check(subgraph)
        return self._partition(subgraph, None)

    def cancel(self) -> None:
        """Have builds that go on in other threads end with a CompileError, and later ones too."""
        self._builder.cancel()

    def export_partition(self, partition: CompiledPartition) -> bytes:
        """Return the engine as bytes.

        Raises:
            CompileError: the partition isn't of this provider, is closed, or has no engine.
            ProviderError: the provider is closed.
        """
        self.check_open()
        if not isinstance(partition, TensorRtPartition):
            raise CompileError(f"the partition isn't one of provider {self.info.name!r}")
        return pack(*partition.engine, partition.subgraph, self.device.fingerprint)

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> TensorRtPartition:
        """Make a partition of what `export_partition` gave; raises what `compile` does."""
        self.check_open()
        return self._partition(subgraph, unpack(artifact, subgraph, self.device.fingerprint))

    @property
    def _is_build_only(self) -> bool:
        return BUILD_ONLY in self.device.properties

    def _ranges(self, subgraph: Subgraph) -> Ranges | None:
        """The shapes to build for: those that are static, and those that are declared."""
        kinds = {name: subgraph.graph.type_of(name) for name in subgraph.inputs}
        static = {
            name: Range(shape, shape, shape)
            for name, kind in kinds.items()
            if isinstance(kind, TensorType) and (shape := kind.static_shape) is not None
        }
        return static if len(static) == len(kinds) else declared(subgraph, self.options)

    def _build(self, subgraph: Subgraph, ranges: Ranges) -> bytes:
        self.check_open()
        try:
            return self._builder.build(subgraph, ranges)
        except EpError:
            raise
        except Exception as error:
            raise CompileError(
                f"TensorRT can't build {subgraph.name!r}: {type(error).__name__}: {error}"
            ) from error

    def _partition(
        self, subgraph: Subgraph, engine: tuple[bytes, Ranges] | None
    ) -> TensorRtPartition:
        partition = TensorRtPartition(
            subgraph,
            engine,
            partial(self._build, subgraph),
            None if self._is_build_only else partial(self._load, subgraph),
            self.forget,
            may_rebuild=self.options["on_recompile"] != "error",
        )
        self.track(partition)
        return partition

    def _load(self, subgraph: Subgraph, engine: bytes) -> Runner:
        from ep_tensorrt.running import GpuRunner

        return GpuRunner(self._library, int(self.device.id), engine, subgraph)
