"""NVIDIA's GPUs on this machine, and the target that engines are built for without one.

Without a GPU there is a device only where the variable `EP_TENSORRT_TARGET` names one. It has the
number 0 and the fingerprint of a GPU of that kind, so that a session there finds the engines.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Sequence

from ep_core.errors import ProviderUnavailableError, did_you_mean
from ep_core.types import DeviceInfo, DeviceSpeed
from ep_tensorrt.library import Library, open_library

__all__ = ["BUILD_ONLY", "NAME", "TARGET_VARIABLE", "list_devices"]

NAME = "tensorrt"
TARGET_VARIABLE = "EP_TENSORRT_TARGET"
BUILD_ONLY = "build only"
"""A property of a device that isn't there: engines are built for it, and not run."""

_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

_SPEED = DeviceSpeed(
    flops_per_second=2e13,
    bytes_per_second=4e11,
    operator_seconds=3e-6,
    partition_seconds=1e-4,
    copy_seconds=3e-5,
)
"""Of a middling GPU; nothing has been measured."""


def list_devices() -> Sequence[DeviceInfo]:
    """Return the GPUs in the driver's order, or the target that is named.

    Raises:
        ProviderUnavailableError: a library or the driver is missing, or there is no GPU.
    """
    library = open_library()
    target = os.environ.get(TARGET_VARIABLE)
    if target:
        return [_target(library, target)]
    missing = _missing()
    if missing:
        raise ProviderUnavailableError(
            "; ".join(missing),
            fix=f"To build engines without a GPU, set {TARGET_VARIABLE}, for example to sm_89."
            if library.builds_anywhere
            else None,
        )
    return _gpus(library)


def _missing() -> list[str]:
    found = []
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        found.append(f"no NVIDIA driver ({_DRIVER} can't be loaded)")
    if importlib.util.find_spec("pycuda") is None:
        found.append("pycuda isn't installed")
    return found


def _target(library: Library, target: str) -> DeviceInfo:
    if not library.builds_anywhere:
        raise ProviderUnavailableError(
            f"{library.name} builds engines only on the GPU that they are for",
            fix=f"Unset {TARGET_VARIABLE}, or install TensorRT-RTX.",
        )
    if target not in library.targets:
        raise ProviderUnavailableError(
            f"{TARGET_VARIABLE} names no target of {library.name} {library.version}",
            expected=f"one of {', '.join(library.targets)}",
            got=target,
            fix=did_you_mean(target, library.targets),
        )
    return _describe(library, "0", target, f"a GPU of {target}", 0, {BUILD_ONLY: "yes"})


def _gpus(library: Library) -> list[DeviceInfo]:
    import pycuda.driver as drv

    try:
        drv.init()
        devices = [drv.Device(number) for number in range(drv.Device.count())]
    except drv.Error as error:
        raise ProviderUnavailableError(f"NVIDIA's driver has no usable GPU: {error}") from error
    driver = f"CUDA {drv.get_driver_version() // 1000}"
    found = []
    for number, device in enumerate(devices):
        major, minor = device.compute_capability()
        chip = f"sm_{major}{minor}"
        told = {"driver": driver}
        found.append(
            _describe(library, str(number), chip, device.name(), device.total_memory(), told)
        )
    return found


def _describe(
    library: Library, number: str, chip: str, name: str, memory: int, properties: dict[str, str]
) -> DeviceInfo:
    parts = [chip, f"{library.name} {library.version}"]
    if not library.builds_anywhere:
        # Engines of TensorRT-RTX become programs on the machine that runs them; others are bound.
        parts += [name, properties["driver"]]
    return DeviceInfo(
        provider=NAME,
        id=number,
        kind="gpu",
        vendor="NVIDIA",
        name=name,
        memory_bytes=memory,
        fingerprint="; ".join(parts),
        properties={**properties, "compute capability": chip},
        speed=_SPEED,
    )
