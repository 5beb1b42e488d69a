"""Which OpenCL devices there are, and what is known of each; opens none of them for work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyopencl as cl

from ep_core.cores import usable_cores
from ep_core.errors import ProviderUnavailableError
from ep_core.types import DeviceInfo, DeviceSpeed
from ep_core.values.dlpack import HOST_DEVICE
from ep_opencl.processor import instruction_set, short_hash
from ep_opencl.runtimes import FORKED, find_drivers, is_forked, name_problems
from ep_opencl.trying import compiler_failure
from ep_sdk.processor import architecture, processor_facts

__all__ = ["FoundDevice", "find_devices", "list_devices"]

_INSTALL = (
    "install the driver of your GPU; for a processor, 'pip install ep-opencl[cpu-runtime]' brings "
    "Intel's on x86-64, and Linux distributions have PoCL (pocl-opencl-icd)"
)

_PLATFORMS = (
    ("intel", "intel"),
    ("nvidia", "nvidia"),
    ("amd", "amd"),
    ("portable computing language", "pocl"),
    ("rusticl", "rusticl"),
    ("apple", "apple"),
    ("qualcomm", "qualcomm"),
    ("arm", "arm"),
)

_LANES = {"nvidia": 128, "amd": 64, "apple": 128, "intel": 8, "rusticl": 64}
"""Multiplications and additions of 32-bit floats that a compute unit of a GPU starts per cycle."""

_TYPICAL_MHZ = 2000
"""Taken for devices that don't tell their clock."""

# What follows is of processors, measured on two cores of an AMD EPYC 9004 (2.6 GHz nominal,
# AVX-512) with Intel's driver 2026.2 and PoCL. Other programs used the cores too: times are of the
# least disturbed runs, next to what other providers took in the same rounds.
_PROCESSOR_EFFICIENCY = 0.4
"""Of the peak, one vector unit a core: ResNet-50 had 45 GFLOP/s, 0.27 of it. OpenVINO had 101 in
the same rounds, of the 166 that it declares; scaled likewise it is 0.44. A product of 1024 x 1024
has twice to three times as much as ResNet-50, and 180 GFLOP/s on a quiet machine."""
_PROCESSOR_BYTES_PER_SECOND = 1e10
"""An addition and a copy of 64 MiB had 18 to 24 GB/s, on one core as on two. The CPU provider
declares this for the same memory, though its plain arithmetic has as much; a greater figure here
would promise a gain from moving operators over that isn't there."""
_PROCESSOR_OPERATOR_SECONDS = 2e-5
"""A launch alone took 2 to 6 microseconds in a chain of them; with what prepares it on the host,
Softmax of 64 elements took 25 (Intel) and 38 (PoCL), where the CPU provider took 8 and declares 5.
"""
_PROCESSOR_PARTITION_SECONDS = 8e-5
"""One Softmax and its copies took 190 to 210 microseconds, 125 to 140 more than with the CPU
provider; the operator and both copies are taken off."""
_PROCESSOR_COPY_SECONDS = 2e-5
"""Of 4 bytes, waited for: 5 to 7 microseconds by Intel's driver alone, 11 to 30 by PoCL."""
_PROCESSOR_COPY_BYTES_PER_SECOND = 1e10
"""14 to 29 GB/s for 1 MiB, 6 to 16 for 64 MiB."""


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device with what the provider tells of it.

    Attributes:
        build_key: what compiled programs and measured tiles are good for. It is finer than the
            fingerprint: code for one processor may hold instructions that another lacks.
    """

    info: DeviceInfo
    device: cl.Device
    build_key: str


def list_devices() -> Sequence[DeviceInfo]:
    """Describe every usable device, GPUs first.

    Raises:
        ProviderUnavailableError: there is none, with what to install.
    """
    return [found.info for found in find_devices()]


def find_devices() -> list[FoundDevice]:
    """Find every usable device, GPUs first; see `list_devices` for errors."""
    problems = find_drivers()
    if is_forked():
        raise ProviderUnavailableError(
            FORKED,
            fix="Start processes with the method 'spawn', and open sessions in each of them.",
        )
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        why = "; ".join(["no OpenCL driver is installed", *name_problems(), *problems])
        raise ProviderUnavailableError(f"{why}: {_INSTALL}") from error
    found: list[FoundDevice] = []
    unusable: list[str] = []
    counts: dict[str, int] = {}
    for platform in platforms:
        name = _short_name(platform.name)
        for device in _devices_of(platform):
            number = counts.setdefault(name, 0)
            counts[name] += 1
            reason = _why_unusable(device, name, number)
            if reason is None:
                info = _describe(device, name, f"{name}.{number}")
                found.append(FoundDevice(info, device, _build_key(device)))
            else:
                unusable.append(reason)
    if not found:
        unusable = unusable or ["the OpenCL drivers that are installed have no device"]
        why = "; ".join([*unusable, *problems])
        raise ProviderUnavailableError(f"{why}: {_INSTALL}")
    order = {"gpu": 0, "accelerator": 1, "cpu": 2}
    return sorted(found, key=lambda item: (order[item.info.kind], item.info.id))


def _devices_of(platform: cl.Platform) -> list[cl.Device]:
    try:
        return list(platform.get_devices())
    except cl.Error:
        # A driver whose hardware is missing says so by an error.
        return []


def _short_name(platform: str) -> str:
    lowered = platform.lower()
    for word, name in _PLATFORMS:
        if word in lowered:
            return name
    return re.sub(r"[^a-z0-9]+", "-", lowered).strip("-") or "platform"


def _why_unusable(device: cl.Device, platform: str, number: int) -> str | None:
    """The reason why kernels can't run on a device, None if they can."""
    if not device.available or not device.compiler_available:
        return f"{device.name.strip()} is not available, or its driver has no compiler"
    if _version(device) < (1, 2):
        return f"{device.name.strip()} has {device.version.strip()}, older than 1.2"
    if not device.endian_little:
        return f"{device.name.strip()} is big-endian"
    return _trial_failure(device, number) if platform == "pocl" else None


