"""How many processors this process may use. Must import neither numpy nor anything of ours."""

from __future__ import annotations

import os

__all__ = ["usable_cores"]


def usable_cores() -> int:
    """The processors that the scheduler gives this process; all there are where it can't tell."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only some systems have it
        return os.cpu_count() or 1
