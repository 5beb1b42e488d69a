"""A provider that is watched: it does what it did, and its answers and compilations are timed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from ep_core.contracts import (
    Allocator,
    Capability,
    CompiledPartition,
    DataTransfer,
    ExecutionProvider,
    NodeTime,
    ProviderFeatures,
    ProviderInfo,
    Stream,
)
from ep_core.graph import Graph, Subgraph
from ep_core.profiling.trace import Trace
from ep_core.types import DeviceInfo, MemoryInfo

__all__ = ["WatchedProvider"]


class WatchedProvider:
    """Meets `ExecutionProvider` by asking another.

    Args:
        name: how the session calls it.
        provider: the one that does the work; who closes this one closes that one.
    """

    def __init__(self, name: str, provider: ExecutionProvider, trace: Trace) -> None:
        self._name = name
        self._provider = provider
        self._trace = trace

    @property
    def info(self) -> ProviderInfo:
        return self._provider.info

    @property
    def device(self) -> DeviceInfo:
        return self._provider.device

    @property
    def features(self) -> ProviderFeatures:
        return self._provider.features

    @property
    def memory(self) -> MemoryInfo:
        return self._provider.memory

    @property
    def allocator(self) -> Allocator | None:
        return self._provider.allocator

    @property
    def data_transfer(self) -> DataTransfer | None:
        return self._provider.data_transfer

    def create_stream(self) -> Stream | None:
        return self._provider.create_stream()

    def get_capability(self, graph: Graph) -> Capability:
        """Ask, and note how long the answer takes."""
        with self._trace.span(f"ask {self._name}", "placement", nodes=len(graph.nodes)):
            return self._provider.get_capability(graph)

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """Compile, note how long it takes, and have the nodes of each run timed."""
        with self._compiling("compile", subgraph):
            return self._profiled(self._provider.compile(subgraph), subgraph.name)

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> CompiledPartition:
        """As `compile`."""
        with self._compiling("import", subgraph):
            part = self._provider.import_partition(subgraph, artifact)
            return self._profiled(part, subgraph.name)

    def export_partition(self, partition: CompiledPartition) -> bytes:
        with self._trace.span(f"export from {self._name}", "compile"):
            return self._provider.export_partition(partition)

    def profile_partition(
        self, partition: CompiledPartition, record: Callable[[NodeTime], None]
    ) -> None:
        self._provider.profile_partition(partition, record)

    def close(self) -> None:
        self._provider.close()

    def _compiling(self, what: str, subgraph: Subgraph) -> AbstractContextManager[None]:
        nodes = [node.name for node in subgraph.nodes]
        label = f"{what} {subgraph.name}"
        return self._trace.span(label, "compile", provider=self._name, nodes=nodes)

    def _profiled(self, partition: CompiledPartition, name: str) -> CompiledPartition:
        def record(time: NodeTime) -> None:
            where = f"{self._name} {time.queue}" if time.queue else ""
            args = {"operator": time.op_type, "provider": self._name, "partition": name}
            self._trace.add(time.node, "node", time.start_ns, time.end_ns, where, **args)

        if self.features.profiles_nodes:
            self._provider.profile_partition(partition, record)
        return partition
