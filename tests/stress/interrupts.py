"""Exceptions that come from outside at any moment, as Ctrl-C does, into the main thread.

A signal and its handler, and not PyThreadState_SetAsyncExc, which in CPython 3.11 may hit a thread
that is just being started instead of the one that starts it. Left alone is what Python itself
doesn't bear: starting and joining a thread (CPython's bpo-45274 tells of `join`), a thread that was
started and has no owner yet, and finalizers and callbacks of the garbage collector, whose
exceptions it throws away.
"""

from __future__ import annotations

import _weakrefset
import random
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType

__all__ = ["Interrupted", "Interrupter"]


_DELICATE_FILES = (threading.__file__, weakref.__file__, _weakrefset.__file__)
_DELICATE_FUNCTIONS = ("create_stream", "_note_collection")


class Interrupted(KeyboardInterrupt):
    """What the main thread is interrupted by."""


class Interrupter:
    """Interrupts the main thread while it does what may be interrupted; a context manager.

    Attributes:
        count: how often it has.
    """

    def __init__(self, seed: object) -> None:
        self._rng = random.Random(str(seed))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="interrupter", daemon=True)
        self._open = False
        self.count = 0

    def __enter__(self) -> Interrupter:
        self._usual = signal.signal(signal.SIGUSR1, self._handle)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._usual)

    def doing(self, work: Callable[[], object]) -> bool:
        """Do something that may be interrupted; False if it was."""
        try:
            self._open = True
            work()
            self._open = False
        except Interrupted:
            return False
        finally:
            self._open = False
        return True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._open and not _is_delicate(frame):
            self._open = False
            self.count += 1
            raise Interrupted

    def _work(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not self._stop.wait(self._rng.random() * 0.01):
            signal.pthread_kill(main, signal.SIGUSR1)


def _is_delicate(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_filename in _DELICATE_FILES or code.co_name in _DELICATE_FUNCTIONS:
            return True
        frame = frame.f_back
    return False
