"""Certificates: files that grant a provider the nodes it has been shown to compute rightly.

The core only reads them; making one is the kit's work, which the core never imports. They guard
against drift and mistakes, not against a hostile plugin in the same process.
"""

from __future__ import annotations

import enum
import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.discovery.certificate_file import Certificate, CertificateRow, read_certificate
from ep_core.discovery.plugins import package_files
from ep_core.errors import CertificateError, OptionError, did_you_mean
from ep_core.graph import Graph, Node
from ep_core.types import DeviceInfo

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = [
    "DEFAULT_POLICY",
    "Certificate",
    "CertificatePolicy",
    "CertificateRow",
    "Grants",
    "certificate_policy",
    "content_hash",
    "find_certificate",
    "grants_for",
    "numerics_options",
    "read_certificate",
    "user_folder",
]

_LOG = logging.getLogger("ep_core")


class CertificatePolicy(enum.Enum):
    """What happens to a node without a certificate: refused, granted with a note, or granted."""

    ENFORCE = "enforce"
    WARN = "warn"
    OFF = "off"


DEFAULT_POLICY = CertificatePolicy.ENFORCE


@dataclass(frozen=True, slots=True)
class Grants:
    """Answers "may this provider run this node", for one provider and device, when called.

    Attributes:
        certificate: None if there is none that fits.
        reason: why there is none.
    """

    policy: CertificatePolicy
    certificate: Certificate | None = None
    reason: str = ""

    def __call__(self, graph: Graph, node: Node) -> tuple[bool, str]:
        """Return whether the node is granted; a text with a yes is a warning, with a no a reason.

        Types are taken from `graph`, which must hold the node; an unknown type fits no row that
        names types.
        """
        if self.policy is CertificatePolicy.OFF:
            return True, ""
        reason = self.reason
        if self.certificate is not None:
            reason = _refusal(self.certificate, graph, node)
        return (not reason or self.policy is CertificatePolicy.WARN), reason


def certificate_policy() -> CertificatePolicy:
    """The policy in force: `EP_CERTIFICATE_POLICY` (enforce, warn, off), else the default.

    Raises:
        OptionError: the variable holds something else.
    """
    text = os.environ.get("EP_CERTIFICATE_POLICY")
    if not text:
        return DEFAULT_POLICY
    try:
        return CertificatePolicy(text.lower())
    except ValueError:
        known = [policy.value for policy in CertificatePolicy]
        raise OptionError(
            "environment variable EP_CERTIFICATE_POLICY",
            expected=" or ".join(known),
            got=repr(text),
            fix=did_you_mean(text.lower(), known),
        ) from None


def grants_for(
    info: ProviderInfo,
    distribution: Distribution | None,
    device: DeviceInfo,
    options: Mapping[str, Any],
    policy: CertificatePolicy | None = None,
) -> Grants:
    """Look a provider's certificate up, unless the policy is off; None is the policy in force.

    Args:
        options: parsed values of all options of the provider.

    Under `warn` a missing certificate is logged here, once per provider that is opened.
    """
    policy = policy or certificate_policy()
    if policy is CertificatePolicy.OFF:
        return Grants(policy)
    certificate, reason = find_certificate(info, distribution, device, options)
    if certificate is None and policy is CertificatePolicy.WARN:
        _LOG.warning("provider %r: %s", info.name, reason)
    return Grants(policy, certificate, reason)


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
    advice = _advice(info.name)
    notes = []
    numerics = numerics_options(info, options)
    for path in [*_shipped(distribution), *_of_user()]:
        try:
            certificate = _read(path)
            if certificate.provider != info.name:
                continue
            misfit = _misfit(certificate, distribution, device, numerics)
        except CertificateError as error:
            misfit = str(error)
        if not misfit:
            return certificate, ""
        notes.append(f"{path.name}: {misfit}")
    return None, f"{advice} ({'; '.join(notes) or 'it has no certificate'})"


def numerics_options(info: ProviderInfo, options: Mapping[str, Any]) -> dict[str, str]:
    """The options that a certificate is bound to, with their values as text."""
    return {name: str(options[name]) for name, spec in info.options.items() if spec.numerics}


def user_folder() -> Path:
    """Where a user's own certificates lie: `XDG_DATA_HOME/ep_core/certificates`.

    Raises:
        RuntimeError: there is neither that variable nor a home.
    """
    shared = os.environ.get("XDG_DATA_HOME")
    base = Path(shared) if shared else Path.home() / ".local" / "share"
    return base / "ep_core" / "certificates"


def content_hash(distribution: Distribution) -> str:
    """Return `sha256:...` over the paths and bytes of a distribution's files.

    Certificates themselves, package metadata and byte code don't count, so that a wheel may carry
    its own certificate. Files are taken in the order of their paths.

    Raises:
        CertificateError: a file is missing or unreadable, or no file is known.
    """
    files = {n: p for n, p in package_files(distribution).items() if not _is_certificate(n)}
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


def _read(path: Path) -> Certificate:
    """`read_certificate`, once per state of the file."""
    try:
        state = path.stat()
    except OSError as error:
        raise CertificateError(f"can't read {path}: {error}") from error
    return _read_once(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _read_once(path: Path, size: int, time: int) -> Certificate:
    return read_certificate(path)


def _is_certificate(name: str) -> bool:
    return name.endswith((".json", ".json.sig")) and "certificates" in name.split("/")[-2:-1]


def _shipped(distribution: Distribution) -> list[Path]:
    files = package_files(distribution)
    return [
        path
        for name, path in sorted(files.items())
        if _is_certificate(name) and name.endswith(".json")
    ]


def _of_user() -> list[Path]:
    try:
        return sorted(user_folder().glob("*.json"))
    except (OSError, RuntimeError):
        return []


# ---------------------------------------------------------------- matching


def _advice(provider: str) -> str:
    return f"uncertified: run `ep certify {provider}`"


def _misfit(
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


def _refusal(certificate: Certificate, graph: Graph, node: Node) -> str:
    """Why no row grants the node, or nothing."""
    advice = _advice(certificate.provider)
    rows = certificate.by_operator.get((node.domain, node.op_type))
    if not rows:
        return f"{advice} (no row for {node.key})"
    rows = [row for row in rows if row.since <= node.since_version <= row.until]
    if not rows:
        return f"{advice} (no row for {node.key} version {node.since_version})"
    if any(
        _types_fit(row.inputs, graph, node.inputs) and _types_fit(row.outputs, graph, node.outputs)
        for row in rows
    ):
        return ""
    types = ", ".join(str(graph.type_of(name)) for name in (*node.inputs, *node.outputs) if name)
    return f"{advice} (no row for {node.key} with types {types})"


def _types_fit(
    allowed: Sequence[frozenset[str] | None], graph: Graph, names: Sequence[str]
) -> bool:
    for position, name in enumerate(names):
        if not name:
            continue
        if not allowed:
            return False
        types = allowed[min(position, len(allowed) - 1)]
        if types is not None and str(graph.type_of(name)) not in types:
            return False
    return True
