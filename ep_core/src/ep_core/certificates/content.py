"""What a certificate is bound to: the bytes of a distribution.

A compiled module that was built from source is another one for each compiler, and the same code. So
where a file lists its sources with their hashes, the list counts instead of the module:
`_native.sources` beside `_native.cpython-311-x86_64-linux-gnu.so`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ep_core.discovery.plugins import declared_files, package_files
from ep_core.errors import CertificateError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import Distribution

__all__ = ["content_hash", "is_certificate"]

_COMPILED = (".so", ".pyd", ".dylib")


def content_hash(distribution: Distribution) -> str:
    """Return `sha256:...` over the paths and bytes of a distribution's files.

    Certificates themselves, package metadata and byte code don't count, so that a wheel may carry
    its own certificate, nor do compiled modules with a list of sources beside them. Files are taken
    in the order of their paths. Packages of others that are declared part of it count as well.

    Raises:
        CertificateError: a file or declared package is missing, unreadable, or none is known.
    """
    known = package_files(distribution) | declared_files(distribution)
    files = {n: p for n, p in known.items() if not is_certificate(n) and not _is_listed(n, known)}
    if not files:
        raise CertificateError("the distribution lists no files", fix="Install it from a wheel.")
    stamped = []
    for name, path in sorted(files.items()):
        try:
            state = path.stat()
        except OSError as error:
            raise CertificateError(f"can't read {name}: {error}", fix="Reinstall it.") from error
        stamped.append((name, path, state.st_size, state.st_mtime_ns))
    return _hash(tuple(stamped))


@lru_cache(maxsize=64)
def _hash(files: tuple[tuple[str, Path, int, int], ...]) -> str:
    """Hash files by name; size and time are there so that a change isn't missed."""
    digest = hashlib.sha256()
    for name, path, *_ in files:
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CertificateError(f"can't read {name}: {error}", fix="Reinstall it.") from error
        digest.update(f"{name}\0{content}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _is_listed(name: str, files: Mapping[str, Path]) -> bool:
    """True for a compiled module whose sources are listed beside it."""
    folder, slash, base = name.rpartition("/")
    return name.endswith(_COMPILED) and f"{folder}{slash}{base.split('.')[0]}.sources" in files


def is_certificate(name: str) -> bool:
    """True for the path of a certificate inside a distribution, or of its signature."""
    return name.endswith((".json", ".json.sig")) and "certificates" in name.split("/")[-2:-1]
