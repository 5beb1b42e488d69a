"""The CPU provider itself: the SDK's kernel provider with this package's table."""

from __future__ import annotations

from typing import ClassVar

from ep_core.contracts import ProviderFeatures
from ep_cpu.kernels import load_table
from ep_cpu.workspace import workspace_of
from ep_sdk.kernel_provider import KernelProvider
from ep_sdk.kernels import KernelNode, KernelTable

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
