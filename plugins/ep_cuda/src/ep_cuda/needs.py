"""What must be installed before anything of CUDA can be asked: driver, pycuda, NVRTC.

Everything that is missing is told at once, in words. Only the standard library is used, so that
this works on machines without CUDA.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from ep_core.errors import ProviderUnavailableError

__all__ = ["NVRTC_VARIABLE", "check_needs", "find_nvrtc"]

NVRTC_VARIABLE = "EP_CUDA_NVRTC"
"""Names a library of NVRTC to be used instead of those that are found."""

_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
_NVRTC_FILE = re.compile(r"libnvrtc\.so\.\d+|nvrtc64_\d+_\d+\.dll")
_SYSTEM_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")

_BUILD_PYCUDA = (
    "pycuda isn't installed: build it with scripts/build_pycuda_wheel.py, which needs no CUDA "
    "toolkit, or with 'pip install ep-cuda[pycuda]' where the toolkit is"
)
_INSTALL_NVRTC = "NVRTC isn't there: 'pip install ep-cuda[nvrtc]' brings it"


def check_needs() -> None:
    """Return if all that must be installed is there.

    Raises:
        ProviderUnavailableError: something is missing, with what to do about each.
    """
    missing = [*_driver_problems(), *_pycuda_problems()]
    if find_nvrtc() is None:
        missing.append(_INSTALL_NVRTC)
    if missing:
        raise ProviderUnavailableError("; ".join(missing))


def _driver_problems() -> list[str]:
    try:
        ctypes.CDLL(_DRIVER)
    except OSError as error:
        absent = "no such file" in str(error).lower() or "not find" in str(error).lower()
        why = f"{_DRIVER} isn't there" if absent else str(error)
        return [f"no NVIDIA driver ({why}): install the driver of your GPU"]
    return []


def _pycuda_problems() -> list[str]:
    return [] if importlib.util.find_spec("pycuda") else [_BUILD_PYCUDA]


def find_nvrtc() -> str | None:
    """Return the path or name of NVRTC's library, None if there is none.

    The one that the variable of the environment names comes first, then wheels, then the system.
    """
    chosen = os.environ.get(NVRTC_VARIABLE)
    if chosen:
        return chosen
    for distribution in _WHEELS:
        path = _library_of(distribution)
        if path is not None:
            return str(path)
    return _system_library()


def _library_of(distribution: str) -> Path | None:
    try:
        listed = files(distribution) or ()
    except PackageNotFoundError:
        return None
    for entry in listed:
        if _NVRTC_FILE.fullmatch(entry.name):
            path = Path(str(entry.locate())).resolve()
            return path if path.exists() else None
    return None


def _system_library() -> str | None:
    for name in _SYSTEM_NAMES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return ctypes.util.find_library("nvrtc")
