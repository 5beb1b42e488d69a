"""The same work on many threads at once, with a limit to how long it may take.

Knows threads and findings; knows nothing of providers.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from ep_compliance.driving.findings import Broken, NotClaimed, text_of

__all__ = ["PATIENCE_SECONDS", "on_threads"]

PATIENCE_SECONDS = 60.0
"""After this time something hangs; the slowest work here takes a tenth of it."""

_SWITCH_SECONDS = 1e-5
"""Threads take turns so often; usually it is five hundred times as long, and races are rare."""


def on_threads(
    work: Callable[[int], None], count: int, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Call `work` with 0, 1, ... on `count` threads, and raise what the first of them raised.

    Raises:
        Broken: a thread hangs, or has raised anything but a finding.
        NotClaimed: as raised by `work`.
    """
    failures: list[Exception] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - raised below, on the check's own thread
            failures.append(error)

    crowd = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    with _restless():
        for thread in crowd:
            thread.start()
        deadline = time.monotonic() + patience_seconds
        for thread in crowd:
            thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in crowd):
        raise Broken(f"threads hang for more than {patience_seconds:g} s")
    if failures:
        first = failures[0]
        raise first if isinstance(first, Broken | NotClaimed) else Broken(text_of(first))


@contextlib.contextmanager
def _restless() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
