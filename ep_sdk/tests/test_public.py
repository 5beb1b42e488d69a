"""What the SDK promises to outside vendors: its public names."""

from __future__ import annotations

import subprocess
import sys

import ep_sdk


def test_public_names():
    assert ep_sdk.__all__ == [
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
    for name in ep_sdk.__all__:
        getattr(ep_sdk, name)


def test_listing_the_simulator_loads_no_kernels():
    """Discovery reads the entry point's module on every machine; it must stay small."""
    code = (
        "import sys, ep_sdk.simulator as s; s.ep_provider_factory().devices();"
        "print(sorted(m for m in sys.modules if m.startswith('ep_sdk.simulator.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
