"""Who the TensorRT provider is; nothing here imports TensorRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from ep_core.contracts import API_VERSION, ExecutionProvider, ProviderFactory, ProviderInfo
from ep_core.types import DeviceInfo
from ep_sdk.factory import StandardFactory
from ep_tensorrt.options import OPTIONS

__all__ = ["make_factory"]


def make_factory() -> ProviderFactory:
    """Return the factory; cheap."""
    info = ProviderInfo(
        name="tensorrt",
        version=version("ep-tensorrt"),
        api_version=API_VERSION,
        aliases=("TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider"),
        vendor="ep",
        options=OPTIONS,
    )
    return StandardFactory(info, _devices, _open)


def _devices() -> Sequence[DeviceInfo]:
    from ep_tensorrt.devices import list_devices

    return list_devices()


def _open(info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
    from ep_tensorrt.provider import TensorRtProvider

    return TensorRtProvider(info, device, options)
