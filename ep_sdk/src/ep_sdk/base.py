"""What every provider written with the SDK shares: identity, defaults for host memory, closing.

No claims and no compiling here; those are what `KernelProvider` and `CompilerProvider` add.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from ep_core.contracts import (
    Allocator,
    Buffer,
    CompiledPartition,
    DataTransfer,
    HostArray,
    NodeTime,
    PartitionMemory,
    ProviderFeatures,
    ProviderInfo,
    Stream,
)
from ep_core.errors import CompileError, ProviderError
from ep_core.graph import Subgraph
from ep_core.types import HOST_MEMORY, DataType, DeviceInfo, MemoryInfo

__all__ = ["Closable", "ProviderBase"]


class Closable(Protocol):
    """Something that the provider closes with itself, if nobody did before."""

    def close(self) -> None:
        """Release what it holds; twice without harm."""
        ...


class ProviderBase:
    """A provider in host memory without streams; subclasses change what differs.

    Attributes:
        features: what the provider declares about itself; set it in the class.
    """

    features: ClassVar[ProviderFeatures] = ProviderFeatures()

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        self._info = info
        self._device = device
        self._options = dict(options)
        self._open: dict[int, Closable] = {}
        self._open_lock = threading.Lock()
        self._closed = False

    @property
    def info(self) -> ProviderInfo:
        """Who the provider is."""
        return self._info

    @property
    def device(self) -> DeviceInfo:
        """The device that is open."""
        return self._device

    @property
    def options(self) -> Mapping[str, Any]:
        """The options it was opened with, parsed."""
        return self._options

    @property
    def memory(self) -> MemoryInfo:
        """Where partitions read and write. Default: host memory."""
        return HOST_MEMORY

    @property
    def allocator(self) -> Allocator | None:
        """The allocator of `memory`. Default: None, right for host memory."""
        return None

    @property
    def data_transfer(self) -> DataTransfer | None:
        """Copies from and to `memory`. Default: None, right for host memory."""
        return None

    @property
    def closed(self) -> bool:
        """True from the first `close` on."""
        return self._closed

    def create_stream(self) -> Stream | None:
        """A new queue of work. Default: None, right for providers without streams."""
        return None

    def export_partition(self, partition: CompiledPartition) -> bytes:
        """What `import_partition` needs. Default: a refusal, right without `artifacts`."""
        raise CompileError(f"provider {self._info.name!r} exports no partitions")

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> CompiledPartition:
        """A partition made from an artifact. Default: a refusal, right without `artifacts`."""
        raise CompileError(f"provider {self._info.name!r} imports no partitions")

    def profile_partition(
        self, partition: CompiledPartition, record: Callable[[NodeTime], None]
    ) -> None:
        """Have nodes timed. Default: a refusal, right without `profiles_nodes`."""
        raise ProviderError(f"provider {self._info.name!r} doesn't time its nodes")

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """Page-locked host memory. Default: a refusal, right without `pinned_host`."""
        raise ProviderError(f"provider {self._info.name!r} has no pinned host memory")

    def import_dlpack(self, tensor: Any) -> Buffer:
        """A buffer over another library's tensor. Default: a refusal, without `imports_dlpack`."""
        raise ProviderError(f"provider {self._info.name!r} imports no DLPack tensors")

    def get_partition_memory(self, partition: CompiledPartition) -> PartitionMemory:
        """What a partition takes. Default: a refusal, right without `tells_memory`."""
        raise ProviderError(f"provider {self._info.name!r} doesn't tell what a partition takes")

    def close(self) -> None:
        """Close everything that is still open, then the device; twice without harm."""
        with self._open_lock:
            if self._closed:
                return
            self._closed = True
            remaining = list(self._open.values())
        failures: list[Exception] = []
        # The last made goes first: what came later may lean on what came earlier.
        for item in reversed(remaining):
            try:
                item.close()
            except Exception as error:  # noqa: BLE001 - raised below, when all else is closed
                failures.append(error)
        self.close_device()
        if failures:
            raise failures[0]

    def close_device(self) -> None:
        """Release the device itself; called once, when all else is closed. Default: nothing."""

    def track(self, item: Closable) -> None:
        """Close `item` together with the provider, unless `forget` is called before.

        Raises:
            ProviderError: the provider is closed; `item` is closed as well.
        """
        with self._open_lock:
            if not self._closed:
                self._open[id(item)] = item
                return
        item.close()
        self.check_open()

    def forget(self, item: Closable) -> None:
        """Say that `item` has been closed; unknown items are ignored."""
        with self._open_lock:
            self._open.pop(id(item), None)

    def check_open(self) -> None:
        """Raise ProviderError if the provider is closed."""
        if self._closed:
            raise ProviderError(
                f"provider {self._info.name!r} is closed", fix="Open it again with create()."
            )
