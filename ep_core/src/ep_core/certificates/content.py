"""What a certificate is bound to: the bytes of a distribution."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ep_core.discovery.plugins import package_files
from ep_core.errors import CertificateError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["content_hash", "is_certificate"]


def content_hash(distribution: Distribution) -> str:
    """Return `sha256:...` over the paths and bytes of a distribution's files.

    Certificates themselves, package metadata and byte code don't count, so that a wheel may carry
    its own certificate. Files are taken in the order of their paths.

    Raises:
        CertificateError: a file is missing or unreadable, or no file is known.
    """
    files = {n: p for n, p in package_files(distribution).items() if not is_certificate(n)}
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


def is_certificate(name: str) -> bool:
    """True for the path of a certificate inside a distribution, or of its signature."""
    return name.endswith((".json", ".json.sig")) and "certificates" in name.split("/")[-2:-1]
