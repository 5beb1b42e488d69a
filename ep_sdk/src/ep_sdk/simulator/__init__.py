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
from ep_core.errors import ContractError
from ep_core.hookspecs import hookimpl
from ep_core.types import DeviceInfo, DeviceSpeed
from ep_sdk.factory import StandardFactory
from ep_sdk.options import as_bool, as_bytes, as_int, as_names

__all__ = ["INFO", "ep_provider_factory"]

_MICROSECONDS = as_int(0, 60_000_000)

# Latencies and faults change when something happens, not what is compiled: artifacts don't depend
# on them.


def _latency(of: str) -> OptionSpec:
    return OptionSpec(0, f"microseconds that {of} takes", _MICROSECONDS, artifacts=False)


def _fault(of: str, never: str = "none") -> OptionSpec:
    return OptionSpec(0, f"number of the {of}, 0 for {never}", as_int(0), artifacts=False)


def _names(of: str) -> OptionSpec:
    return OptionSpec(frozenset(), of, as_names, artifacts=False)


def _switch(of: str) -> OptionSpec:
    return OptionSpec(False, of, as_bool, artifacts=False)


def _as_speed(value: Any) -> DeviceSpeed | None:
    """Parse the six numbers of a DeviceSpeed, in its order, with commas between; empty for none."""
    if value is None or isinstance(value, DeviceSpeed):
        return value
    try:
        return DeviceSpeed(*map(float, value.split(","))) if value else None
    except (AttributeError, TypeError, ValueError, ContractError):
        expected = "six numbers such as 1e12,1e11,1e-5,1e-4,1e-4,1e10"
        raise ValueError(f"expected {expected}, got {value!r}") from None


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
        "compile_latency_us": _latency("compiling one node"),
        "kernel_latency_us": _latency("every kernel"),
        "copy_latency_us": _latency("every copy"),
        "pageable_latency_us": OptionSpec(
            0,
            "microseconds for which the host waits in a copy on a stream whose host memory isn't "
            "pinned",
            _MICROSECONDS,
            artifacts=False,
        ),
        "pinned_capacity": OptionSpec(
            2**31, "page-locked host memory, in bytes", as_bytes, artifacts=False
        ),
        "overlap": OptionSpec(True, "copies go on beside kernels", as_bool, artifacts=False),
        "speed": OptionSpec(
            None,
            "what the device declares of itself: operations and bytes in a second, seconds of an "
            "operator, a partition and a copy, bytes copied in a second; with commas between",
            _as_speed,
            artifacts=False,
        ),
        "fail_allocation_at": _fault("allocation to fail"),
        "fail_copy_at": _fault("copy to fail"),
        "fail_kernel_at": _fault("kernel launch to fail"),
        "lose_device_at": _fault("kernel launch at which the device is lost", "never"),
        "skip": _names("operators that are not claimed"),
        "fail_compile": _names("operators that compile refuses, or 'always'"),
        "fail_capability": _switch("break the contract: get_capability raises"),
        "fail_export": _switch("refuse to export partitions"),
        "fail_import": _switch("refuse to import artifacts"),
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
            dlpack_device=(12, int(number)),
        )
        for number in ("0", "1")
    ]


def _open(info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
    from ep_sdk.simulator.provider import OneStreamSimulator, SimulatorProvider

    kind = SimulatorProvider if options["overlap"] else OneStreamSimulator
    return kind(info, device, options)


@hookimpl
def ep_provider_factory() -> ProviderFactory:
    """The simulator's factory."""
    return StandardFactory(INFO, _list_devices, _open)
