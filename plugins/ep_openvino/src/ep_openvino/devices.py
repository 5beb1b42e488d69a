"""The devices of OpenVINO on this machine, each described by what it says of itself.

AUTO, HETERO and MULTI aren't listed: they are ways to use these devices, chosen by the option
`target`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ep_core.cores import usable_cores
from ep_core.errors import ProviderUnavailableError
from ep_core.types import DeviceInfo, DeviceSpeed
from ep_openvino.cpu_facts import cpu_speed, instruction_set
from ep_openvino.library import message_of, open_core, property_modes, release_of
from ep_sdk.processor import architecture, processor_facts

__all__ = ["NAME", "describe", "list_devices"]

NAME = "openvino"
_NOTHING_FOUND = "OpenVINO {version} found no device: not even its CPU plugin loads"

# What starting an operator and a partition takes, in seconds, and bytes per second where nothing
# tells: integrated devices share the host's memory, others have faster memory of their own.
_START = {"GPU": (5e-6, 5e-5), "NPU": (5e-6, 1e-4)}
_SHARED_BYTES, _OWN_BYTES = 5e10, 3e11


def list_devices() -> Sequence[DeviceInfo]:
    """Return the devices that OpenVINO can use now, in its own order.

    Raises:
        ProviderUnavailableError: OpenVINO is missing or too old, or has no device.
    """
    core = open_core()
    version = _version()
    try:
        names = list(core.available_devices)
    except RuntimeError as error:
        raise ProviderUnavailableError(
            f"OpenVINO {version} can't list devices: {message_of(error)}"
        ) from error
    if not names:
        raise ProviderUnavailableError(
            _NOTHING_FOUND.format(version=version), fix="Install it anew: pip install openvino"
        )
    return [describe(core, name, version) for name in names]


def describe(core: Any, name: str, version: str) -> DeviceInfo:
    """Describe one device.

    Args:
        name: OpenVINO's name of it, such as `CPU` or `GPU.1`; the device's id here too.
        version: of OpenVINO, as a text.
    """
    known = _Properties(core, name)
    kind = name.partition(".")[0]
    year, number = release_of(version)
    runtime = f"openvino {year}.{number}"
    properties = {
        "openvino": version,
        "capabilities": ", ".join(map(str, known.get("OPTIMIZATION_CAPABILITIES", ()))),
    }
    speed: DeviceSpeed | None
    if kind == "CPU":
        instructions = instruction_set(processor_facts()["flags"])
        fingerprint = "; ".join(filter(None, (architecture(), instructions, runtime)))
        properties["instructions"] = instructions
        (memory, speed) = (0, cpu_speed(usable_cores()))
    else:
        chip = str(known.get("DEVICE_ARCHITECTURE", "")) or str(known.get("FULL_DEVICE_NAME", name))
        driver = str(known.get(f"{kind}_DRIVER_VERSION", ""))
        fingerprint = "; ".join(filter(None, (kind, chip, driver and f"driver {driver}", runtime)))
        properties["driver"] = driver
        memory = int(known.get(f"{kind}_DEVICE_TOTAL_MEM_SIZE", 0))
        speed = _speed(known, kind)
    return DeviceInfo(
        provider=NAME,
        id=name,
        kind=kind.lower(),
        vendor=_vendor(str(known.get("FULL_DEVICE_NAME", ""))),
        name=str(known.get("FULL_DEVICE_NAME", name)),
        memory_bytes=memory,
        fingerprint=fingerprint,
        properties={key: value for key, value in properties.items() if value},
        speed=speed,
    )


class _Properties:
    """A device's own properties; one that it can't tell counts as absent."""

    def __init__(self, core: Any, device: str) -> None:
        self._core = core
        self._device = device
        try:
            self._known = frozenset(property_modes(core, device))
        except RuntimeError:
            self._known = frozenset[str]()

    def get(self, name: str, otherwise: Any) -> Any:
        if name not in self._known:
            return otherwise
        try:
            return self._core.get_property(self._device, name)
        except (RuntimeError, TypeError):
            return otherwise


def _vendor(name: str) -> str:
    return next((word for word in ("Intel", "AMD", "ARM", "Apple") if word in name), "")


def _speed(known: _Properties, kind: str) -> DeviceSpeed | None:
    """Of an accelerator: operations per second by its `DEVICE_GOPS`; None without that."""
    rates = {str(key): float(rate) for key, rate in dict(known.get("DEVICE_GOPS", {})).items()}
    best = max((rate for key, rate in rates.items() if "f32" in key or "float32" in key), default=0)
    best = best or max((rate for key, rate in rates.items() if "16" in key), default=0)
    if not best:
        return None
    own_memory = "DISCRETE" in str(known.get("DEVICE_TYPE", ""))
    operator, partition = _START.get(kind, _START["GPU"])
    return DeviceSpeed(best * 1e9, _OWN_BYTES if own_memory else _SHARED_BYTES, operator, partition)


def _version() -> str:
    import openvino

    return str(openvino.__version__).split("-", 1)[0]
