"""Who the CPU provider is and which device it has; nothing here imports a kernel."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from ep_core.contracts import API_VERSION, ExecutionProvider, ProviderFactory, ProviderInfo
from ep_core.types import DeviceInfo
from ep_cpu.native.binding import levels, why_missing
from ep_cpu.options import OPTIONS
from ep_cpu.speed import declared_speed
from ep_sdk.factory import StandardFactory
from ep_sdk.processor import architecture, processor_facts

__all__ = ["make_factory"]

# Sets of instructions that change how fast, and in which order of sums, numpy and BLAS compute.
_TELLING_FLAGS = ("avx512f", "avx2", "fma", "avx", "sse4_2", "sve2", "sve", "asimd", "neon")

_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}


def make_factory() -> ProviderFactory:
    """Return the factory; cheap."""
    info = ProviderInfo(
        name="cpu",
        version=version("ep-cpu"),
        api_version=API_VERSION,
        aliases=("CPUExecutionProvider",),
        vendor="ep",
        auto=True,
        priority=0,
        options=OPTIONS,
    )
    return StandardFactory(info, _devices, _open)


def _open(info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
    from ep_cpu.provider import CpuProvider

    return CpuProvider(info, device, options)


def _devices() -> Sequence[DeviceInfo]:
    facts = processor_facts()
    machine = platform.machine()
    instructions = "+".join(flag for flag in _TELLING_FLAGS if flag in facts["flags"].split())
    vendor = facts["vendor"]
    level = next(iter(levels()), None)
    numpy_major = np.__version__.partition(".")[0]
    return (
        DeviceInfo(
            provider="cpu",
            id="0",
            kind="cpu",
            vendor=_VENDORS.get(vendor, vendor),
            name=facts["name"] or platform.processor() or machine,
            # Each set of instructions is code of its own. The kernels in Python are numpy's
            # operations: its releases, and the instructions that it finds, change the last bits of
            # a sum, which every tolerance allows.
            fingerprint=f"{architecture()}; {level or 'python'}; numpy {numpy_major}",
            properties={
                "architecture": machine,
                "instructions": instructions,
                "native": ", ".join(levels()) or f"no, {why_missing()}",
                "numpy": np.__version__,
                "system": platform.system(),
            },
            speed=declared_speed(facts["flags"].split(), facts["name"], level),
        ),
    )
