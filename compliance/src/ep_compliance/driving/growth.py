"""Whether something that is done over and over leaves anything behind.

Memory, device memory, file descriptors and threads are counted before and after.
"""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ep_compliance.driving.findings import Broken
from ep_core.contracts import ExecutionProvider

__all__ = ["check_growth"]

_BYTES_PER_CYCLE = 640
"""Less than any tensor here; caches that fill up slowly stay below it."""

_WARM_UP = 5


def check_growth(
    provider: ExecutionProvider | None,
    cycle: Callable[[], Any],
    count: int,
    what: str,
    bytes_per_cycle: int = _BYTES_PER_CYCLE,
) -> None:
    """Do `cycle` `count` times.

    Args:
        provider: whose device memory is counted too, None for nobody's.
        what: the name of what is done, in plural.
        bytes_per_cycle: so much memory, as Python counts it, may be left on average.

    Raises:
        Broken: something has grown.
    """
    for _ in range(_WARM_UP):
        cycle()
    gc.collect()
    allocator = None if provider is None else provider.allocator
    device = 0 if allocator is None else allocator.stats().in_use_bytes
    before = (_threads(), _descriptors(), _resident())
    tracemalloc.start(1)
    try:
        traced = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            cycle()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - traced
    finally:
        tracemalloc.stop()
    after = (_threads(), _descriptors(), _resident())
    if allocator is not None and allocator.stats().in_use_bytes > device:
        kept = allocator.stats().in_use_bytes - device
        raise Broken(f"{count} {what} leave {kept} bytes of device memory in use")
    for was, now, name in zip(before[:2], after[:2], ("threads", "file descriptors"), strict=True):
        if now > was + 2:
            raise Broken(f"{count} {what} leave {now - was} {name} open")
    if grown > count * bytes_per_cycle:
        raise Broken(f"{count} {what} leave {grown} bytes of memory allocated")
    # What isn't traced (a vendor's library) shows in the process only; its allocator is coarse.
    if after[2] - before[2] > 2**24 + count * 2**15:
        raise Broken(f"{count} {what} let the process grow by {after[2] - before[2]} bytes")


def _threads() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def _descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def _resident() -> int:
    """Bytes of the process in memory, 0 where the system doesn't say."""
    path = Path("/proc/self/statm")
    if not path.exists():
        return 0
    return int(path.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
