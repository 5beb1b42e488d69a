"""The CUDA execution provider: kernels for NVIDIA GPUs, through pycuda and NVRTC.

This module only announces the provider; vendor libraries are loaded when devices are listed.
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
from ep_sdk.options import as_bytes, as_choice

__all__ = ["INFO", "ep_provider_factory"]

INFO = ProviderInfo(
    name="cuda",
    version=version("ep-cuda"),
    api_version=API_VERSION,
    aliases=("CUDAExecutionProvider",),
    vendor="ep",
    auto=False,
    options={
        "gpu_mem_limit": OptionSpec(
            0, "bytes of the device's memory to use at most, 0 for all", as_bytes, artifacts=False
        ),
        "arena_extend_strategy": OptionSpec(
            "kSameAsRequested",
            "kSameAsRequested asks the device for little more than is needed, kNextPowerOfTwo for "
            "the next power of two, which serves shapes that vary",
            as_choice("kSameAsRequested", "kNextPowerOfTwo"),
            artifacts=False,
        ),
        **KERNEL_OPTIONS,
    },
)


def _list_devices() -> Sequence[DeviceInfo]:
    from ep_cuda.needs import check_needs

    check_needs()
    from ep_cuda.devices import list_devices

    return list_devices()


def _open(info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
    from ep_cuda.provider import CudaProvider

    return CudaProvider(info, device, options)


@hookimpl
def ep_provider_factory() -> ProviderFactory:
    """The factory of the CUDA provider."""
    return StandardFactory(INFO, _list_devices, _open)
