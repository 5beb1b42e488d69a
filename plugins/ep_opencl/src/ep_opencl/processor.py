"""Which instructions the host's processor has, as far as they bear on what kernels compute.

Compilers of OpenCL's drivers for processors pick vectors, and whether a multiplication and an
addition are one operation, by these. Integers are exact with all of them.
"""

from __future__ import annotations

import hashlib

from ep_sdk.processor import widest_level

__all__ = ["instruction_set", "short_hash"]

# From the widest down, each with the flags of /proc/cpuinfo that it takes.
_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("avx512", ("avx512f", "avx512dq", "avx512bw", "avx512vl")),
    ("avx2", ("avx2", "fma")),
    ("avx", ("avx",)),
    ("sse4.2", ("sse4_2",)),
    ("sve", ("sve",)),
    ("neon", ("asimd",)),
)


def instruction_set(flags: str, lanes: int) -> str:
    """The widest set that drivers compile for.

    Args:
        flags: as `processor_facts` gives them.
        lanes: 32-bit floats in the registers that the driver tells of, for where there are none.
    """
    return widest_level(flags, _LEVELS) or f"vectors of {lanes}"


def short_hash(text: str) -> str:
    """Some letters that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
