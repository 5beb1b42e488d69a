"""Makes the certificate of a run: canonical JSON, equal for equal runs, in the core's format."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from ep_compliance.running.results import Results
from ep_core.certificates.content import content_hash
from ep_core.certificates.file import read_certificate
from ep_core.certificates.lookup import numerics_options
from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.discovery.options import parse_options
from ep_core.errors import CertificateError

__all__ = ["canonical", "certificate_of", "file_name", "write_certificate"]


def certificate_of(
    results: Results, distribution: Distribution, info: ProviderInfo
) -> dict[str, Any]:
    """Return the certificate that a run earns, as JSON data.

    Raises:
        CertificateError: the run earns none, with every reason.
    """
    if results.blockers:
        reasons = "".join(f"\n  {reason}" for reason in results.blockers)
        raise CertificateError(f"no certificate for {results.target.provider!r}:{reasons}")
    rows = results.rows
    if not rows:
        raise CertificateError(
            f"no certificate for {results.target.provider!r}: no operator passed all its cases"
        )
    speed = results.device.speed
    return {
        "format": 1,
        "provider": results.target.provider,
        "distribution": distribution.metadata["Name"],
        "version": distribution.version,
        "content_hash": content_hash(distribution),
        "api_from": [API_VERSION[0], 0],
        "api_until": list(API_VERSION),
        "device_fingerprint": results.device.fingerprint,
        "kit_version": results.kit_version,
        "cases_hash": results.cases_hash,
        "results_hash": results.results_hash,
        "level": results.level.name.lower(),
        "date": results.date,
        "options": numerics_options(info, parse_options(info, results.target.options)),
        "waivers": [waiver.record for waiver in sorted(results.waivers, key=lambda w: w.id)],
        "overrides": [item.record for item in sorted(results.overrides, key=lambda o: o.case_id)],
        "rows": [row.record for row in rows],
        **({} if speed is None else {"speed": dataclasses.asdict(speed)}),
    }


def canonical(certificate: Mapping[str, Any]) -> str:
    """The text of a certificate: keys sorted, one row per line so that changes show in a diff."""
    rows = certificate["rows"]
    head = json.dumps({**certificate, "rows": []}, indent=1, sort_keys=True, ensure_ascii=False)
    lines = ",\n".join(
        "  " + json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        for row in rows
    )
    return head.replace(' "rows": []', f' "rows": [\n{lines}\n ]', 1) + "\n"


def file_name(certificate: Mapping[str, Any]) -> str:
    """Provider, device and options, so that certificates for several of them lie side by side."""
    parts = [certificate["device_fingerprint"]]
    parts += [f"{name} {value}" for name, value in sorted(certificate["options"].items())]
    named = ["".join(c if c.isalnum() else "-" for c in part).strip("-")[:60] for part in parts]
    return "-".join([certificate["provider"], *named]) + ".json"


def write_certificate(certificate: Mapping[str, Any], folder: Path) -> Path:
    """Write a certificate into a folder, at once or not at all, and read it back.

    Raises:
        CertificateError: the folder can't be written to, or the core can't read what was written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(canonical(certificate))
        # Temporary files are private; a certificate is for everybody.
        Path(temporary).chmod(0o644)
        path = folder / file_name(certificate)
        read_certificate(Path(temporary))
        Path(temporary).replace(path)
    except OSError as error:
        raise CertificateError(f"can't write a certificate into {folder}: {error}") from error
    return path
