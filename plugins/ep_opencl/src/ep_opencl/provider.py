"""The OpenCL provider: the kernel table on an open device."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ep_core.contracts import (
    CompiledPartition,
    FusedGroup,
    HostArray,
    NodeTime,
    PartitionMemory,
    ProviderFeatures,
    ProviderInfo,
    Support,
)
from ep_core.graph import Graph, Node, Subgraph
from ep_core.types import DataType, DeviceInfo, MemoryInfo, TensorType
from ep_opencl import kernels
from ep_opencl.device import open_device
from ep_opencl.fusing import fuse_elementwise, fuse_epilogues, fused_groups
from ep_opencl.launch import TABLE
from ep_opencl.memory import MemoryPool, OpenCLBuffer
from ep_opencl.rehearsal import rehearse
from ep_opencl.stream import OpenCLStream
from ep_opencl.transfer import OpenCLTransfer
from ep_sdk.kernel_provider import KernelProvider
from ep_sdk.kernels import Kernel, KernelNode, KernelRow, KernelTable
from ep_sdk.lookup import describe_node
from ep_sdk.lowering import lower
from ep_sdk.stream_program import StreamProgram

__all__ = ["OpenCLProvider"]

kernels.load()


class OpenCLProvider(KernelProvider):
    """One open OpenCL device.

    Attributes:
        opened: the device, for kernels.
    """

    table: ClassVar[KernelTable] = TABLE
    uses_streams: ClassVar[bool] = True

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        super().__init__(info, device, options)
        self.opened = open_device(device.id)
        self._features = ProviderFeatures(
            asynchronous=True,
            profiles_nodes=True,
            tells_memory=True,
            # Where device and host share memory, staging and a second queue only cost time.
            overlaps_copies=self.opened.has_own_memory,
            pinned_host=self.opened.has_own_memory,
            imports_dlpack=self.opened.sharing.takes_host_memory,
            numerics=self.opened.numerics,
        )
        self._pool = MemoryPool(self.opened, options["capacity"])
        self._transfer = OpenCLTransfer(self.memory, self.create_stream)
        self._compiling = threading.local()
        self._held_bytes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @property
    def features(self) -> ProviderFeatures:  # type: ignore[override]
        """What the device can do, as it is."""
        return self._features

    @property
    def memory(self) -> MemoryInfo:
        """The device's own memory."""
        return self.opened.memory

    @property
    def allocator(self) -> MemoryPool:
        """The device's allocator."""
        return self._pool

    @property
    def data_transfer(self) -> OpenCLTransfer:
        """Copies to and from the host."""
        return self._transfer

    def create_stream(self) -> OpenCLStream:
        """A new in-order queue.

        Raises:
            ProviderError: the provider is closed.
        """
        self.check_open()
        stream = OpenCLStream(self.opened, on_close=self.forget)
        self.track(stream)
        return stream

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """An array in page-locked host memory.

        Raises:
            ProviderError: the provider is closed.
            AllocationError: the driver has no more.
            NotSupportedError: strings.
        """
        self.check_open()
        return self._pool.pinned.allocate(shape, dtype)

    def import_dlpack(self, tensor: Any) -> OpenCLBuffer:
        """A buffer over a tensor that another library has on the host, without a copy.

        Raises:
            ProviderError: the provider is closed.
            BufferError: it lies elsewhere, or has a type or layout that kernels don't know.
        """
        self.check_open()
        return self._pool.import_dlpack(tensor)

    def close_device(self) -> None:
        """Give the memory back; the device stays open for the process."""
        self._pool.close()

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

        held: list[OpenCLBuffer] = []
        self._compiling.held = held
        try:
            lowered = lower(subgraph, find)
            if self.options["fuse"]:
                lowered = fuse_epilogues(fuse_elementwise(lowered))
            lowered = rehearse(lowered, self._pool)
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

        def timed(stream: OpenCLStream, *inputs: Any, **options: Any) -> Any:
            before = stream.mark()
            result = kernel(stream, *inputs, **options)
            after = stream.mark()

            def tell() -> None:
                start, end = stream.host_time(before), stream.host_time(after)
                record(NodeTime(node.name, node.op_type, start, end, stream.name))

            stream.when_passed(tell)
            return result

        return timed

    def keep_constant(self, values: np.ndarray[Any, Any]) -> OpenCLBuffer:
        """A tensor on the device for the kernel that is being made; freed with its partition."""
        buffer = self._pool.allocate(values.shape, DataType.from_numpy(values.dtype))
        self._compiling.held.append(buffer)
        self._transfer.copy(np.array(values, order="C"), buffer, None)
        return buffer

    def _forget_partition(self, program: StreamProgram, held: list[OpenCLBuffer]) -> None:
        self._release(held)
        self.forget(program)

    def _release(self, held: list[OpenCLBuffer]) -> None:
        while held:
            self._pool.release(held.pop())
