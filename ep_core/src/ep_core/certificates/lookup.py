"""Finding the certificate that fits what is installed here, or why there is none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ep_core.certificates.content import content_hash, is_certificate
from ep_core.certificates.file import Certificate, read_certificate
from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.discovery.plugins import package_files
from ep_core.errors import CertificateError
from ep_core.types import DeviceInfo

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = [
    "advice_for",
    "find_certificate",
    "misfit_of",
    "numerics_options",
    "shipped_certificates",
    "user_certificates",
    "user_folder",
]


def find_certificate(
    info: ProviderInfo,
    distribution: Distribution | None,
    device: DeviceInfo,
    options: Mapping[str, Any],
) -> tuple[Certificate | None, str]:
    """Return the first certificate that fits, or None and why.

    Looked for as `certificates/*.json` among the distribution's files, then in `user_folder()`. A
    file that can't be read or doesn't fit is part of the reason and never raises.
    """
    if distribution is None:
        return None, (
            "uncertified: a provider registered by hand can't have a certificate;"
            " set certificate_policy to 'off'"
        )
    advice = advice_for(info.name)
    notes = []
    numerics = numerics_options(info, options)
    for path in [*shipped_certificates(distribution), *user_certificates()]:
        try:
            certificate = read_once(path)
            if certificate.provider != info.name:
                continue
            misfit = misfit_of(certificate, distribution, device, numerics)
        except CertificateError as error:
            misfit = str(error)
        if not misfit:
            return certificate, ""
        notes.append(f"{path.name}: {misfit}")
    return None, f"{advice} ({'; '.join(notes) or 'it has no certificate'})"


def misfit_of(
    certificate: Certificate,
    distribution: Distribution,
    device: DeviceInfo,
    numerics: Mapping[str, str],
) -> str:
    """Why a certificate isn't for what is installed here, or nothing; the dear check comes last."""
    installed = f"{distribution.metadata['Name']} {distribution.version}"
    bound = f"{certificate.distribution} {certificate.version}"
    if bound != installed:
        return f"it is for {bound}, installed is {installed}"
    if not certificate.api_from <= API_VERSION <= certificate.api_until:
        return f"it is for provider API {certificate.api_from} to {certificate.api_until}"
    if certificate.device_fingerprint != device.fingerprint:
        return f"it is for device {certificate.device_fingerprint!r}, not {device.fingerprint!r}"
    for name in sorted(numerics.keys() | certificate.options.keys()):
        made, now = certificate.options.get(name), numerics.get(name)
        if made != now:
            return f"it is for option {name}={made}, not {now}"
    if certificate.content_hash != content_hash(distribution):
        return "the installed files have changed since it was made"
    return ""


def numerics_options(info: ProviderInfo, options: Mapping[str, Any]) -> dict[str, str]:
    """The options that a certificate is bound to, with their values as text."""
    return {name: str(options[name]) for name, spec in info.options.items() if spec.numerics}


def shipped_certificates(distribution: Distribution) -> list[Path]:
    """The certificates in a distribution, in the order of their paths."""
    files = package_files(distribution)
    return [
        path
        for name, path in sorted(files.items())
        if is_certificate(name) and name.endswith(".json")
    ]


def user_certificates() -> list[Path]:
    """The certificates in the user's folder; none where it can't be read."""
    try:
        return sorted(user_folder().glob("*.json"))
    except (OSError, RuntimeError):
        return []


def user_folder() -> Path:
    """Where a user's own certificates lie: `XDG_DATA_HOME/ep_core/certificates`.

    Raises:
        RuntimeError: there is neither that variable nor a home.
    """
    shared = os.environ.get("XDG_DATA_HOME")
    base = Path(shared) if shared else Path.home() / ".local" / "share"
    return base / "ep_core" / "certificates"


def advice_for(provider: str) -> str:
    """What a refused node says first."""
    return f"uncertified: run `ep certify {provider}`"


def read_once(path: Path) -> Certificate:
    """`read_certificate`, once per state of the file."""
    try:
        state = path.stat()
    except OSError as error:
        raise CertificateError(f"can't read {path}: {error}") from error
    return _read_state(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _read_state(path: Path, size: int, time: int) -> Certificate:
    return read_certificate(path)
