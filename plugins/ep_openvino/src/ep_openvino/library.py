"""The OpenVINO library: importing it, its one `Core`, its version, and its errors in our words.

Nothing here knows graphs or claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ep_core.errors import (
    AllocationError,
    DeviceLostError,
    EpError,
    ProviderUnavailableError,
)

__all__ = ["OLDEST", "message_of", "open_core", "property_modes", "release_of", "translated"]

OLDEST = (2026, 4)
"""The oldest release of OpenVINO whose behaviour was looked at."""

_NO_MEMORY = (
    "bad_alloc",
    "out of memory",
    "cannot allocate memory",
    "cl_mem_object_allocation_failure",
    "cl_out_of_host_memory",
    "cl_out_of_resources",
    "exceeded max size of memory",
    "ze_result_error_out_of",
)
_LOST = (
    "cl_device_not_available",
    "device lost",
    "device is lost",
    "device_lost",
    "ze_result_error_device_lost",
)


@cache
def open_core() -> Any:
    """Return the process's `openvino.Core`, which loads the plugins of devices when asked.

    Raises:
        ProviderUnavailableError: OpenVINO is missing, broken or too old.
    """
    try:
        import openvino
    except ImportError as error:
        raise ProviderUnavailableError(
            f"OpenVINO can't be imported: {error}",
            fix="Install it with: pip install openvino",
        ) from error
    found = release_of(openvino.__version__)
    if found < OLDEST:
        raise ProviderUnavailableError(
            "OpenVINO is too old",
            expected=f"{OLDEST[0]}.{OLDEST[1]} or newer",
            got=openvino.__version__,
            fix="Update it with: pip install --upgrade openvino",
        )
    return openvino.Core()


@cache
def property_modes(core: Any, device: str) -> Mapping[str, str]:
    """Return the properties that a device has: `RO`, `RW` or `WO` by name.

    Asked once, as each answer of OpenVINO's binding leaves some kilobytes behind.

    Raises:
        RuntimeError: as OpenVINO does where the device isn't there.
    """
    listed = core.get_property(device, "SUPPORTED_PROPERTIES")
    return {str(name): str(mode) for name, mode in dict(listed).items()}


def release_of(version: str) -> tuple[int, int]:
    """Year and number of a release: (2026, 4) of `2026.4.0-22959-...`; (0, 0) of anything else."""
    parts = version.split("-", 1)[0].split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return 0, 0


def message_of(error: BaseException) -> str:
    """What OpenVINO says, in one line: its report of source files and checks left out."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(_NOISE)]
    text = " ".join(told) or " ".join(line for line in lines if line)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


_LONGEST = 400
_NOISE = (
    "Exception from src",
    "Check '",
    "FrontEnd API failed",
    "Model wasn't fully converted",
    "Summary:",
    "While validating ONNX node",
    "While validating node",
    "To facilitate the conversion",
    "Encountered unconverted operation",
    "-- Conversion is failed for",
)


def translated(error: Exception, what: str, otherwise: type[EpError]) -> EpError:
    """Return the error to raise in place of one of OpenVINO's.

    Args:
        what: what failed, as the beginning of a sentence.
        otherwise: the type, unless the message tells of lost devices or exhausted memory.
    """
    if isinstance(error, EpError):
        return error
    text = str(error).lower()
    told = f"{what}: {type(error).__name__}: {message_of(error)}"
    if any(word in text for word in _LOST):
        return DeviceLostError(told, fix="Open a new session, or choose another device.")
    if isinstance(error, MemoryError) or any(word in text for word in _NO_MEMORY):
        return AllocationError(told, fix="Use smaller inputs or batches, or another device.")
    return otherwise(told)
