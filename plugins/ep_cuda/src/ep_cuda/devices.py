"""Which CUDA devices there are, and what is known of each; opens none of them for work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pycuda.driver as drv

from ep_core.errors import ProviderUnavailableError
from ep_core.types import DeviceInfo, DeviceSpeed
from ep_cuda.context import FORKED, initialize, is_forked
from ep_cuda.needs import find_nvrtc
from ep_cuda.nvrtc import Nvrtc, target_for

__all__ = ["DLPACK_CUDA", "FoundDevice", "compiler", "find_devices", "list_devices"]

DLPACK_CUDA = 2
"""The number of CUDA's memory in DLPack."""

_LANES = {7: 64, 8: 128, 9: 128, 10: 128, 12: 128}
"""Multiplications and additions of 32-bit floats that a multiprocessor starts per cycle, by major
compute capability; from the vendor's table of arithmetic throughput. 8.0 has 64."""

_TYPICAL_KILOHERTZ = 1_500_000
_TYPICAL_BYTES_PER_SECOND = 3e11
"""Taken for devices that don't tell."""


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device with what the provider tells of it.

    Attributes:
        number: in the driver's order.
        target: what programs are compiled for; see `nvrtc.target_for`.
        build_key: what compiled programs are good for.
    """

    info: DeviceInfo
    number: int
    target: str
    build_key: str


@cache
def compiler() -> Nvrtc:
    """The library of NVRTC, loaded once.

    Raises:
        ProviderUnavailableError: it isn't there, can't be loaded, or is too old.
    """
    library = find_nvrtc()
    if library is None:
        raise ProviderUnavailableError("NVRTC isn't there: 'pip install ep-cuda[nvrtc]' brings it")
    return Nvrtc(library)


def list_devices() -> Sequence[DeviceInfo]:
    """Describe every usable device, in the driver's order.

    Raises:
        ProviderUnavailableError: there is none, with what to do.
    """
    return [found.info for found in find_devices()]


def find_devices() -> list[FoundDevice]:
    """Find every usable device; see `list_devices` for errors."""
    if is_forked():
        raise ProviderUnavailableError(
            FORKED,
            fix="Start processes with the method 'spawn', and open sessions in each of them.",
        )
    try:
        initialize()
        return _find_usable()
    except drv.Error as error:
        raise ProviderUnavailableError(
            f"NVIDIA's driver finds no device that it can use: {error}",
            fix="See whether 'nvidia-smi' lists the GPU.",
        ) from error


def _find_usable() -> list[FoundDevice]:
    _check_versions(drv.get_driver_version(), compiler().version())
    architectures = compiler().architectures()
    found: list[FoundDevice] = []
    unusable: list[str] = []
    for number in range(drv.Device.count()):
        device = drv.Device(number)
        capability = _capability(device)
        target = target_for(capability, architectures)
        if target is None:
            unusable.append(
                f"{device.name()} has compute capability {_dotted(capability)}, "
                f"older than what NVRTC {_dotted(compiler().version())} compiles for"
            )
        else:
            found.append(_describe(device, number, capability, target))
    if not found:
        raise ProviderUnavailableError("; ".join(unusable) or "NVIDIA's driver has no device")
    return found


def _capability(device: drv.Device) -> tuple[int, int]:
    attribute = drv.device_attribute
    major: int = device.get_attribute(attribute.COMPUTE_CAPABILITY_MAJOR)
    minor: int = device.get_attribute(attribute.COMPUTE_CAPABILITY_MINOR)
    return major, minor


def _check_versions(driver: int, nvrtc: tuple[int, int]) -> None:
    """Code of one major version of CUDA runs on all drivers of that version, and on later ones."""
    if driver // 1000 < nvrtc[0]:
        raise ProviderUnavailableError(
            f"NVIDIA's driver is too old: it knows CUDA {_cuda_version(driver)}, "
            f"and NVRTC is of CUDA {_dotted(nvrtc)}",
            fix="Update the driver, or install nvidia-cuda-nvrtc-cu12.",
        )


def _describe(
    device: drv.Device, number: int, capability: tuple[int, int], target: str
) -> FoundDevice:
    attribute = drv.device_attribute
    driver = _cuda_version(drv.get_driver_version())
    nvrtc = _dotted(compiler().version())
    chip = f"sm_{capability[0]}{capability[1]}"
    info = DeviceInfo(
        provider="cuda",
        id=str(number),
        kind="gpu",
        vendor="NVIDIA",
        name=device.name(),
        memory_bytes=device.total_memory(),
        fingerprint=f"{chip}; driver of CUDA {driver.split('.')[0]}; NVRTC {nvrtc}",
        properties={
            "compute capability": _dotted(capability),
            "driver": f"CUDA {driver}",
            "NVRTC": nvrtc,
            "compiled for": target,
            "multiprocessors": str(device.get_attribute(attribute.MULTIPROCESSOR_COUNT)),
            "warp": str(device.get_attribute(attribute.WARP_SIZE)),
            "PCI bus": device.pci_bus_id(),
        },
        speed=_speed(device, capability),
        dlpack_device=(DLPACK_CUDA, number),
    )
    build_key = f"{target}; driver {driver}; NVRTC {nvrtc}"
    return FoundDevice(info, number, target, build_key)


def _speed(device: drv.Device, capability: tuple[int, int]) -> DeviceSpeed:
    """Peaks, from what the driver tells of units, clocks and bus; no operator has been measured."""
    attribute = drv.device_attribute
    lanes = 64 if capability == (8, 0) else _LANES.get(capability[0], 128)
    kilohertz = _told(device, attribute.CLOCK_RATE) or _TYPICAL_KILOHERTZ
    units = _told(device, attribute.MULTIPROCESSOR_COUNT)
    memory_kilohertz = _told(device, attribute.MEMORY_CLOCK_RATE)
    bus_bits = _told(device, attribute.GLOBAL_MEMORY_BUS_WIDTH)
    # Memory sends twice in a cycle.
    bytes_per_second = memory_kilohertz * 1e3 * 2 * bus_bits / 8
    return DeviceSpeed(
        flops_per_second=max(units, 1) * lanes * 2 * kilohertz * 1e3,
        bytes_per_second=bytes_per_second or _TYPICAL_BYTES_PER_SECOND,
        operator_seconds=1e-5,
        partition_seconds=5e-5,
        copy_seconds=3e-5,
        copy_bytes_per_second=1e10,
    )


def _told(device: drv.Device, attribute: drv.device_attribute) -> int:
    """A number of the device's, 0 where the driver doesn't tell it."""
    try:
        number: int = device.get_attribute(attribute)
    except drv.Error:
        return 0
    return number


def _cuda_version(number: int) -> str:
    """`13.0` for 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