def _trial_failure(device: cl.Device, number: int) -> str | None:
    """PoCL brings a compiler of its own, which may be older than the processor."""
    why = compiler_failure(_build_key(device), device.platform.name, number)
    if why is None:
        return None
    return (
        f"{device.name.strip()}: this PoCL can't build kernels for it ({why}); "
        "the one of 'pyopencl[pocl]' doesn't know new processors"
    )


def _version(device: cl.Device) -> tuple[int, int]:
    match = re.search(r"(\d+)\.(\d+)", device.version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _kind(device: cl.Device) -> str:
    if device.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if device.type & cl.device_type.CPU else "accelerator"


def _fingerprint(device: cl.Device, platform: str) -> str:
    """What a certificate binds to: for processors their instructions, not their model."""
    driver = f"{platform} driver {device.driver_version.strip()}"
    if _kind(device) != "cpu":
        return f"{device.name.strip()}; {driver}"
    instructions = instruction_set(processor_facts()["flags"], device.native_vector_width_float)
    return f"{architecture()}; {instructions}; {driver}"


def _build_key(device: cl.Device) -> str:
    parts = [device.name.strip(), device.driver_version.strip(), device.version.strip()]
    if _kind(device) == "cpu":
        parts.append(short_hash(processor_facts()["flags"]))
    return "; ".join(parts)


def _describe(device: cl.Device, platform: str, number: str) -> DeviceInfo:
    name = device.name.strip()
    extensions = frozenset(device.extensions.split())
    version = ".".join(map(str, _version(device)))
    driver = device.driver_version.strip()
    return DeviceInfo(
        provider="opencl",
        id=number,
        kind=_kind(device),
        vendor=device.vendor.strip(),
        name=name,
        memory_bytes=device.global_mem_size,
        fingerprint=_fingerprint(device, platform),
        properties={
            "platform": device.platform.name.strip(),
            "driver": driver,
            "OpenCL": version,
            "compute units": str(device.max_compute_units),
            "largest buffer": str(device.max_mem_alloc_size),
            "local memory": str(device.local_mem_size),
            "shares memory with the host": _yes_no(bool(device.host_unified_memory)),
            "double": _yes_no("cl_khr_fp64" in extensions),
            "half": _yes_no("cl_khr_fp16" in extensions),
            "int8 dot products": _yes_no("cl_khr_integer_dot_product" in extensions),
            "subgroups": _yes_no(any("subgroups" in item for item in extensions)),
        },
        speed=_speed(device, platform),
        dlpack_device=HOST_DEVICE if _kind(device) == "cpu" else None,
    )


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _speed(device: cl.Device, platform: str) -> DeviceSpeed:
    """Rate from units, clock and width; bandwidth by kind, for no device tells it.

    A GPU's is its peak, a processor's what convolutions reach of it.
    """
    clock = (device.max_clock_frequency or _TYPICAL_MHZ) * 1e6
    if _kind(device) == "cpu":
        lanes = max(device.native_vector_width_float, 4)
        # PoCL counts cores that this process may not use.
        cores = min(device.max_compute_units, usable_cores())
        return DeviceSpeed(
            flops_per_second=cores * clock * lanes * 2 * _PROCESSOR_EFFICIENCY,
            bytes_per_second=_PROCESSOR_BYTES_PER_SECOND,
            operator_seconds=_PROCESSOR_OPERATOR_SECONDS,
            partition_seconds=_PROCESSOR_PARTITION_SECONDS,
            copy_seconds=_PROCESSOR_COPY_SECONDS,
            copy_bytes_per_second=_PROCESSOR_COPY_BYTES_PER_SECOND,
        )
    flops = device.max_compute_units * clock * _LANES.get(platform, 32) * 2
    if device.host_unified_memory:
        return DeviceSpeed(flops, 5e10, 1e-5, 5e-5, 2e-5, 1e10)
    return DeviceSpeed(flops, 3e11, 1e-5, 5e-5, 3e-5, 1e10)
