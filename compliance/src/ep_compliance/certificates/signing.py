"""Signatures of certificates: Ed25519 over the file's bytes, in a file of their own beside it.

A signature tells who vouches for a certificate. The core doesn't look at it: its check is against
drift and mistakes, and a plugin that means harm runs in the same process anyway. So a signature is
for those who pass packages on, before they do.

`CERTIFICATE.json.sig` holds the 64 bytes of the signature and nothing else; keys are PEM files
(PKCS#8 and SubjectPublicKeyInfo, RFC 8410), which OpenSSL reads too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ep_core.certificates.file import read_certificate
from ep_core.errors import CertificateError, NotSupportedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

__all__ = [
    "read_trusted",
    "sign_certificate",
    "signature_path",
    "untrusted",
    "write_keys",
]

_SIGNATURE_BYTES = 64
_MOST_KEY_BYTES = 64 * 1024


def signature_path(certificate: Path) -> Path:
    """Where the signature of a certificate lies: `NAME.json.sig` beside `NAME.json`."""
    return certificate.with_name(f"{certificate.name}.sig")


def write_keys(path: Path) -> Path:
    """Make a pair of keys: the private one at `path`, for its owner only, and the public one.

    Returns:
        The path of the public key, `path` with `.pub` added.

    Raises:
        CertificateError: one of the files exists already, or can't be written.
        NotSupportedError: the package `cryptography` is missing.
    """
    _need_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    public_path = path.with_name(f"{path.name}.pub")
    _write_new(public_path, public, 0o644)
    try:
        _write_new(path, private, 0o600)
    except BaseException:
        public_path.unlink()
        raise
    return public_path


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that isn't there yet; it has its mode before it has its content."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise CertificateError(
            f"{path} exists already; keys are never written over", fix="Choose another name."
        ) from None
    except OSError as error:
        raise CertificateError(f"can't write {path}: {error}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CertificateError(f"can't write {path}: {error}") from error


def sign_certificate(certificate: Path, key: Path) -> Path:
    """Sign a certificate file and return the path of the signature, at once or not at all.

    Raises:
        CertificateError: the file is no certificate, the key no private Ed25519 key, or the
            signature can't be written.
        NotSupportedError: the package `cryptography` is missing.
    """
    _need_cryptography()
    read_certificate(certificate)
    private = _private_key(key)
    signature = private.sign(_read(certificate))
    target = signature_path(certificate)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            whole = Path(folder, target.name)
            whole.write_bytes(signature)
            whole.replace(target)
    except OSError as error:
        raise CertificateError(f"can't write {target}: {error}") from error
    return target


def read_trusted(paths: Sequence[Path]) -> list[Ed25519PublicKey]:
    """Read public keys.

    Raises:
        CertificateError: a file isn't a public Ed25519 key in PEM.
        NotSupportedError: the package `cryptography` is missing.
    """
    _need_cryptography()
    return [_public_key(path) for path in paths]


def untrusted(certificate: Path, trusted: Sequence[Ed25519PublicKey]) -> str:
    """Why the signature beside a certificate isn't one of a trusted key, or nothing."""
    from cryptography.exceptions import InvalidSignature

    path = signature_path(certificate)
    if not path.exists():
        return f"it isn't signed: there is no {path.name} beside it"
    try:
        signature = _read(path, _SIGNATURE_BYTES)
        content = _read(certificate)
    except CertificateError as error:
        return str(error)
    for key in trusted:
        try:
            key.verify(signature, content)
        except InvalidSignature:
            continue
        return ""
    return f"{path.name} isn't a signature of it by a trusted key"


# ---------------------------------------------------------------- files


def _need_cryptography() -> None:
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError as error:
        raise NotSupportedError(
            "signatures need the package `cryptography`, which isn't installed",
            fix="Install it with: pip install 'ep-compliance[sign]'",
        ) from error


def _read(path: Path, most: int | None = None) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read() if most is None else file.read(most + 1)
    except OSError as error:
        raise CertificateError(f"can't read {path}: {error}") from error
    if most is not None and len(content) > most:
        raise CertificateError(f"{path} is too large", expected=f"{most} bytes at most")
    return content


def _private_key(path: Path) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    expected = "a private Ed25519 key in PEM, without a password"
    fix = "`ep certificate keygen` makes one."
    try:
        key = load_pem_private_key(_read(path, _MOST_KEY_BYTES), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"can't take {path} as a key", expected=expected, fix=fix) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise CertificateError(
            f"can't take {path} as a key", expected=expected, got=type(key).__name__, fix=fix
        )
    return key


def _public_key(path: Path) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    expected = "a public Ed25519 key in PEM"
    content = _read(path, _MOST_KEY_BYTES)
    if b"PRIVATE KEY" in content:
        raise CertificateError(
            f"{path} is a private key", expected=expected, fix=f"It should be in {path}.pub."
        )
    try:
        key = load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"can't take {path} as a key", expected=expected) from error
    if not isinstance(key, Ed25519PublicKey):
        raise CertificateError(
            f"can't take {path} as a key", expected=expected, got=type(key).__name__
        )
    return key
