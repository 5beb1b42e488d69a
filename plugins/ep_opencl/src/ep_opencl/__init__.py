"""The OpenCL execution provider: kernels for any device with an OpenCL 1.2 driver.

This module only announces the provider; pyopencl is imported when its devices are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
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
from ep_sdk.device_kernels.options import OPTIONS as KERNEL_OPTIONS
from ep_sdk.factory import StandardFactory
from ep_sdk.options import as_bytes

__all__ = ["INFO", "ep_provider_factory"]

INFO = ProviderInfo(
    name="opencl",
    version=version("ep-opencl"),
    api_version=API_VERSION,
    aliases=("OpenCLExecutionProvider",),
    vendor="ep",
    auto=False,
    options={
        "capacity": OptionSpec(
            0, "bytes of the device's memory to use at most, 0 for all", as_bytes, artifacts=False
        ),
        **KERNEL_OPTIONS,
    },
)


def _list_devices() -> Sequence[DeviceInfo]:
    from ep_opencl.devices import list_devices

    return list_devices()


def _open(info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
    from ep_opencl.provider import OpenCLProvider

    return OpenCLProvider(info, device, options)


@hookimpl
def ep_provider_factory() -> ProviderFactory:
    """The factory of the OpenCL provider."""
    return StandardFactory(INFO, _list_devices, _open)
