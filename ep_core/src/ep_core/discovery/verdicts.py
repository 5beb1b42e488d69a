"""Remembered verdicts of probes: one small JSON file per provider and environment.

A verdict holds as long as the distribution, what it requires and the interpreter stay the same.
Forgetting is always harmless: the provider is probed again. Nothing here starts a process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ep_core.discovery.plugins import PluginEntry, source_files
from ep_core.discovery.probe import Outcome, Verdict

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_FORMAT = 1
_LASTING = (Outcome.SURVIVED, Outcome.CRASHED, Outcome.HUNG)


def cache_folder() -> Path:
    """The user's cache folder: `EP_CACHE_DIR`, else `XDG_CACHE_HOME/ep_core`, else `~/.cache/...`.

    It may not exist or not be writable. Raises RuntimeError where there is no home folder.
    """
    chosen = os.environ.get("EP_CACHE_DIR")
    if chosen:
        return Path(chosen)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "ep_core"


def fingerprint(distribution: Distribution) -> str:
    """Digest of what decides whether a plugin crashes: files, requirements, interpreter, kernel.

    Drivers can't be asked without the vendor's library; most change together with the kernel.
    """
    parts = [distribution.metadata["Name"], distribution.version, sys.version, platform.release()]
    parts.extend(required_versions(distribution))
    parts.append(distribution.read_text("entry_points.txt") or "")
    parts.append(distribution.read_text("RECORD") or "")
    for name, path in sorted(source_files(distribution).items()):
        state = path.stat()
        parts.append(f"{name} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def recall(entry: PluginEntry, limit: float) -> Verdict | None:
    """Return the remembered verdict if it still holds; a longer limit gives a hang a chance."""
    try:
        data = json.loads(_file(entry).read_text(encoding="utf-8"))
        digest = _fingerprint_of(entry)
        if data["format"] != _FORMAT or digest is None or data["fingerprint"] != digest:
            return None
        verdict = Verdict(Outcome(data["outcome"]), str(data["reason"]), float(data["limit"]))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None
    if verdict.outcome is Outcome.HUNG and limit > verdict.limit:
        return None
    return verdict


def remember(entry: PluginEntry, verdict: Verdict) -> None:
    """Write a lasting verdict; where the folder can't be written nothing is remembered."""
    digest = _fingerprint_of(entry)
    if verdict.outcome not in _LASTING or digest is None:
        return
    with contextlib.suppress(OSError, RuntimeError):
        data = {
            "format": _FORMAT,
            "provider": entry.name,
            "distribution": entry.package,
            "fingerprint": digest,
            "outcome": verdict.outcome.value,
            "reason": verdict.reason,
            "limit": verdict.limit,
        }
        write_atomically(_file(entry), json.dumps(data, indent=1).encode())


def forget(entry: PluginEntry) -> None:
    """Remove the remembered verdict, if any."""
    with contextlib.suppress(OSError, RuntimeError):
        _file(entry).unlink(missing_ok=True)


def _file(entry: PluginEntry) -> Path:
    """Environments with the same packages in different places don't overwrite each other."""
    assert entry.metadata is not None
    place = str(entry.metadata.locate_file(""))
    key = "\0".join([entry.name, entry.distribution, place, str(sys.implementation.cache_tag)])
    return cache_folder() / "probes" / (hashlib.sha256(key.encode()).hexdigest()[:32] + ".json")


def _fingerprint_of(entry: PluginEntry) -> str | None:
    """None where the distribution's metadata is too damaged to tell."""
    assert entry.metadata is not None
    try:
        return fingerprint(entry.metadata)
    except Exception:  # noqa: BLE001 - metadata and import hooks are foreign
        return None


def required_versions(distribution: Distribution) -> Iterator[str]:
    """Yield name and installed version of everything that a distribution may require."""
    from importlib.metadata import PackageNotFoundError, version

    for requirement in distribution.requires or ():
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} is missing"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and its folder if it isn't there; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
