"""A fake accelerator with memory of its own, real worker threads, and faults on demand.

A real provider, found like any other by its entry point. It exists for tests: on any machine it
exercises copies, streams, events, leaks, races and failures that otherwise need hardware. It has
two devices, so that copies from device to device happen too. It computes with numpy and claims no
speed, therefore it never takes part unless a caller names it.

This file holds what discovery needs and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ep_core.contracts import (
    API_VERSION,
    ExecutionProvider,
    OptionSpec,
    ProviderFactory,
    ProviderInfo,
)
from ep_core.hookspecs import hookimpl
from ep_core.types import DeviceInfo
from ep_sdk.factory import StandardFactory
from ep_sdk.options import as_bool, as_bytes, as_int, as_names

__all__ = ["INFO", "ep_provider_factory"]

_COUNT = as_int(0)
_MICROSECONDS = as_int(0, 60_000_000)

INFO = ProviderInfo(
    name="simulator",
    version="0.1.0",
    api_version=API_VERSION,
    aliases=("SimulatorExecutionProvider",),
    vendor="ep-sdk",
    auto=False,
    options={
        "capacity": OptionSpec(2**31, "memory of the device, in bytes", as_bytes),
        "alignment": OptionSpec(
            256, "bytes that every allocation is rounded up to", as_int(1, 2**20)
        ),
        "kernel_latency_us": OptionSpec(0, "microseconds that every kernel takes", _MICROSECONDS),
        "copy_latency_us": OptionSpec(0, "microseconds that every copy takes", _MICROSECONDS),
        "fail_allocation_at": OptionSpec(0, "number of the allocation to fail, 0 for none", _COUNT),
        "fail_copy_at": OptionSpec(0, "number of the copy to fail, 0 for none", _COUNT),
        "fail_kernel_at": OptionSpec(0, "number of the kernel launch to fail, 0 for none", _COUNT),
        "lose_device_at": OptionSpec(
            0, "number of the kernel launch at which the device is lost, 0 for never", _COUNT
        ),
        "skip": OptionSpec(frozenset(), "operators that are not claimed", as_names),
        "fail_compile": OptionSpec(
            frozenset(), "operators that compile refuses, or 'always'", as_names
        ),
        "fail_capability": OptionSpec(False, "break the contract: get_capability raises", as_bool),
    },
)


def _list_devices() -> Sequence[DeviceInfo]:
    return [
        DeviceInfo(
            provider=INFO.name,
            id=number,
            kind="simulated",
            vendor=INFO.vendor,
            name=f"Simulated accelerator {number}",
            memory_bytes=INFO.options["capacity"].default,
            fingerprint=f"simulator-{INFO.version}",
        )
        for number in ("0", "1")
    ]


def _open(info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
    from ep_sdk.simulator.provider import SimulatorProvider

    return SimulatorProvider(info, device, options)


@hookimpl
def ep_provider_factory() -> ProviderFactory:
    """The simulator's factory."""
    return StandardFactory(INFO, _list_devices, _open)
