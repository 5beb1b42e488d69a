"""Who the OpenVINO provider is; nothing here imports OpenVINO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from ep_core.contracts import API_VERSION, ExecutionProvider, ProviderFactory, ProviderInfo
from ep_core.types import DeviceInfo
from ep_openvino.options import OPTIONS
from ep_sdk.factory import StandardFactory

__all__ = ["make_factory"]


def make_factory() -> ProviderFactory:
    """Return the factory; cheap."""
    info = ProviderInfo(
        name="openvino",
        version=version("ep-openvino"),
        api_version=API_VERSION,
        aliases=("OpenVINOExecutionProvider",),
        vendor="ep",
        options=OPTIONS,
    )
    return StandardFactory(info, _devices, _open)


def _devices() -> Sequence[DeviceInfo]:
    from ep_openvino.devices import list_devices

    return list_devices()


def _open(info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
    from ep_openvino.provider import OpenVinoProvider

    return OpenVinoProvider(info, device, options)
