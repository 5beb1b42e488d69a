"""A few threads for runs that the caller doesn't wait for; started when the first is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ep_core.errors import RunError, SessionClosedError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Background"]

_THREADS = 4


class Background:
    """The threads of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._threads: set[int] = set()
        self._closed = False

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Have `work` done by one of the threads, in its turn.

        Raises:
            SessionClosedError: after `close`.
            RunError: the process has no thread for it, as when it ends.
        """
        # Not needed by who never asks for it, and not small.
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._closed:
                raise SessionClosedError("the session is closed", fix="Create a new one.")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "ep_core run", self._enter)
            try:
                return self._pool.submit(work)
            except RuntimeError as error:
                raise RunError(
                    f"a run in the background can't start: {error}",
                    fix="Use run(); there is no thread for it, or the process is ending.",
                ) from error

    def close(self) -> None:
        """Let the threads finish and end; twice without harm. They may call it themselves."""
        with self._lock:
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.shutdown(wait=threading.get_ident() not in self._threads)

    def _enter(self) -> None:
        self._threads.add(threading.get_ident())
