"""Which instructions the host's processor has, as far as they bear on what kernels compute.

Compilers of OpenCL's drivers for processors pick vectors, and whether a multiplication and an
addition are one operation, by these. Integers are exact with all of them.
"""

from __future__ import annotations

import hashlib
import platform
from functools import lru_cache
from pathlib import Path

__all__ = ["architecture", "instruction_set", "processor_flags", "short_hash"]

_CPUINFO = Path("/proc/cpuinfo")
_ARCHITECTURES = {"amd64": "x86_64", "aarch64": "arm64"}

# From the widest down, each with the flags of /proc/cpuinfo that it takes.
_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("avx512", ("avx512f", "avx512dq", "avx512bw", "avx512vl")),
    ("avx2", ("avx2", "fma")),
    ("avx", ("avx",)),
    ("sse4.2", ("sse4_2",)),
    ("sve", ("sve",)),
    ("neon", ("asimd",)),
)


@lru_cache(maxsize=1)
def processor_flags() -> str:
    """Everything that Linux says the first core can do; empty elsewhere."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return value.strip()
    return ""


def architecture() -> str:
    """`x86_64`, `arm64`, or what the system calls it."""
    machine = platform.machine().lower()
    return _ARCHITECTURES.get(machine, machine)


def instruction_set(flags: str, lanes: int) -> str:
    """The widest set that drivers compile for.

    Args:
        flags: as `processor_flags` gives them.
        lanes: 32-bit floats in the registers that the driver tells of, for where there are none.
    """
    known = set(flags.split())
    found = next((name for name, needed in _LEVELS if known.issuperset(needed)), "")
    return found or f"vectors of {lanes}"


def short_hash(text: str) -> str:
    """Some letters that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
