"""A provider that passes everything on to another one; subclasses change what differs.

For what stands between the core and a provider: to watch it, or to have it answer and not work.
Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ep_core.contracts import (
    Allocator,
    Buffer,
    Capability,
    CompiledPartition,
    DataTransfer,
    ExecutionProvider,
    HostArray,
    NodeTime,
    PartitionMemory,
    ProviderFeatures,
    ProviderInfo,
    Stream,
)
from ep_core.graph import Graph, Subgraph
from ep_core.types import DataType, DeviceInfo, MemoryInfo

__all__ = ["ForwardingProvider"]


class ForwardingProvider:
    """Meets `ExecutionProvider` by asking another.

    Attributes:
        inner: the one that is asked; who closes this one closes that one.
    """

    def __init__(self, inner: ExecutionProvider) -> None:
        self.inner = inner

    @property
    def info(self) -> ProviderInfo:
        """Who the inner provider is."""
        return self.inner.info

    @property
    def device(self) -> DeviceInfo:
        """Its device."""
        return self.inner.device

    @property
    def features(self) -> ProviderFeatures:
        """What it declares."""
        return self.inner.features

    @property
    def memory(self) -> MemoryInfo:
        """Its memory."""
        return self.inner.memory

    @property
    def allocator(self) -> Allocator | None:
        """Its allocator."""
        return self.inner.allocator

    @property
    def data_transfer(self) -> DataTransfer | None:
        """Its data transfer."""
        return self.inner.data_transfer

    def create_stream(self) -> Stream | None:
        """A stream of its."""
        return self.inner.create_stream()

    def get_capability(self, graph: Graph) -> Capability:
        """Its answer."""
        return self.inner.get_capability(graph)

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """A partition of its."""
        return self.inner.compile(subgraph)

    def export_partition(self, partition: CompiledPartition) -> bytes:
        """An artifact of its."""
        return self.inner.export_partition(partition)

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> CompiledPartition:
        """A partition made from an artifact of its."""
        return self.inner.import_partition(subgraph, artifact)

    def profile_partition(
        self, partition: CompiledPartition, record: Callable[[NodeTime], None]
    ) -> None:
        """Have nodes of a partition of its timed."""
        self.inner.profile_partition(partition, record)

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """Pinned memory of its."""
        return self.inner.allocate_pinned(shape, dtype)

    def import_dlpack(self, tensor: Any) -> Buffer:
        """A buffer of its over another library's tensor."""
        return self.inner.import_dlpack(tensor)

    def get_partition_memory(self, partition: CompiledPartition) -> PartitionMemory:
        """What a partition of its takes."""
        return self.inner.get_partition_memory(partition)

    def close(self) -> None:
        """Close it."""
        self.inner.close()
