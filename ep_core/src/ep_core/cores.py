"""The processors this process may use. Must import neither numpy nor anything of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["map_in_threads", "usable_cores"]

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def usable_cores() -> int:
    """The processors that the scheduler gives this process; all there are where it can't tell."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only some systems have it
        return os.cpu_count() or 1


def map_in_threads(call: Callable[[_Job], _Result], jobs: Sequence[_Job]) -> list[_Result]:
    """Results in order of calls that leave Python's lock to others, on all usable processors.

    A call may happen twice, where no thread can be started any more.
    """
    threads = min(usable_cores(), len(jobs))
    if threads < 2:
        return [call(job) for job in jobs]
    from concurrent.futures import ThreadPoolExecutor

    try:
        with ThreadPoolExecutor(threads, "ep-core") as pool:
            return list(pool.map(call, jobs))
    except RuntimeError:  # too many threads, or the interpreter is ending
        return [call(job) for job in jobs]
