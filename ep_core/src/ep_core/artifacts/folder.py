"""The files: one artifact each, written whole or not at all, and checked before they are believed.

A file is a header (magic, format, key, digest and length of the payload) and the payload. Several
processes may share a folder. Whoever may write to it decides what runs on the device, so it has to
be the user's own. Nothing here knows providers or graphs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import struct
import tempfile
import time
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import BinaryIO

from ep_core.artifacts.pieces import digest_of

__all__ = ["FORMAT", "ArtifactFolder"]

FORMAT = 2
"""Of the file and of what its key is made of."""

_LOG = logging.getLogger("ep_core")
_MAGIC = b"ep-core\0"
_HEADER = struct.Struct("<8sI32s32sQ")
_SUFFIX = ".ep-artifact"
_UNFINISHED = ".ep-unfinished"
_OURS = re.compile(rf"[0-9a-f]{{64}}({re.escape(_SUFFIX)}|\.\w+{re.escape(_UNFINISHED)})")
_ABANDONED_SECONDS = 3600.0
"""Age at which an unfinished file is nobody's any more: its process has died."""


class ArtifactFolder:
    """Artifacts by key, least recently used ones removed beyond `max_bytes`. Never raises OSError.

    What goes wrong when reading is a miss, logged as information. The first failure to write is
    a warning, since everything will be compiled each time.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._warned = False

    def read(self, key: bytes, *, mapped: bool = False) -> bytes | memoryview | None:
        """Return the artifact of a key of 32 bytes, None if there is none that is whole.

        Args:
            mapped: give a read-only view of the file, which is never changed in its place.
        """
        path = self._file(key)
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it isn't a regular file")
            payload = _read(path, key, status.st_size, mapped)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, MemoryError) as error:
            _LOG.info("artifact %s can't be used and is made anew: %s", path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def write(self, key: bytes, payload: bytes) -> None:
        """Keep an artifact, in place of the one that is there."""
        if _HEADER.size + len(payload) > self._max_bytes:
            _LOG.info("an artifact of %d bytes is larger than the whole cache may be", len(payload))
            return
        path = self._file(key)
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, key, payload)
            self._evict(path)
        except (OSError, ValueError) as error:
            if not self._warned:
                self._warned = True
                _LOG.warning("compiled artifacts can't be kept in %s: %s", self._path, error)

    def _file(self, key: bytes) -> Path:
        return self._path / f"{key.hex()}{_SUFFIX}"

    def _evict(self, newest: Path) -> None:
        """Remove what was used longest ago, and what other processes left unfinished."""
        total = 0
        found = []
        for path, status in _files(self._path):
            if path.name.endswith(_UNFINISHED):
                if time.time() - status.st_mtime > _ABANDONED_SECONDS:
                    _remove(path)
                continue
            total += status.st_size
            found.append((status.st_mtime_ns, status.st_size, path))
        for _, size, path in sorted(found):
            if total <= self._max_bytes:
                break
            if path != newest:
                _remove(path)
                total -= size


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The folder's regular files that bear our names; links are neither followed nor ours."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _OURS.fullmatch(entry.name):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found.append((folder / entry.name, status))
    return found


def _remove(path: Path) -> None:
    # Another process may have been quicker, or may have it open (Windows).
    with contextlib.suppress(OSError):
        path.unlink()


def _read(path: Path, key: bytes, size: int, mapped: bool) -> bytes | memoryview:
    """Raises ValueError with what is wrong with the file."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise ValueError("it is truncated")
        magic, version, bound, digest, length = _HEADER.unpack(header)
        if magic != _MAGIC or version != FORMAT:
            raise ValueError("it is of another format")
        if bound != key:
            raise ValueError("it belongs to another key")
        if size != _HEADER.size + length:
            raise ValueError("it is truncated or has grown")
        payload = _map(file, length) if mapped else file.read(length)
    if digest_of(payload) != digest:
        raise ValueError("its contents are damaged")
    return payload


def _map(file: BinaryIO, length: int) -> memoryview:
    # A copy on write: who writes to it in spite of all harms neither the file nor the process.
    whole = memoryview(mmap(file.fileno(), 0, access=ACCESS_COPY))
    if len(whole) != _HEADER.size + length:
        raise ValueError("it is being changed")
    return whole[_HEADER.size :].toreadonly()


def _write(path: Path, key: bytes, payload: bytes) -> None:
    header = _HEADER.pack(_MAGIC, FORMAT, key, digest_of(payload), len(payload))
    # Readable by the user alone.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{key.hex()}.", suffix=_UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(header)
            file.write(payload)
        Path(name).replace(path)
    except BaseException:
        _remove(Path(name))
        raise
