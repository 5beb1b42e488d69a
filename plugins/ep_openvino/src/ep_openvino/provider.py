"""The provider: claims by OpenVINO's own answers, compiling, artifacts, profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ep_core.contracts import (
    Capability,
    CompiledPartition,
    HostArray,
    NodeTime,
    Numerics,
    ProviderFeatures,
    ProviderInfo,
    Support,
)
from ep_core.errors import CompileError
from ep_core.graph import Graph, Subgraph
from ep_core.types import DeviceInfo
from ep_openvino.artifact import pack, unpack
from ep_openvino.claims import Claims
from ep_openvino.configuration import configure
from ep_openvino.convert import convert, writable
from ep_openvino.library import open_core, translated
from ep_openvino.partition import OpenVinoPartition
from ep_sdk.base import ProviderBase

__all__ = ["OpenVinoProvider"]


class OpenVinoProvider(ProviderBase):
    """Compiles subgraphs with OpenVINO, and runs them on arrays in host memory.

    Devices with memory of their own are fed by OpenVINO itself.
    """

    features: ClassVar[ProviderFeatures] = ProviderFeatures(
        artifacts=True,
        maps_artifacts=True,
        profiles_nodes=True,
        # Division takes a denormal for zero, on CPUs too.
        numerics=Numerics(flushes_denormals=True),
    )

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        super().__init__(info, device, options)
        self._core = open_core()
        self._configuration = configure(self._core, device.id, options)
        self._claims = Claims(self._core, self._configuration)

    def get_capability(self, graph: Graph) -> Capability:
        """Answer for every node; see `ep_openvino.claims`."""
        try:
            return Capability(self._claims.answers(graph))
        except Exception as error:  # noqa: BLE001 - a claim must not raise, whatever the graph
            reason = f"OpenVINO can't be asked: {type(error).__name__}: {error}"
            return Capability((Support(False, reason),) * len(graph.nodes))

    def compile(self, subgraph: Subgraph) -> OpenVinoPartition:
        """Compile a subgraph for the device.

        Raises:
            CompileError, AllocationError, DeviceLostError: with OpenVINO's words.
            ProviderError: the provider is closed.
        """
        return self._partition(subgraph, "compile", lambda: (self._compiled(subgraph), None))

    def export_partition(self, partition: CompiledPartition) -> bytes:
        """Return the compiled model as bytes.

        Raises:
            CompileError: the partition isn't of this provider or is closed, or OpenVINO failed.
            ProviderError: the provider is closed.
        """
        self.check_open()
        if not isinstance(partition, OpenVinoPartition):
            raise CompileError(f"the partition isn't one of provider {self.info.name!r}")
        if not self._configuration.exports:
            raise CompileError(f"OpenVINO exports no models of {self._configuration.target}")
        try:
            blob = partition.compiled.export_model().getvalue()
        except Exception as error:
            what = f"OpenVINO can't export {partition.subgraph.name!r}"
            raise translated(error, what, CompileError) from error
        return pack(blob, partition.subgraph, _build())

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> OpenVinoPartition:
        """Load what `export_partition` gave; raises what `compile` does."""
        return self._partition(subgraph, "import", lambda: self._imported(subgraph, artifact))

    def profile_partition(
        self, partition: CompiledPartition, record: Callable[[NodeTime], None]
    ) -> None:
        """Compile the partition anew, as OpenVINO keeps times only where that was asked before."""
        self.check_open()
        assert isinstance(partition, OpenVinoPartition)
        subgraph = partition.subgraph
        try:
            partition.profile(self._compiled(subgraph, {"PERF_COUNT": "YES"}), record)
        except Exception as error:
            what = f"OpenVINO can't profile {subgraph.name!r}"
            raise translated(error, what, CompileError) from error

    def _compiled(self, subgraph: Subgraph, more: Mapping[str, Any] | None = None) -> Any:
        configuration = self._configuration
        model = convert(self._core, subgraph)
        properties = {**configuration.properties, **(more or {})}
        return self._core.compile_model(model, configuration.target, properties)

    def _imported(self, subgraph: Subgraph, artifact: bytes) -> tuple[Any, HostArray]:
        """The compiled model of an artifact, and the memory in which its weights may lie."""
        import openvino

        blob = writable(np.frombuffer(unpack(artifact, subgraph, _build()), np.uint8))
        configuration = self._configuration
        # Precision isn't kept in the artifact, so that the properties have to be given again.
        compiled = self._core.import_model(
            openvino.Tensor(blob, True), configuration.target, dict(configuration.properties)
        )
        return compiled, blob

    def _partition(
        self, subgraph: Subgraph, doing: str, make: Callable[[], tuple[Any, HostArray | None]]
    ) -> OpenVinoPartition:
        self.check_open()
        try:
            compiled, memory = make()
            read = partial(convert, self._core, subgraph)
            partition = OpenVinoPartition(compiled, subgraph, self.forget, memory, read)
        except Exception as error:
            what = f"OpenVINO can't {doing} {subgraph.name!r} ({len(subgraph.nodes)} nodes)"
            raise translated(error, what, CompileError) from error
        self.track(partition)
        return partition


def _build() -> str:
    import openvino

    return str(openvino.__version__)
