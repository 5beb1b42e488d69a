"""The CPU provider itself: the SDK's kernel provider with this package's table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from ep_core.contracts import CompiledPartition, NodeTime, PartitionMemory, ProviderFeatures
from ep_core.cores import usable_cores
from ep_core.errors import CompileError
from ep_core.graph import Node, Subgraph
from ep_cpu.kernels import load_table
from ep_cpu.native.binding import NO_INSTRUCTIONS, levels, native_module
from ep_cpu.native.partition import (
    NativeProgram,
    NativeSegment,
    NativeSettings,
    native_program,
)
from ep_cpu.options import AUTOMATIC, BFLOAT16, FLOAT32
from ep_cpu.workspace import workspace_of
from ep_sdk.kernel_provider import KernelProvider
from ep_sdk.kernels import Kernel, KernelNode, KernelRow, KernelTable
from ep_sdk.lookup import describe_node

__all__ = ["CpuProvider"]


class CpuProvider(KernelProvider):
    """Runs every node that the table has a row for, in host memory."""

    features: ClassVar[ProviderFeatures] = ProviderFeatures(
        asynchronous=False,
        concurrent_runs=True,
        control_flow=False,
        non_tensor_values=True,
        deterministic=True,
        profiles_nodes=True,
        tells_memory=True,
    )
    table: ClassVar[KernelTable] = load_table()
    accept_unknown_types: ClassVar[bool] = True

    def workspace(self, kernel_node: KernelNode) -> int | None:
        """What numpy needs beside inputs and outputs, as far as it was measured."""
        return workspace_of(kernel_node)

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """Make a program of native segments where there can be some, else of kernels alone.

        Raises:
            CompileError: a node has no row, or its kernel can't be made.
            ProviderError: the provider is closed.
        """
        self.check_open()
        settings = self._native_settings()
        if settings is None:
            return super().compile(subgraph)

        def describe(node: Node) -> KernelNode:
            return describe_node(subgraph.graph, node, self.options, self)

        def find(node: Node) -> tuple[KernelNode, KernelRow | str]:
            kernel_node = describe(node)
            return kernel_node, self.find_row(kernel_node)

        program = native_program(
            subgraph, describe, find, self.workspace, settings, on_close=self.forget
        )
        if program is None:
            return super().compile(subgraph)
        self.track(program)
        return program

    def get_partition_memory(self, partition: CompiledPartition) -> PartitionMemory:
        """As in the base class, with packed weights.

        Raises:
            ProviderError: the partition isn't one of this class.
        """
        memory = super().get_partition_memory(partition)
        if not isinstance(partition, NativeProgram):
            return memory
        total = memory.constant_bytes + partition.packed_bytes
        return dataclasses.replace(memory, constant_bytes=total)

    def timed_kernel(
        self, kernel: Kernel, node: Node, record: Callable[[NodeTime], None]
    ) -> Kernel:
        """As in the base class; native segments time their steps one by one."""
        if isinstance(kernel, NativeSegment):
            return kernel.timed(record)
        return super().timed_kernel(kernel, node, record)

    def _native_settings(self) -> NativeSettings | None:
        """How native programs are made, None without the compiled module or where it is off."""
        level = self.options.get("instructions", AUTOMATIC)
        module = native_module()
        if module is None or level == NO_INSTRUCTIONS:
            return None
        usable = levels()
        chosen = usable[0] if level == AUTOMATIC else level
        if chosen not in usable:
            raise CompileError(
                f"instructions {chosen!r} can't run here",
                expected=f"{', '.join(usable)} or {NO_INSTRUCTIONS}",
            )
        threads = int(self.options.get("intra_op_num_threads", 0))
        in_bfloat16 = self.options.get("precision", FLOAT32) == BFLOAT16
        return NativeSettings(module, chosen, threads or usable_cores(), in_bfloat16)
