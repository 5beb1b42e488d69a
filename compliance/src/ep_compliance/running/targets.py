"""Finds what a caller names: an installed provider, one of its devices, its options.

Loads the provider; what is then done with it is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from ep_compliance.running.jobs import Target
from ep_core.discovery.options import parse_options, select_device
from ep_core.discovery.registry import registry
from ep_core.types import DeviceInfo

__all__ = ["find_target"]


def find_target(
    provider: str, device_id: str, options: Mapping[str, str]
) -> tuple[Target, DeviceInfo]:
    """Return the target and the device that is meant by it.

    Args:
        device_id: empty for the provider's first device.
        options: as a caller has them; the device is no option here.

    Raises:
        ProviderNotFoundError, ProviderUnavailableError: the provider can't be used.
        OptionError: an unknown option or device, or a wrong value.
    """
    status = registry().status(provider)
    factory = registry().factory(provider)
    wanted = {"device_id": device_id} if device_id else {}
    device, _ = select_device(factory.info, status.devices, wanted)
    parse_options(factory.info, options)
    return Target(factory.info.name, device_id, options), device
