"""The base class of providers of devices that run this package's kernels.

A provider brings the device, its memory, copies and streams; what is claimed, fused, built and
counted is the same for all and done here.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ep_core.contracts import (
    CompiledPartition,
    DataTransfer,
    FusedGroup,
    HostArray,
    NodeTime,
    PartitionMemory,
    ProviderInfo,
    Support,
)
from ep_core.graph import Graph, Node, Subgraph
from ep_core.types import DataType, DeviceInfo, TensorType
from ep_sdk.device_kernels import kernels
from ep_sdk.device_kernels.contracts import (
    DeviceBuffer,
    DeviceMemory,
    DeviceStream,
    KernelDevice,
)
from ep_sdk.device_kernels.fusing import fuse_elementwise, fuse_epilogues, fused_groups
from ep_sdk.device_kernels.launch import TABLE
from ep_sdk.device_kernels.rehearsal import rehearse
from ep_sdk.kernel_provider import KernelProvider
from ep_sdk.kernels import Kernel, KernelNode, KernelRow, KernelTable
from ep_sdk.lookup import describe_node
from ep_sdk.lowering import lower
from ep_sdk.stream_program import StreamProgram

__all__ = ["DeviceProvider"]

kernels.load()


class DeviceProvider(KernelProvider, ABC):
    """Meets `ep_core.contracts.ExecutionProvider` for a device that meets `contracts`.

    Its options have `ep_sdk.device_kernels.options.OPTIONS` among them. `features` and `memory` are
    the subclass's to declare as well.
    """

    table: ClassVar[KernelTable] = TABLE
    uses_streams: ClassVar[bool] = True

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        super().__init__(info, device, options)
        self._compiling = threading.local()
        self._held_bytes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @property
    @abstractmethod
    def opened(self) -> KernelDevice:
        """The device, for kernels."""

    @property
    @abstractmethod
    def allocator(self) -> DeviceMemory:
        """The device's allocator."""

    @property
    @abstractmethod
    def data_transfer(self) -> DataTransfer:
        """Copies to and from the host; see `KernelHost`."""

    @abstractmethod
    def create_stream(self) -> DeviceStream:
        """A new in-order queue.

        Raises:
            ProviderError: the provider is closed.
        """

    def find_row(self, kernel_node: KernelNode) -> KernelRow | str:
        """The row of the table, unless the device lacks a type."""
        if not self.opened.has_double:
            for kind in (*kernel_node.input_types, *kernel_node.output_types):
                if isinstance(kind, TensorType) and kind.dtype is DataType.DOUBLE:
                    return "the device has no double precision"
        return super().find_row(kernel_node)

    def fused_groups(self, graph: Graph, answers: Sequence[Support]) -> Sequence[FusedGroup]:
        """Chains of elementwise operators, and products with chains in their tails."""
        if not self.options["fuse"]:
            return ()
        return fused_groups(graph, answers, is_cpu=self.opened.is_cpu)

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """Make the kernels of a subgraph, join chains, and build what shapes are known for.

        Raises:
            CompileError: a node has no row, or its kernel can't be built.
            AllocationError: constants don't fit into the device's memory.
            ProviderError: the provider is closed.
        """
        self.check_open()
        graph = subgraph.graph

        def find(node: Node) -> tuple[KernelNode, KernelRow | str]:
            kernel_node = describe_node(graph, node, self.options, self)
            return kernel_node, self.find_row(kernel_node)

        held: list[DeviceBuffer] = []
        self._compiling.held = held
        try:
            lowered = lower(subgraph, find)
            if self.options["fuse"]:
                lowered = fuse_epilogues(fuse_elementwise(lowered))
            lowered = rehearse(lowered, self.allocator)
            program = StreamProgram(
                lowered, self, on_close=lambda item: self._forget_partition(item, held)
            )
        except BaseException:
            self._release(held)
            raise
        finally:
            self._compiling.held = None
        self._held_bytes[program] = sum(buffer.nbytes for buffer in held)
        self.track(program)
        return program

    def get_partition_memory(self, partition: CompiledPartition) -> PartitionMemory:
        """What a partition takes: values by their lifetimes, packed weights, and scratch.

        Raises:
            ProviderError: the partition isn't one of this class.
        """
        told = super().get_partition_memory(partition)
        packed = self._held_bytes.get(partition, 0)
        return replace(told, constant_bytes=told.constant_bytes + packed)

    def timed_kernel(
        self, kernel: Kernel, node: Node, record: Callable[[NodeTime], None]
    ) -> Kernel:
        """Time what the queue does, by the device's clock."""

        def timed(stream: DeviceStream, *inputs: Any, **options: Any) -> Any:
            before = stream.mark()
            result = kernel(stream, *inputs, **options)
            after = stream.mark()

            def tell() -> None:
                start, end = stream.host_time(before), stream.host_time(after)
                record(NodeTime(node.name, node.op_type, start, end, stream.name))

            stream.when_passed(tell)
            return result

        return timed

    def keep_constant(self, values: HostArray) -> DeviceBuffer:
        """A tensor on the device for the kernel that is being made; freed with its partition."""
        buffer = self.allocator.allocate(values.shape, DataType.from_numpy(values.dtype))
        self._compiling.held.append(buffer)
        self.data_transfer.copy(np.array(values, order="C"), buffer, None)
        return buffer

    def _forget_partition(self, program: StreamProgram, held: list[DeviceBuffer]) -> None:
        self._release(held)
        self.forget(program)

    def _release(self, held: list[DeviceBuffer]) -> None:
        while held:
            self.allocator.release(held.pop())
