"""Keys and signatures of certificates."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys

import pytest

from ep_compliance.certificates.signing import (
    read_trusted,
    sign_certificate,
    signature_path,
    untrusted,
    write_keys,
)
from ep_core.errors import CertificateError, NotSupportedError

CERTIFICATE = {
    "format": 1,
    "provider": "toy",
    "distribution": "ep-toy",
    "version": "1.0",
    "content_hash": "sha256:00",
    "api_from": [1, 0],
    "api_until": [1, 0],
    "device_fingerprint": "toy-1",
    "kit_version": "0.1.0",
    "cases_hash": "sha256:11",
    "results_hash": "sha256:22",
    "level": "full",
    "date": "2030-12-31",
    "options": {},
    "waivers": [],
    "overrides": [],
    "rows": [],
}


def test_without_cryptography_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    for call in (
        lambda: write_keys(tmp_path / "key"),
        lambda: sign_certificate(tmp_path / "c.json", tmp_path / "key"),
        lambda: read_trusted([tmp_path / "key.pub"]),
    ):
        with pytest.raises(NotSupportedError, match=r"pip install 'ep-compliance\[sign\]'"):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def files(tmp_path):
    """A certificate and a pair of keys."""
    pytest.importorskip("cryptography", reason="needs the extra `sign`")
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(CERTIFICATE))
    return path, tmp_path / "key", write_keys(tmp_path / "key")


def test_a_private_key_is_for_its_owner_and_never_written_over(files):
    _, key, public = files
    assert public.name == "key.pub"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert "PRIVATE" not in public.read_text()
    before = key.read_bytes(), public.read_bytes()
    with pytest.raises(CertificateError, match="exists already"):
        write_keys(key)
    public.unlink()
    with pytest.raises(CertificateError, match="key exists already"):
        write_keys(key)
    assert key.read_bytes() == before[0]
    assert not public.exists()


def test_keys_need_a_folder_that_can_be_written_to(tmp_path):
    pytest.importorskip("cryptography", reason="needs the extra `sign`")
    with pytest.raises(CertificateError, match=r"can't write .*key"):
        write_keys(tmp_path / "none" / "key")


def test_a_signature_is_of_every_byte(files):
    path, key, public = files
    trusted = read_trusted([public])
    assert "it isn't signed" in untrusted(path, trusted)
    assert sign_certificate(path, key) == signature_path(path) == path.with_name("toy.json.sig")
    assert untrusted(path, trusted) == ""
    path.write_bytes(path.read_bytes() + b"\n")
    assert "isn't a signature of it by a trusted key" in untrusted(path, trusted)
    sign_certificate(path, key)
    assert untrusted(path, trusted) == ""
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "key",
        "key.pub",
        "toy.json",
        "toy.json.sig",
    ]


def test_one_of_several_keys_is_enough_and_a_strangers_is_not(files, tmp_path):
    path, key, public = files
    stranger = write_keys(tmp_path / "stranger")
    sign_certificate(path, key)
    assert "isn't a signature" in untrusted(path, read_trusted([stranger]))
    assert untrusted(path, read_trusted([stranger, public])) == ""


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"x" * 63, b"x" * 1000])
def test_a_broken_signature_is_a_reason_and_no_crash(files, content):
    path, _, public = files
    signature_path(path).write_bytes(content)
    assert untrusted(path, read_trusted([public])) != ""


def test_only_certificates_are_signed(files, tmp_path):
    _, key, _ = files
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(CertificateError, match="format"):
        sign_certificate(other, key)
    assert not signature_path(other).exists()


def test_what_is_no_key_of_the_right_kind_is_refused(files, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    path, key, public = files
    with pytest.raises(CertificateError, match="expected a private Ed25519 key"):
        sign_certificate(path, public)
    with pytest.raises(CertificateError, match="key is a private key; expected a public"):
        read_trusted([key])
    other = ec.generate_private_key(ec.SECP256R1())
    encoding = serialization.Encoding.PEM
    private = other.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    wrong = tmp_path / "wrong"
    wrong.write_bytes(private)
    with pytest.raises(CertificateError, match="got ECPrivateKey"):
        sign_certificate(path, wrong)
    wrong.write_bytes(
        other.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(CertificateError, match="got ECPublicKey"):
        read_trusted([wrong])
    with pytest.raises(CertificateError, match="can't read"):
        read_trusted([tmp_path / "none"])
    locked = serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
        encoding,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    wrong.write_bytes(locked)
    with pytest.raises(CertificateError, match="without a password"):
        sign_certificate(path, wrong)


def test_the_signature_is_ed25519_as_the_standard_has_it(files, monkeypatch):
    """The second test of RFC 8032, 7.1: the one byte 0x72."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path, key, _ = files
    seed = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
    expected = (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    key.write_bytes(
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path.write_bytes(b"\x72")
    monkeypatch.setattr("ep_compliance.certificates.signing.read_certificate", lambda path: None)
    assert sign_certificate(path, key).read_bytes().hex() == expected


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_openssl_agrees(files):
    path, key, public = files
    signature = sign_certificate(path, key)
    command = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", str(public)]
    found = subprocess.run(
        [*command, "-in", str(path), "-sigfile", str(signature)], capture_output=True, check=False
    )
    if b"rawin" in found.stderr:
        pytest.skip("needs OpenSSL 3")
    assert found.returncode == 0, found.stderr
