"""`ep certificate verify`: which certificates fit what is installed here, and why others don't."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ep_compliance.certificates.installed import Candidate, Installed
from ep_compliance.certificates.signing import read_trusted, untrusted
from ep_compliance.commands.output import say, say_json
from ep_core.certificates.file import read_certificate
from ep_core.discovery.options import parse_options, select_device
from ep_core.discovery.registry import registry
from ep_core.errors import CertificateError
from ep_core.types import DeviceInfo

__all__ = ["verify"]


def verify(
    subject: str,
    device_id: str,
    options: Mapping[str, str],
    trusted: Sequence[Path],
    *,
    as_json: bool,
) -> int:
    """Look at a file, or at all certificates of a provider, and write what was found.

    Args:
        subject: a file (it ends in `.json` or has a path) or the name of a provider.
        trusted: public keys, one of which must have signed; none to leave signatures alone.

    Returns:
        0 if each device has a certificate that fits; for a file, if it fits a device.

    Raises:
        EpError: the provider isn't installed or can't be used, a file or key can't be read.
    """
    file = Path(subject) if subject.endswith(".json") or os.sep in subject else None
    objection = _objection(trusted)
    provider = subject
    if file is not None:
        provider = read_certificate(file).provider
        if trusted and not as_json:
            say(f"{file}: {objection(file) or 'signed with a trusted key'}")
    found = {
        device: [installed.judge(file)] if file is not None else installed.candidates()
        for device, installed in _installed(provider, device_id, options, objection)
    }
    if as_json:
        say_json([_record(device, item) for device, items in found.items() for item in items])
    else:
        for device, items in found.items():
            _say_device(provider, device, items)
    fitting = [any(item.fits for item in items) for items in found.values()]
    return 0 if (any(fitting) if file is not None else all(fitting)) else 1


def _objection(trusted: Sequence[Path]) -> Callable[[Path], str]:
    if not trusted:
        return lambda path: ""
    keys = read_trusted(trusted)
    return lambda path: untrusted(path, keys)


def _installed(
    provider: str, device_id: str, options: Mapping[str, str], objection: Callable[[Path], str]
) -> list[tuple[DeviceInfo, Installed]]:
    status = registry().status(provider)
    info = registry().factory(provider).info
    distribution = registry().distribution(provider)
    if distribution is None:
        raise CertificateError("a provider registered by hand can't have a certificate")
    devices = status.devices
    if device_id:
        devices = (select_device(info, devices, {"device_id": device_id})[0],)
    values = parse_options(info, options)
    return [
        (device, Installed(info, distribution, device, values, objection)) for device in devices
    ]


def _say_device(provider: str, device: DeviceInfo, items: Sequence[Candidate]) -> None:
    say(f"{provider}, device {device.id} ({device.fingerprint}):")
    for item in items:
        say(f"  {'fits' if item.fits else 'no  '}  {item.path}: {_about(item)}")
    if not any(item.fits for item in items):
        if items:
            say("  none of them holds here")
        else:
            say(f"  no certificate; `ep certify {provider}` makes one")


def _about(item: Candidate) -> str:
    if item.certificate is None or not item.fits:
        return item.misfit
    certificate = item.certificate
    return f"level {certificate.level}, {certificate.date}, {len(certificate.rows)} rows"


def _record(device: DeviceInfo, item: Candidate) -> dict[str, Any]:
    certificate = item.certificate
    return {
        "device": device.id,
        "path": str(item.path),
        "fits": item.fits,
        "reason": item.misfit,
        "level": certificate.level if certificate is not None else None,
        "date": certificate.date if certificate is not None else None,
        "rows": len(certificate.rows) if certificate is not None else None,
    }
