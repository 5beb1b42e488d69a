"""Options of providers: parsing what a caller gives, and choosing the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ep_core.contracts import ProviderInfo
from ep_core.errors import OptionError, did_you_mean
from ep_core.types import DeviceInfo

_DEVICE_OPTIONS = ("device_id", "device")


def parse_options(info: ProviderInfo, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a value for every option of a provider: what was given, parsed, or the default.

    Raises:
        OptionError: an unknown option, or a value that the option's `parse` refuses.
    """
    given = _mapping(info, given)
    for key in given:
        if key not in info.options:
            raise OptionError(
                f"provider {info.name!r} has no option {key!r}",
                fix=did_you_mean(str(key), [*info.options, *_DEVICE_OPTIONS]),
            )
    options = {}
    for key, spec in info.options.items():
        if key not in given:
            options[key] = spec.default
            continue
        try:
            options[key] = spec.parse(given[key])
        except Exception as error:
            raise OptionError(
                f"option {key!r} of provider {info.name!r} can't be {given[key]!r}: {error}",
                fix=f"It is: {spec.doc}.",
            ) from error
    return options


def select_device(
    info: ProviderInfo, devices: Sequence[DeviceInfo], options: Mapping[str, Any] | None
) -> tuple[DeviceInfo, dict[str, Any]]:
    """Split a choice of device off the options; without one it is the first device.

    `device_id` and `device` mean the same and are compared with `DeviceInfo.id` as text. A
    provider that declares an option of that name gets it itself.

    Raises:
        OptionError: no device has that id, or the two names contradict each other.
    """
    rest = dict(_mapping(info, options))
    wanted = [str(rest.pop(k)) for k in _DEVICE_OPTIONS if k in rest and k not in info.options]
    if not wanted:
        return devices[0], rest
    for device in devices:
        if all(device.id == text for text in wanted):
            return device, rest
    raise OptionError(
        f"provider {info.name!r} has no such device",
        expected="one of " + ", ".join(f"{d.id!r} ({d.name or d.kind})" for d in devices),
        got=" and ".join(map(repr, wanted)),
    )


def _mapping(info: ProviderInfo, options: object) -> Mapping[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise OptionError(
            f"options of provider {info.name!r}", expected="a dict", got=type(options).__name__
        )
    return options
