"""The simulator as an execution provider: the kernel table on a simulated device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ep_core.contracts import Capability, CompiledPartition, ProviderFeatures, ProviderInfo
from ep_core.errors import CompileError
from ep_core.graph import Graph, Subgraph
from ep_core.types import DeviceInfo, MemoryInfo
from ep_sdk.kernel_provider import KernelProvider
from ep_sdk.kernels import KernelNode, KernelRow, KernelTable
from ep_sdk.simulator import algebra, elementwise, shaping
from ep_sdk.simulator.device import SimulatedDevice
from ep_sdk.simulator.launch import TABLE
from ep_sdk.simulator.memory import MemoryPool
from ep_sdk.simulator.stream import SimulatorStream
from ep_sdk.simulator.transfer import SimulatorTransfer

__all__ = ["SimulatorProvider"]

_KERNEL_FILES = (algebra, elementwise, shaping)
"""Imported for the rows that they add to the table."""


class SimulatorProvider(KernelProvider):
    """One open simulated device.

    Attributes:
        simulated: the device's state, for its kernels.
    """

    table: ClassVar[KernelTable] = TABLE
    uses_streams: ClassVar[bool] = True
    features: ClassVar[ProviderFeatures] = ProviderFeatures(asynchronous=True)

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        super().__init__(info, device, options)
        self.simulated = SimulatedDevice(device.id, options)
        self._pool = MemoryPool(self.simulated, options["capacity"], options["alignment"])
        self._transfer = SimulatorTransfer(self.simulated)
        self._skipped = options["skip"]
        self._refused = options["fail_compile"]

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

    def find_row(self, kernel_node: KernelNode) -> KernelRow | str:
        """The row of the table, unless the option `skip` names the operator."""
        if kernel_node.node.op_type in self._skipped:
            return f"told to skip {kernel_node.node.op_type}"
        return super().find_row(kernel_node)

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
        return super().compile(subgraph)
