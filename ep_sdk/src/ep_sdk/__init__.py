"""Base classes and tools for writing execution providers.

`KernelProvider` for a vendor with kernels, `CompilerProvider` for a vendor with a compiler,
`StandardFactory` to be discovered by. The simulated accelerator is in `ep_sdk.simulator`.
"""

from __future__ import annotations

from ep_sdk.arena import Arena, Chunk
from ep_sdk.base import ProviderBase
from ep_sdk.compiler_provider import CompiledModel, CompilerProvider
from ep_sdk.factory import StandardFactory
from ep_sdk.kernel_provider import KernelProvider
from ep_sdk.kernels import Kernel, KernelNode, KernelRow, KernelTable, MakeKernel
from ep_sdk.memory_plan import Lifetime, MemoryPlan, plan_memory
from ep_sdk.options import as_bool, as_bytes, as_choice, as_int, as_names

__all__ = [
    "Arena",
    "Chunk",
    "CompiledModel",
    "CompilerProvider",
    "Kernel",
    "KernelNode",
    "KernelProvider",
    "KernelRow",
    "KernelTable",
    "Lifetime",
    "MakeKernel",
    "MemoryPlan",
    "ProviderBase",
    "StandardFactory",
    "as_bool",
    "as_bytes",
    "as_choice",
    "as_int",
    "as_names",
    "plan_memory",
]
