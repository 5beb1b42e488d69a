"""The simulator as an execution provider: the kernel table on a simulated device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from ep_core.contracts import (
    Capability,
    CompiledPartition,
    HostArray,
    NodeTime,
    ProviderFeatures,
    ProviderInfo,
)
from ep_core.errors import CompileError, EpError
from ep_core.graph import Graph, Node, Subgraph
from ep_core.types import DataType, DeviceInfo, MemoryInfo
from ep_sdk.kernel_provider import KernelProvider
from ep_sdk.kernels import Kernel, KernelNode, KernelRow, KernelTable
from ep_sdk.simulator import algebra, elementwise, shaping
from ep_sdk.simulator.artifact import pack, unpack
from ep_sdk.simulator.device import SimulatedDevice
from ep_sdk.simulator.launch import TABLE
from ep_sdk.simulator.memory import MemoryPool, SimulatorBuffer
from ep_sdk.simulator.stream import SimulatorStream
from ep_sdk.simulator.transfer import SimulatorTransfer

__all__ = ["OneStreamSimulator", "SimulatorProvider"]

_KERNEL_FILES = (algebra, elementwise, shaping)
"""Imported for the rows that they add to the table."""


class SimulatorProvider(KernelProvider):
    """One open simulated device.

    Attributes:
        simulated: the device's state, for its kernels.
    """

    table: ClassVar[KernelTable] = TABLE
    uses_streams: ClassVar[bool] = True
    features: ClassVar[ProviderFeatures] = ProviderFeatures(
        asynchronous=True,
        artifacts=True,
        imports_dlpack=True,
        overlaps_copies=True,
        pinned_host=True,
        profiles_nodes=True,
        tells_memory=True,
    )

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        opened = replace(device, speed=options["speed"], memory_bytes=options["capacity"])
        super().__init__(info, opened, options)
        self.simulated = SimulatedDevice(device.id, options)
        self._pool = MemoryPool(self.simulated, options["capacity"], options["alignment"])
        self._transfer = SimulatorTransfer(self.simulated)
        self._skipped = options["skip"]
        self._refused = options["fail_compile"]
        self._sources: WeakKeyDictionary[CompiledPartition, Subgraph] = WeakKeyDictionary()

    @property
    def memory(self) -> MemoryInfo:
        """The device's own memory."""
        return self.simulated.memory

    @property
    def allocator(self) -> MemoryPool:
        """The device's allocator."""
        return self._pool

    @property
    def data_transfer(self) -> SimulatorTransfer:
        """Copies to the host and to the other device."""
        return self._transfer

    def create_stream(self) -> SimulatorStream:
        """A new worker thread.

        Raises:
            DeviceLostError: the device is lost.
            ProviderError: the provider is closed.
        """
        self.check_open()
        self.simulated.check()
        stream = SimulatorStream(self.simulated, on_close=self.forget)
        self.track(stream)
        return stream

    def import_dlpack(self, tensor: Any) -> SimulatorBuffer:
        """A buffer over a tensor on an extension device of DLPack's with this device's number.

        Raises:
            ProviderError: the provider is closed.
            BufferError: the tensor doesn't fit.
        """
        self.check_open()
        return self._pool.import_dlpack(tensor)

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """An array that copies of the device don't keep the host waiting for.

        Raises:
            ProviderError: the provider is closed.
            AllocationError: there isn't so much left.
            NotSupportedError: strings.
        """
        self.check_open()
        return self.simulated.pinned.allocate(shape, dtype)

    def close_device(self) -> None:
        """Give the device's memory back."""
        self._pool.close()

    def timed_kernel(
        self, kernel: Kernel, node: Node, record: Callable[[NodeTime], None]
    ) -> Kernel:
        """Time what the stream's worker does, which is the device here."""
        clock = time.perf_counter_ns

        def timed(stream: SimulatorStream, *inputs: Any, **options: Any) -> Any:
            begun: list[int] = []

            def end() -> None:
                if begun:
                    done = clock()
                    record(NodeTime(node.name, node.op_type, begun[0], done, stream.name))

            stream.submit(lambda: begun.append(clock()))
            result = kernel(stream, *inputs, **options)
            # Whoever owns the result releases it; a device that is lost now is told of later.
            with contextlib.suppress(EpError):
                stream.submit(end)
            return result

        return timed

    def find_row(self, kernel_node: KernelNode) -> KernelRow | str:
        """The row of the table, unless the option `skip` names the operator."""
        if kernel_node.node.op_type in self._skipped:
            return f"told to skip {kernel_node.node.op_type}"
        return super().find_row(kernel_node)

    def estimate(self, kernel_node: KernelNode, row: KernelRow) -> float | None:
        """The latency that kernels were given; what numpy takes beyond it isn't known."""
        latency: int = self.options["kernel_latency_us"]
        if not latency:
            return None
        return 0.0 if row.view else latency / 1e6

    def get_capability(self, graph: Graph) -> Capability:
        """What the table has; raises if the option `fail_capability` says so."""
        if self.options["fail_capability"]:
            raise RuntimeError("get_capability of the simulator raises as told")
        return super().get_capability(graph)

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """Compile, unless the option `fail_compile` says otherwise."""
        self.simulated.check()
        for node in subgraph.nodes:
            if node.op_type in self._refused or "always" in self._refused:
                raise CompileError(f"compiling {node.op_type} failed as told")
        self.simulated.compiling(len(subgraph.nodes))
        return self._loaded(subgraph)

    def export_partition(self, partition: CompiledPartition) -> bytes:
        """The subgraph of a partition as an artifact, unless the option `fail_export` forbids it.

        Raises:
            CompileError: the partition isn't one of this provider's, or doesn't fit into a model.
        """
        self.simulated.check()
        source = self._sources.get(partition)
        if source is None:
            raise CompileError("a partition that this simulator didn't make can't be exported")
        if self.options["fail_export"]:
            raise CompileError("exporting a partition failed as told")
        return pack(source)

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> CompiledPartition:
        """Load an artifact without compiling, unless the option `fail_import` forbids it.

        Raises:
            CompileError: see `unpack`.
            AllocationError: constants don't fit into the device's memory.
            ProviderError: the provider is closed, or the device is lost.
        """
        self.check_open()
        self.simulated.check()
        if self.options["fail_import"]:
            raise CompileError("importing an artifact failed as told")
        return self._loaded(unpack(artifact, subgraph))

    def _loaded(self, subgraph: Subgraph) -> CompiledPartition:
        """Put a program onto the device and remember what it is made of, for exports."""
        partition = super().compile(subgraph)
        self._sources[partition] = subgraph
        return partition


class OneStreamSimulator(SimulatorProvider):
    """One whose copies stand in line with its kernels."""

    features: ClassVar[ProviderFeatures] = replace(
        SimulatorProvider.features, overlaps_copies=False
    )
