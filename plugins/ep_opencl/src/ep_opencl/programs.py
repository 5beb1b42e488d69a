"""Kernel programs: source text in, built programs out, with binaries kept between processes.

A binary is found again by everything that it depends on: the text after all definitions, the
device and its driver. Files that are missing, damaged or refused by the driver are built anew.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyopencl as cl

from ep_core.discovery.verdicts import cache_folder, write_atomically
from ep_core.errors import CompileError
from ep_sdk.device_kernels.sources import program_text

__all__ = ["Programs", "build_quietly"]

_BUILD = threading.RLock()
"""Building is serial: drivers do badly with several builds at once, and so do warning filters."""

_NO_CACHE: Any = False
"""Pyopencl's own cache isn't used; its signature doesn't tell that it can be left out."""

_HEADER = b"ep-opencl program 1\n"
_LINES_OF_LOG = 20


@cache
def _prelude() -> str:
    """What gives the words of kernels their meaning in OpenCL C."""
    return files("ep_opencl").joinpath("opencl.h").read_text(encoding="utf-8")


def build_quietly(program: cl.Program, options: str) -> cl.Program:
    """Build a program without pyopencl's warning that the compiler said something."""
    with _BUILD, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.build(options, cache_dir=_NO_CACHE)
        return program


class Programs:
    """The programs of one device. Safe on many threads.

    Args:
        context: of the device alone.
        build_key: the device as its compiler sees it, and the driver.
        options: of the compiler.
    """

    def __init__(
        self, context: cl.Context, device: cl.Device, build_key: str, options: str
    ) -> None:
        self._context = context
        self._device = device
        self._build_key = build_key
        self._options = options
        self._lock = threading.Lock()
        self._built: dict[str, cl.Program] = {}

    def get(
        self,
        file: str,
        defines: Mapping[str, object],
        body: str,
        keep: bool,
        head: str = "",
    ) -> cl.Program:
        """Return the program of a source file in the words of `opencl.h`.

        Args:
            file: name in the folder `cl`.
            defines: macros that are set before the file.
            body: text after the file, for generated kernels.
            head: text between `common.cl` and the file.
            keep: look for the binary in the user's cache folder, and leave it there.

        Raises:
            CompileError: the driver's compiler refuses it.
        """
        text = program_text(_prelude(), file, defines, head, body)
        with self._lock:
            found = self._built.get(text)
        if found is not None:
            return found
        with _BUILD:
            program = self._load(text) if keep else None
            if program is None:
                program = self._build(text, file)
                if keep:
                    self._save(text, program)
        with self._lock:
            return self._built.setdefault(text, program)

    def _build(self, text: str, file: str) -> cl.Program:
        try:
            return build_quietly(cl.Program(self._context, text), self._options)
        except cl.Error as error:
            log = [line for line in str(error).splitlines() if line.strip()]
            raise CompileError(
                f"{self._device.name.strip()} can't build {file}: "
                + "\n".join(log[:_LINES_OF_LOG]),
                fix="Update the device's driver, or have other providers run these nodes.",
            ) from error

    def _path(self, text: str) -> Path | None:
        key = "\0".join((self._build_key, self._options, cl.VERSION_TEXT, text))
        name = hashlib.sha256(key.encode()).hexdigest()
        try:
            return cache_folder() / "opencl" / "programs" / f"{name}.bin"
        except RuntimeError:
            # No home folder, so nothing is kept.
            return None

    def _load(self, text: str) -> cl.Program | None:
        path = self._path(text)
        if path is None:
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if not content.startswith(_HEADER):
            return None
        digest, binary = content[len(_HEADER) :][:32], content[len(_HEADER) + 32 :]
        if hashlib.sha256(binary).digest() != digest:
            return None
        try:
            program = cl.Program(self._context, [self._device], [binary])
            return build_quietly(program, self._options)
        except cl.Error:
            return None

    def _save(self, text: str, program: cl.Program) -> None:
        path = self._path(text)
        if path is None:
            return
        try:
            binary = program.binaries[0]
            content = _HEADER + hashlib.sha256(binary).digest() + binary
            write_atomically(path, content)
        except (OSError, ValueError, cl.Error):
            # A cache that can't be written only costs time.
            return
