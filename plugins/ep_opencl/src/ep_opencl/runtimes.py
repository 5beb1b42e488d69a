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

__all__ = ["FORKED", "find_drivers", "find_library", "is_forked", "name_problems"]

FORKED = (
    "OpenCL's drivers were loaded before this process was forked, which takes their threads away"
)
"""They don't answer any more then; some never return."""

_LOADED_BY: list[int] = []


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
    _LOADED_BY.append(os.getpid())
    with _visible_drivers(problems), contextlib.suppress(cl.Error):
        # The loader reads its settings at the first call, and never again.
        cl.get_platforms()
    return tuple(problems)


def is_forked() -> bool:
    """The drivers were loaded by a process that this one was forked from."""
    return bool(_LOADED_BY) and os.getpid() not in _LOADED_BY


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


def name_problems() -> list[str]:
    """Say what is wrong with the drivers that the loader is told of, where it found none."""
    chosen = os.environ.get(_VARIABLE)
    place = Path(chosen) if chosen else _SYSTEM_DRIVERS
    told = (
        f"the variable {_VARIABLE} names {place}"
        if chosen
        else f"drivers are looked for in {place}"
    )
    if not place.exists():
        return [f"{told}, which isn't there"]
    named = sorted(place.glob("*.icd")) if place.is_dir() else [place]
    if not named:
        return [f"{told}, in which no file ends with .icd"]
    return [f"{told}", *(_problem_of(path) for path in named)]


def _problem_of(path: Path) -> str:
    """Why the loader makes nothing of what it is told of."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.suffix == ".icd" else path
        library = str(text).strip()
        ctypes.CDLL(library)
    except OSError as error:
        return f"{path.name} can't be used: {error}"
    return f"{path.name} names {library}, which is no driver or has no device"


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
