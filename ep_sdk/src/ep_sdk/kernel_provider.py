"""The base class of providers that bring kernels: one table gives claims and programs.

Both `get_capability` and `compile` ask `find_row`, so what is claimed is what can be compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ep_core.contracts import (
    Capability,
    CompiledPartition,
    FusedGroup,
    NodeTime,
    PartitionMemory,
    Support,
)
from ep_core.errors import ProviderError
from ep_core.graph import Graph, Node, Subgraph
from ep_sdk.base import ProviderBase
from ep_sdk.host_program import HostProgram
from ep_sdk.kernels import Kernel, KernelNode, KernelRow, KernelTable
from ep_sdk.lookup import describe_node, find_row
from ep_sdk.lowering import lower
from ep_sdk.one_node import OneNodeProgram, is_one_node
from ep_sdk.stream_program import StreamProgram

__all__ = ["KernelProvider"]


class KernelProvider(ProviderBase):
    """Meets `ep_core.contracts.ExecutionProvider` from a kernel table.

    Attributes:
        table: the kernels; set it in the class.
        accept_unknown_types: claim nodes with inputs whose type inference couldn't tell. Right
            where kernels look at the real types when they run.
        uses_streams: kernels take a stream first and return buffers. Such a provider overrides
            `memory`, `allocator`, `data_transfer` and `create_stream`.
    """

    table: ClassVar[KernelTable]
    accept_unknown_types: ClassVar[bool] = False
    uses_streams: ClassVar[bool] = False

    def find_row(self, kernel_node: KernelNode) -> KernelRow | str:
        """Return the row of the table that computes a node, or why there is none."""
        return find_row(
            self.table,
            kernel_node,
            accept_unknown_types=self.accept_unknown_types,
            non_tensor_values=self.features.non_tensor_values,
        )

    def estimate(self, kernel_node: KernelNode, row: KernelRow) -> float | None:
        """Return the seconds that a node takes on the device, None without an idea; pure."""
        return None

    def workspace(self, kernel_node: KernelNode) -> int | None:
        """Return the bytes that the kernel of a node takes for itself while it runs, at most.

        For a provider that declares `tells_memory`. None where it has no idea.
        """
        return 0

    def fused_groups(self, graph: Graph, answers: Sequence[Support]) -> Sequence[FusedGroup]:
        """Return what `compile` will run as one piece, of nodes that were said yes to; pure.

        Only for a provider that does fuse; what a group may be is told in `FusedGroup`.
        """
        return ()

    def get_capability(self, graph: Graph) -> Capability:
        """Say yes to every node that has a row; pure, and quick enough to ask often."""
        answers = tuple(self._support(graph, node) for node in graph.nodes)
        return Capability(answers, tuple(self.fused_groups(graph, answers)))

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """Make the kernels of a subgraph once and lay out its memory.

        Raises:
            CompileError: a node has no row, or its kernel can't be made.
            AllocationError: constants don't fit into the device's memory.
            ProviderError: the provider is closed.
        """
        self.check_open()
        graph = subgraph.graph

        def find(node: Node) -> tuple[KernelNode, KernelRow | str]:
            kernel_node = describe_node(graph, node, self.options, self)
            return kernel_node, self.find_row(kernel_node)

        lowered = lower(subgraph, find, self.workspace)
        program: HostProgram | StreamProgram
        if self.uses_streams:
            program = StreamProgram(lowered, self, on_close=self.forget)
        elif is_one_node(lowered):
            program = OneNodeProgram(lowered, on_close=self.forget)
        else:
            program = HostProgram(lowered, on_close=self.forget)
        self.track(program)
        return program

    def profile_partition(
        self, partition: CompiledPartition, record: Callable[[NodeTime], None]
    ) -> None:
        """Have every kernel of a partition timed as `timed_kernel` says.

        Raises:
            ProviderError: the partition isn't one of this class.
        """
        if not isinstance(partition, HostProgram | StreamProgram):
            raise ProviderError(f"provider {self.info.name!r} can't time another one's partition")
        partition.change_kernels(lambda step: self.timed_kernel(step.kernel, step.node, record))

    def get_partition_memory(self, partition: CompiledPartition) -> PartitionMemory:
        """What a partition takes, by the lifetimes of its values and by `workspace`.

        Raises:
            ProviderError: the partition isn't one of this class.
        """
        if not isinstance(partition, HostProgram | StreamProgram):
            raise ProviderError(f"provider {self.info.name!r} doesn't know another one's partition")
        return partition.footprint.memory()

    def timed_kernel(
        self, kernel: Kernel, node: Node, record: Callable[[NodeTime], None]
    ) -> Kernel:
        """Return a kernel that does the same and reports how long it took.

        Here that is the time of the call. Where the call only hands work to a stream, a provider
        overrides this to time the device, or doesn't declare `profiles_nodes`.
        """
        clock = time.perf_counter_ns

        def timed(*args: Any, **options: Any) -> Any:
            start = clock()
            try:
                return kernel(*args, **options)
            finally:
                record(NodeTime(node.name, node.op_type, start, clock()))

        return timed

    def _support(self, graph: Graph, node: Node) -> Support:
        kernel_node = describe_node(graph, node, self.options, self)
        found = self.find_row(kernel_node)
        if isinstance(found, str):
            return Support(False, found)
        return Support(True, cost=self.estimate(kernel_node, found))
