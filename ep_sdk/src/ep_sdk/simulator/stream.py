"""Streams and events of the simulator: one worker thread per stream, which works in order.

An error makes the stream skip whatever was submitted before the host heard of it; events still
happen and are waited for, and memory is still freed, so nothing hangs or is freed too early. The
host hears of an error once per stream; an event that the error reached keeps it, because what it
stands for was never computed. What is kept must not keep what frames on the way of the error refer
to: feeds, results, arrays of kernels.
"""

from __future__ import annotations

import copy
import itertools
import queue
import threading
import traceback
from collections.abc import Callable
from typing import NamedTuple

from ep_core.contracts import Event
from ep_core.errors import ContractError, DeviceLostError, EpError, RunError
from ep_sdk.simulator.device import SimulatedDevice

__all__ = ["SimulatorEvent", "SimulatorStream"]

_NUMBERS = itertools.count()


class _Work(NamedTuple):
    """One entry of a queue.

    Attributes:
        term: submitted before or after which error was heard of; counts upwards.
        always: done even after an error.
    """

    action: Callable[[], None]
    term: int
    always: bool


class SimulatorEvent:
    """A point in the work of a stream; meets `ep_core.contracts.Event`."""

    def __init__(self, stream: SimulatorStream) -> None:
        self._stream = stream
        # Held until it happens: unlike a threading.Event, a lock is safe from interrupts.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._done = False
        self._error: Exception | None = None

    def done(self) -> bool:
        """True once all work before it is over, also if it failed."""
        return self._done

    def synchronize(self) -> None:
        """Block until it has happened; raise the error that work before it met."""
        error = self.wait_quietly()
        self._stream.device.check()
        if error is not None:
            self._stream.heard(error)
            raise _like(error)

    def wait_quietly(self) -> Exception | None:
        """Block until it has happened; return the error instead of raising it."""
        with self._gate:
            return self._error

    def happen(self, error: Exception | None) -> None:
        """Called by the worker when it gets here."""
        self._error = error
        self._done = True
        self._gate.release()


class SimulatorStream:
    """A queue with a worker thread; meets `ep_core.contracts.Stream`.

    Attributes:
        name: no other stream has it.

    Args:
        device: whose stream it is.
        on_close: called once, with the stream, when it is closed.
    """

    def __init__(
        self, device: SimulatedDevice, on_close: Callable[[SimulatorStream], None]
    ) -> None:
        self.device = device
        self.name = f"stream {next(_NUMBERS)}"
        self._on_close = on_close
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._term = 0
        self._spoiled_term = -1
        self._error: Exception | None = None
        self._unheard = False
        self._thread = threading.Thread(
            target=self._serve, name=f"{device.memory.device} stream", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:
            # An interrupt while it starts: nobody will know the stream, so nobody would close it.
            self._queue.put(None)
            raise

    def submit(self, action: Callable[[], None]) -> None:
        """Append work; it is skipped if work before it fails.

        Raises:
            DeviceLostError: the device is lost.
            ContractError: the stream is closed.
        """
        self.device.check()
        self._append(action, always=False)

    def submit_release(self, action: Callable[[], None]) -> bool:
        """Append work that happens even after an error; False if the stream is closed."""
        try:
            self._append(action, always=True)
        except ContractError:
            return False
        return True

    def record(self) -> SimulatorEvent:
        """An event after everything submitted so far."""
        self.device.check()
        return self._append_event()

    def wait(self, event: Event) -> None:
        """Let later work wait for `event`, of any provider; the host goes on.

        It does so after an error too: memory that is released later may be in use until then.
        """
        self.device.check()
        with self._lock:
            term = self._term

        def wait_for() -> None:
            error = _outcome(event)
            if error is None or term <= self._spoiled_term:
                return
            if not isinstance(event, SimulatorEvent) or isinstance(error, DeviceLostError):
                raise _like(error)
            raise RunError(f"skipped, because work that it waits for failed: {error}")

        self._append(wait_for, always=True)

    def synchronize(self) -> None:
        """Block until the queue is empty; raise the first error since the last one heard of."""
        try:
            self._append_event().wait_quietly()
        except ContractError:
            # Closed: the queue is empty by definition.
            self._thread.join()
        self.device.check()
        with self._lock:
            error = self._error if self._unheard else None
        if error is not None:
            self.heard(error)
            raise _like(error)

    def heard(self, error: Exception) -> None:
        """The host knows of `error`: what is submitted from now on runs again."""
        with self._lock:
            if self._unheard and error is self._error:
                self._unheard = False
                self._term += 1

    def close(self) -> None:
        """Finish the work and end the thread; twice without harm."""
        with self._lock:
            first = not self._closed
            self._closed = True
            if first:
                self._queue.put(None)
        self._thread.join()
        if first:
            self._on_close(self)

    def _append_event(self) -> SimulatorEvent:
        event = SimulatorEvent(self)
        with self._lock:
            term = self._term

        def happen() -> None:
            event.happen(self._error if term <= self._spoiled_term else None)

        self._append(happen, always=True)
        return event

    def _append(self, action: Callable[[], None], *, always: bool) -> None:
        with self._lock:
            if self._closed:
                raise ContractError(
                    f"a stream of {self.device.memory.device} was used after it was closed"
                )
            self._queue.put(_Work(action, self._term, always))

    def _serve(self) -> None:
        """The worker: do the work in order until the stream is closed."""
        while True:
            work = self._queue.get()
            if work is None:
                return
            if work.term <= self._spoiled_term and not work.always:
                continue
            try:
                work.action()
            except Exception as error:  # noqa: BLE001 - the host hears of it when it synchronises
                self._fail(error, work.term)
            # A waiting worker must not keep the memory of its last work alive.
            del work

    def _fail(self, error: Exception, term: int) -> None:
        known = (
            error
            if isinstance(error, EpError)
            else RunError(
                f"work on {self.device.memory.device} failed: {type(error).__name__}: {error}"
            )
        )
        if known is not error:
            known.__cause__ = error
        _drop_frames(known)
        with self._lock:
            if not self._unheard:
                self._error = known
                self._unheard = True
            self._spoiled_term = max(self._spoiled_term, term)


def _outcome(event: Event) -> Exception | None:
    """Block until an event has happened; return what work before it met."""
    if isinstance(event, SimulatorEvent):
        return event.wait_quietly()
    try:
        event.synchronize()
    except Exception as error:  # noqa: BLE001 - told by whoever waits
        return error
    return None


def _drop_frames(error: BaseException) -> None:
    """Tell as text where an error and what led to it came from, and let go of the frames."""
    for one in (error.__cause__, error):
        if one is not None and one.__traceback__ is not None:
            lines = traceback.format_tb(one.__traceback__)
            error.add_note(f"on the stream's thread, {type(one).__name__}:\n{''.join(lines)}")
            one.__traceback__ = None


def _like(error: Exception) -> Exception:
    """An equal error, to be raised in place of one that is kept."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh
