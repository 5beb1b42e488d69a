"""What was measured, kept in files: one per device, provider and options, written whole or not.

A file is JSON: a format, what it is bound to, and seconds by key. Several processes may share a
folder; what one of them writes while another does is at worst measured again. Nothing here knows
graphs, and nothing raises OSError: without its file a store remembers for its own life only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import platform
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ep_core.artifacts.binding import text_of
from ep_core.cores import usable_cores
from ep_core.discovery.registry import registry
from ep_core.discovery.verdicts import required_versions, write_atomically
from ep_core.partition import Candidate

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["CostStore", "binding_of"]

FORMAT = 1
"""Of the file, of its keys, and of how it is measured."""

_LOG = logging.getLogger("ep_core")
_MOST_ENTRIES = 20_000
"""Kept in one file; the oldest go first."""
_MOST_BYTES = 2**22
"""Of a file that is read: twice what the most entries take."""
_MOST_SECONDS = 1e17
"""Of an entry; bytes per second are among them, which `Bench.copying` keeps below this."""
_MOST_FILES = 64
"""Kept in one folder; the ones that were written longest ago go first."""
_WRITING = threading.Lock()


class CostStore:
    """Seconds by key, None for what can't be measured.

    Args:
        folder: where the file is or will be; None remembers nothing.
        binding: what the seconds hold for, in a fixed order; None likewise.
    """

    def __init__(self, folder: Path | None, binding: Sequence[str] | None) -> None:
        self._binding = list(binding or ())
        name = hashlib.sha256("\0".join(self._binding).encode("utf-8", "surrogatepass"))
        self._path = None
        if folder is not None and binding is not None:
            self._path = folder / f"costs-{name.hexdigest()[:32]}.json"
        self._seconds = self._read()
        self._new: dict[str, float | None] = {}

    def knows(self, key: str) -> bool:
        """True if the key was measured, or measuring it failed."""
        return key in self._seconds

    def get(self, key: str) -> float | None:
        """The seconds of a key, None if there are none."""
        return self._seconds.get(key)

    def put(self, key: str, seconds: float | None) -> None:
        """Remember a measurement; `save` makes it last."""
        self._seconds[key] = self._new[key] = seconds

    def save(self) -> None:
        """Write what is new beside what others wrote meanwhile; a failure is a warning."""
        if self._path is None or not self._new:
            return
        try:
            with _WRITING:
                found = self._read() | self._new
                kept = dict(list(found.items())[-_MOST_ENTRIES:])
                data = {"format": FORMAT, "binding": self._binding, "seconds": kept}
                write_atomically(self._path, json.dumps(data, indent=0).encode())
                _remove_oldest(self._path)
            self._new.clear()
        except (OSError, ValueError) as error:
            _LOG.warning("measured costs can't be kept in %s: %s", self._path.parent, error)

    def _read(self) -> dict[str, float | None]:
        """What the file holds; a file that is damaged or of somebody else counts as empty."""
        if self._path is None:
            return {}
        try:
            status = self._path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
                raise ValueError("it isn't a file of ours")
            return _checked(json.loads(self._path.read_bytes()), self._binding)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, ArithmeticError, RecursionError) as error:
            _LOG.warning("measured costs in %s aren't used: %s", self._path, error)
            return {}


def _checked(data: Any, binding: list[str]) -> dict[str, float | None]:
    """Raises ValueError with what is wrong with a file's content."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError("it is of another format")
    if data.get("binding") != binding:
        raise ValueError("it belongs to another device or provider")
    seconds = data.get("seconds")
    if not isinstance(seconds, dict):
        raise ValueError("it holds no seconds by key")
    for value in seconds.values():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value <= _MOST_SECONDS):
            raise ValueError("an entry is no number of seconds")
    return {key: None if value is None else float(value) for key, value in seconds.items()}


def _remove_oldest(newest: Path) -> None:
    """Keep the folder small; another process may be quicker, or have a file open (Windows).

    What a killed process left half written counts too. The newest stays whatever the clock says.
    """
    found = []
    for path in newest.parent.glob("costs-*"):
        with contextlib.suppress(OSError):
            found.append((path == newest, path.lstat().st_mtime_ns, path))
    for _, _, path in sorted(found)[:-_MOST_FILES]:
        with contextlib.suppress(OSError):
            path.unlink()


def binding_of(candidate: Candidate) -> list[str] | None:
    """What the costs of an open provider hold for; None, logged, where that can't be told.

    The host counts too: its processor's kind and how much of it may be used.
    """
    try:
        info, device = candidate.info, candidate.provider.device
        return [
            f"ep-core costs {FORMAT}",
            f"{info.name} {info.version} {info.api_version}",
            *_requirements(registry().distribution(info.name)),
            f"python {sys.implementation.cache_tag}",
            f"host {platform.machine()}, {usable_cores()} cores",
            f"device {device.id} {device.kind} {device.vendor} {device.name}",
            device.fingerprint,
            repr(sorted((str(key), str(text)) for key, text in device.properties.items())),
            *(
                f"{name}={text_of(name, value)}"
                for name, value in sorted(candidate.options.items())
            ),
        ]
    except Exception as error:  # noqa: BLE001 - metadata and options are foreign
        _LOG.info("costs of %r are measured in each session: %s", candidate.name, error)
        return None


def _requirements(distribution: Distribution | None) -> list[str]:
    """What the provider is made of: it may be as fast as the libraries that it calls."""
    return sorted(required_versions(distribution)) if distribution is not None else []
