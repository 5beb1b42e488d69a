"""Where a certificate is put, and that a better one which still fits is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ep_compliance.cases.case import Level
from ep_compliance.certificates.certificate import file_name, write_certificate
from ep_compliance.certificates.installed import Installed
from ep_compliance.certificates.signing import signature_path
from ep_core.certificates.file import Certificate
from ep_core.errors import CertificateError

__all__ = ["Placed", "place"]


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of a certificate.

    Attributes:
        path: where it is, or the better one that was kept.
        kept: the better one, None if the new one was written.
        unsigned: the signature of the certificate before, which was removed with it.
    """

    path: Path
    kept: Certificate | None = None
    unsigned: Path | None = None


def place(
    certificate: Mapping[str, Any], folder: Path, installed: Installed, *, replace: bool
) -> Placed:
    """Write a certificate into a folder, unless a run of a higher level has left one that fits.

    Args:
        installed: what both are for.
        replace: write it all the same.

    Raises:
        CertificateError: the folder can't be written to.
    """
    path = folder / file_name(certificate)
    earlier = installed.judge(path)
    better = earlier.certificate
    if better is not None and earlier.fits and not replace:
        level = str(certificate["level"])
        if _rank(better.level) > _rank(level):
            return Placed(path, better)
    before = _content(path)
    written = write_certificate(certificate, folder)
    signature = signature_path(path)
    if _content(path) == before or not signature.exists():
        return Placed(written)
    try:
        signature.unlink()
    except OSError as error:
        raise CertificateError(f"can't remove the old signature {signature}: {error}") from error
    return Placed(written, unsigned=signature)


def _rank(level: str) -> int:
    """How thorough a run of a level is; what this kit doesn't know ranks lowest."""
    name = level.upper()
    return int(Level[name]) if name in Level.__members__ else -1


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
