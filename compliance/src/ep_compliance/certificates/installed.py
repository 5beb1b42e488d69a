"""Certificates where the core looks for them, and whether each fits what is installed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from ep_core.certificates.file import Certificate, read_certificate
from ep_core.certificates.lookup import (
    misfit_of,
    numerics_options,
    shipped_certificates,
    user_certificates,
)
from ep_core.contracts import ProviderInfo
from ep_core.errors import CertificateError
from ep_core.types import DeviceInfo

__all__ = ["Candidate", "Installed"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A certificate file, as seen from one device.

    Attributes:
        certificate: None if the file can't be read as one.
        misfit: why it doesn't hold here; empty if it does.
    """

    path: Path
    certificate: Certificate | None
    misfit: str

    @property
    def fits(self) -> bool:
        """True if the core would take it."""
        return not self.misfit


@dataclass(frozen=True, slots=True)
class Installed:
    """What a certificate has to fit.

    Attributes:
        options: parsed values of all options of the provider.
        objection: asked last; a reason to refuse a certificate file that fits, or nothing.
    """

    info: ProviderInfo
    distribution: Distribution
    device: DeviceInfo
    options: Mapping[str, Any]
    objection: Callable[[Path], str] = lambda path: ""

    def candidates(self) -> list[Candidate]:
        """Every certificate of the provider where the core looks, in the core's order.

        Files that can't be read are among them.
        """
        paths = [*shipped_certificates(self.distribution), *user_certificates()]
        found = [self.judge(path) for path in paths]
        return [item for item in found if self._is_ours(item)]

    def judge(self, path: Path) -> Candidate:
        """Look at one file."""
        try:
            certificate = read_certificate(path)
        except CertificateError as error:
            return Candidate(path, None, str(error))
        if certificate.provider != self.info.name:
            misfit = f"it is for provider {certificate.provider!r}, not {self.info.name!r}"
            return Candidate(path, certificate, misfit)
        numerics = numerics_options(self.info, self.options)
        try:
            misfit = misfit_of(certificate, self.distribution, self.device, numerics)
        except CertificateError as error:
            misfit = str(error)
        return Candidate(path, certificate, misfit or self.objection(path))

    def _is_ours(self, item: Candidate) -> bool:
        return item.certificate is None or item.certificate.provider == self.info.name
