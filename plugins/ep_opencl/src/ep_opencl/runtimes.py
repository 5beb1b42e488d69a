"""Finding OpenCL drivers that pip installed, before the loader looks for any.

The wheel `intel-opencl-rt` brings a driver for x86-64 processors. What it registers is a path of
the machine that built it, and it needs libraries of other wheels that the dynamic linker doesn't
look for. Here the libraries are loaded by their real paths, and the loader of OpenCL is told of the
driver beside those that the system has. Nothing is left in the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pyopencl as cl

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
def find_drivers() -> tuple[str, ...]:
    """Have OpenCL's loader find the drivers of wheels too; later calls do nothing.

    Returns:
        What went wrong with drivers of wheels; others may work all the same.
    """
    problems: list[str] = []
    with _visible_drivers(problems), contextlib.suppress(cl.Error):
        # The loader reads its settings at the first call, and never again.
        cl.get_platforms()
    return tuple(problems)


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
def _visible_drivers(problems: list[str]) -> Iterator[None]:
    """Have the loader see the drivers of the system and of wheels; a user's own choice stands.

    Args:
        problems: gets a sentence for each library that is missing or broken.
    """
    driver = find_library(*_DRIVER)
    if driver is None or _VARIABLE in os.environ:
        yield
        return
    for distribution, name in _NEEDED:
        library = find_library(distribution, name)
        if library is None:
            problems.append(f"{name} of {distribution} is missing, which intel-opencl-rt needs")
            continue
        try:
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            problems.append(f"{name} of {distribution} can't be loaded: {error}")
    with tempfile.TemporaryDirectory(prefix="ep-opencl-") as folder:
        _name_drivers(Path(folder), driver)
        os.environ[_VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(_VARIABLE, None)


def _name_drivers(folder: Path, driver: Path) -> None:
    """Name the system's drivers and the given one in a folder, as the loader reads it."""
    (folder / "intel-opencl-rt.icd").write_text(f"{driver}\n", encoding="utf-8")
    if _SYSTEM_DRIVERS.is_dir():
        for path in sorted(_SYSTEM_DRIVERS.glob("*.icd")):
            with contextlib.suppress(OSError):
                text = path.read_text(encoding="utf-8")
                (folder / path.name).write_text(text, encoding="utf-8")
