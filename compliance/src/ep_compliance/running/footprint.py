"""How much memory this process has needed at most."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["peak_bytes"]

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int | None:
    """The largest resident set of this process so far, in bytes; None where it can't be told."""
    # Linux's getrusage starts from the peak of the process that started this one.
    if sys.platform == "linux":
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return None
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, everybody else KiB.
    return peak if sys.platform == "darwin" else peak * 1024
