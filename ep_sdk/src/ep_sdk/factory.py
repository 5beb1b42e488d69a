"""A provider factory from three parts: who the provider is, its devices, how to open one.

Nothing here imports a vendor's library; that happens inside the function that lists devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ep_core.contracts import ExecutionProvider, ProviderInfo
from ep_core.errors import EpError, ProviderError, ProviderUnavailableError, did_you_mean
from ep_core.types import DeviceInfo

__all__ = ["OpenProvider", "StandardFactory"]

OpenProvider = Callable[[ProviderInfo, DeviceInfo, Mapping[str, Any]], ExecutionProvider]
"""Opens a device: a provider class derived from `ProviderBase`, or a function that imports one."""


class StandardFactory:
    """Meets `ep_core.contracts.ProviderFactory`.

    Args:
        info: who the provider is.
        list_devices: returns the devices that can be used now. It imports the vendor's library,
            and says why there is no device by raising ProviderUnavailableError with a sentence
            for a person. ImportError and OSError, which a missing library or driver gives, are
            understood too; any other exception is a bug and is passed on.
        open_provider: opens one of those devices.
    """

    def __init__(
        self,
        info: ProviderInfo,
        list_devices: Callable[[], Sequence[DeviceInfo]],
        open_provider: OpenProvider,
    ) -> None:
        self._info = info
        self._list_devices = list_devices
        self._open_provider = open_provider

    @property
    def info(self) -> ProviderInfo:
        """Who the provider is."""
        return self._info

    def devices(self) -> Sequence[DeviceInfo]:
        """The devices that can be used now; empty if `why_unavailable` has a reason."""
        return self._probe()[0]

    def why_unavailable(self) -> str | None:
        """Why there is no device, as a sentence for a person; None if there is one."""
        return self._probe()[1]

    def create(self, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
        """Open a device.

        Args:
            device: one of `devices()`.
            options: every option of `info.options`, parsed.

        Raises:
            ProviderUnavailableError: the device isn't there, or not any more.
            ProviderError: opening it failed.
        """
        devices, reason = self._probe()
        known = [found.id for found in devices]
        if device.provider != self._info.name or device.id not in known:
            raise ProviderUnavailableError(
                f"provider {self._info.name!r} has no device {device.id!r} of {device.provider!r}",
                fix=reason or did_you_mean(device.id, known),
            )
        try:
            return self._open_provider(self._info, device, options)
        except EpError:
            raise
        except Exception as error:
            raise ProviderError(
                f"provider {self._info.name!r} can't open device {device.id!r}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _probe(self) -> tuple[Sequence[DeviceInfo], str | None]:
        try:
            found = tuple(self._list_devices())
        except ProviderUnavailableError as error:
            return (), str(error)
        except ImportError as error:
            return (), f"a library that {self._info.name!r} needs can't be imported: {error}"
        except OSError as error:
            return (), f"a driver or library that {self._info.name!r} needs failed: {error}"
        return found, None if found else f"{self._info.name!r} found no device on this machine"
