"""What the host's processor is, as far as the system tells: for fingerprints and speeds."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

__all__ = ["architecture", "processor_facts", "widest_level"]

_CPUINFO = Path("/proc/cpuinfo")
_ARCHITECTURES = {"amd64": "x86_64", "aarch64": "arm64"}
_NAMES = {
    "vendor_id": "vendor",
    "model name": "name",
    "flags": "flags",
    "Features": "flags",
    "cpu MHz": "megahertz",
}


@lru_cache(maxsize=1)
def processor_facts() -> Mapping[str, str]:
    """Facts of the first core as Linux tells them, read once; empty texts for what it doesn't.

    Returns:
        `vendor`, `name`, `megahertz`, and `flags`: everything that it can do, divided by blanks.
    """
    facts = dict.fromkeys(_NAMES.values(), "")
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        name = _NAMES.get(key.strip())
        if name is not None and not facts[name]:
            facts[name] = value.strip()
    return MappingProxyType(facts)


def architecture() -> str:
    """`x86_64`, `arm64`, or what the system calls it."""
    machine = platform.machine().lower()
    return _ARCHITECTURES.get(machine, machine)


def widest_level(flags: str, levels: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The first level whose needs are all met; empty where there is none.

    Args:
        flags: as in `processor_facts`.
        levels: from the widest down, each with the flags that it needs.
    """
    known = set(flags.split())
    return next((name for name, needed in levels if known.issuperset(needed)), "")
