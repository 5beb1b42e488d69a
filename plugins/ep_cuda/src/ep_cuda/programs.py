"""Kernel programs: source text in, loaded modules out, with compiled code kept between processes.

Code is found again by everything that it depends on: the text, the chip, the driver and NVRTC.
Files that are missing, damaged or refused by the driver are compiled anew.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pycuda.driver as drv

from ep_core.discovery.verdicts import cache_folder, write_atomically
from ep_core.errors import RunError
from ep_cuda.context import Context
from ep_cuda.dialect import OPTIONS
from ep_cuda.nvrtc import Nvrtc

__all__ = ["Programs"]

_HEADER = b"ep-cuda program 1\n"


class Programs:
    """The programs of one device. Safe on many threads.

    Args:
        context: into which they are loaded.
        compiler: of their text.
        target: what they are compiled for.
        build_key: chip, driver and compiler.
    """

    def __init__(self, context: Context, compiler: Nvrtc, target: str, build_key: str) -> None:
        self._context = context
        self._compiler = compiler
        self._target = target
        self._build_key = build_key
        self._lock = threading.Lock()
        self._loaded: dict[str, drv.Module] = {}

    def get(self, text: str, file: str, keep: bool) -> drv.Module:
        """Return the module of a program.

        Args:
            text: the program.
            file: what messages call it.
            keep: look for the code in the user's cache folder, and leave it there.

        Raises:
            CompileError: the compiler refuses it.
            AllocationError, DeviceLostError, RunError: the driver can't load it.
        """
        with self._lock:
            found = self._loaded.get(text)
            if found is None:
                found = self._read(text) if keep else None
                found = found or self._compile(text, file, keep)
                self._loaded[text] = found
        return found

    def let_go(self) -> None:
        """Forget all modules; for the end of the process."""
        with self._lock, self._context.doing("unloading programs"):
            self._loaded.clear()

    def _compile(self, text: str, file: str, keep: bool) -> drv.Module:
        code = self._compiler.compile(text, file, self._target, OPTIONS)
        module = self._load(code, file)
        if keep:
            self._save(text, code)
        return module

    def _load(self, code: bytes, file: str) -> drv.Module:
        with self._context.doing(f"loading the program {file}"):
            return drv.module_from_buffer(code)

    def _path(self, text: str) -> Path | None:
        key = "\0".join((self._build_key, *OPTIONS, text))
        name = hashlib.sha256(key.encode()).hexdigest()
        try:
            return cache_folder() / "cuda" / "programs" / f"{name}.bin"
        except RuntimeError:
            # No home folder, so nothing is kept.
            return None

    def _read(self, text: str) -> drv.Module | None:
        path = self._path(text)
        if path is None:
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if not content.startswith(_HEADER):
            return None
        digest, code = content[len(_HEADER) :][:32], content[len(_HEADER) + 32 :]
        if hashlib.sha256(code).digest() != digest:
            return None
        try:
            return self._load(code, path.name)
        except RunError:
            return None

    def _save(self, text: str, code: bytes) -> None:
        path = self._path(text)
        if path is None:
            return
        try:
            write_atomically(path, _HEADER + hashlib.sha256(code).digest() + code)
        except (OSError, ValueError):
            # A cache that can't be written only costs time.
            return
