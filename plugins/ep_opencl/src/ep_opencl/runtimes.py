"""Finding OpenCL drivers that pip installed, before the loader looks for any.

The wheel `intel-opencl-rt` brings a driver for x86-64 processors. What it registers is a path of
the machine that built it, and it needs libraries of other wheels that the dynamic linker doesn't
look for. Here the libraries are loaded by their real paths, and the loader of OpenCL is told of the
driver beside those that the system has. Nothing is left in the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pyopencl as cl

from ep_core.discovery.verdicts import cache_folder
from ep_opencl.atomic import write_atomically

__all__ = ["find_drivers", "find_library"]

_DRIVER = ("intel-opencl-rt", "libintelocl.so")

_NEEDED = (
    ("intel-cmplr-lib-rt", "libintlc.so.5"),
    ("intel-cmplr-lib-rt", "libirng.so"),
    ("intel-cmplr-lib-rt", "libsvml.so"),
    ("intel-cmplr-lib-rt", "libimf.so"),
    ("tbb", "libtbb.so.12"),
    ("tbb", "libtbbmalloc.so.2"),
)
"""In the order of loading: each needs those before it."""

_SYSTEM_DRIVERS = Path("/etc/OpenCL/vendors")
_VARIABLE = "OCL_ICD_VENDORS"


@cache
def find_drivers() -> None:
    """Have OpenCL's loader find the drivers of wheels too; later calls do nothing.

    Raises:
        OSError: a library that a driver needs is broken, or the cache folder can't be written.
    """
    with _visible_drivers(), contextlib.suppress(cl.Error):
        # The loader reads its settings at the first call, and never again.
        cl.get_platforms()


def find_library(distribution: str, name: str) -> Path | None:
    """Return where pip put a library of a distribution, None if it isn't installed."""
    try:
        listed = files(distribution) or ()
    except PackageNotFoundError:
        return None
    for entry in listed:
        if entry.name == name:
            path = Path(str(entry.locate())).resolve()
            return path if path.exists() else None
    return None


@contextlib.contextmanager
def _visible_drivers() -> Iterator[None]:
    """Have the loader see the drivers of the system and of wheels; a user's own choice stands."""
    driver = find_library(*_DRIVER)
    if driver is None or _VARIABLE in os.environ:
        yield
        return
    for distribution, name in _NEEDED:
        library = find_library(distribution, name)
        if library is not None:
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    os.environ[_VARIABLE] = str(_vendors_folder(driver))
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)


def _vendors_folder(driver: Path) -> Path:
    """A folder that names the system's drivers and the given one, as the loader reads it."""
    entries = {"intel-opencl-rt.icd": f"{driver}\n"}
    if _SYSTEM_DRIVERS.is_dir():
        for path in sorted(_SYSTEM_DRIVERS.glob("*.icd")):
            with contextlib.suppress(OSError):
                entries[path.name] = path.read_text(encoding="utf-8")
    digest = hashlib.sha256(repr(sorted(entries.items())).encode()).hexdigest()[:16]
    folder = cache_folder() / "opencl" / f"drivers-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in entries.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text.encode())
    return folder
