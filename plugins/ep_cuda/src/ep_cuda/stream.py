"""Streams and events of CUDA.

Work that fails is reported by the event or the stream at the next synchronisation. Memory that was
given back on a stream is free for others as soon as an event tells that the stream got there.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pycuda.driver as drv

from ep_core.contracts import Event
from ep_core.errors import ContractError
from ep_cuda.context import abandon, check_process, is_forked
from ep_cuda.device import OpenDevice
from ep_cuda.events import PooledEvent, Word
from ep_sdk.device_kernels.faults import fault_error

__all__ = ["CudaEvent", "CudaStream"]

_NUMBERS = itertools.count()
_WORD_BYTES = 4

_CLOCK_SECONDS = 1.0
"""How long marks are told from one reading of the clock: the driver tells milliseconds as a float
of 24 bits, which are 60 nanoseconds after a second."""


class CudaEvent:
    """A point in the work of a stream; meets `ep_core.contracts.Event`."""

    __slots__ = ("_event", "_fault", "_position", "stream")

    def __init__(
        self, stream: CudaStream, event: PooledEvent, position: int, fault: Word | None
    ) -> None:
        self.stream = stream
        self._event = event
        self._position = position
        self._fault = fault

    @property
    def raw(self) -> drv.Event:
        """Pycuda's object."""
        return self._event.raw

    def done(self) -> bool:
        """True once all work before it is over, also if it failed."""
        with self.stream.device.context.doing("asking for the state of an event"):
            try:
                over = bool(self.raw.query())
            except drv.Error:
                # The work has failed, so it is over; who waits for it is told.
                return True
        if over:
            self.stream.passed(self._position)
        return over

    def synchronize(self) -> None:
        """Block until it has happened; raise the error that work before it met."""
        with self.stream.device.context.doing(f"waiting for {self.stream.name}"):
            self.raw.synchronize()
        self.stream.passed(self._position)
        if self._fault is not None and self._fault.array[0]:
            self.stream.heard()
            raise fault_error(self._fault.array)


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of which the device keeps the time.

    Attributes:
        event: has the time.
        origin: from which it is told.
        origin_nanoseconds: when that was, in `time.perf_counter_ns`.
    """

    event: PooledEvent
    origin: PooledEvent
    origin_nanoseconds: int


class CudaStream:
    """An in-order stream; meets `ep_sdk.device_kernels.contracts.DeviceStream`.

    Attributes:
        name: no other stream has it.
        rehearses: False, work is done.

    Args:
        device: whose stream it is.
        on_close: called once, with the stream, when it is closed.
    """

    rehearses: ClassVar[bool] = False

    def __init__(self, device: OpenDevice, on_close: Callable[[CudaStream], None]) -> None:
        self.device = device
        self.name = f"{device.memory.device} stream {next(_NUMBERS)}"
        self._on_close = on_close
        self._queue: drv.Stream | None = device.take_queue()
        self._lock = threading.Lock()
        self._position = 0
        self._origin: tuple[PooledEvent, int] | None = None
        self._fault_memory: drv.DeviceAllocation | None = None
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def queue(self) -> drv.Stream:
        """Pycuda's stream.

        Raises:
            ContractError: the stream is closed.
            DeviceLostError: this process was forked from the one that made it.
        """
        queue = self._queue
        if queue is None:
            raise ContractError(f"{self.name} was used after it was closed")
        check_process()
        return queue

    def record(self) -> CudaEvent:
        """An event after everything submitted so far."""
        queue = self.queue
        with self.device.context.doing(f"recording an event of {self.name}"):
            fault = self._read_fault()
            event = self.device.points.take()
            with self._lock:
                event.raw.record(queue)
                return CudaEvent(self, event, self._position, fault)

    def copy_bytes(
        self, source: int, source_start: int, target: int, target_start: int, nbytes: int
    ) -> None:
        """Copy inside the device's memory, in order; starts and length in bytes."""
        queue = self.queue
        with self.device.context.doing("copying inside the device"):
            drv.memcpy_dtod_async(target + target_start, source + source_start, nbytes, queue)

    def mark(self) -> Mark:
        """A point of which the device keeps the time."""
        queue = self.queue
        with self.device.context.doing(f"marking {self.name}"):
            origin, when = self._read_clock(queue)
            event = self.device.marks.take()
            event.raw.record(queue)
        return Mark(event, origin, when)

    def host_time(self, mark: Mark) -> int:
        """When a mark was reached, in nanoseconds of `time.perf_counter_ns`."""
        with self.device.context.doing("asking for the time of a mark"):
            milliseconds: float = mark.event.raw.time_since(mark.origin.raw)
        return mark.origin_nanoseconds + round(milliseconds * 1e6)

    def fault_word(self) -> int:
        """The address of an int, 0 so far, into which kernels write what they met."""
        if self._fault_memory is None:
            with self.device.context.doing("making a word for faults"):
                self._fault_memory = drv.mem_alloc(_WORD_BYTES)
            self.heard()
        return int(self._fault_memory)

    def heard(self) -> None:
        """The host knows of the fault: later work starts with none."""
        queue = self._queue
        if self._fault_memory is not None and queue is not None:
            with self.device.context.doing("clearing a fault"):
                drv.memset_d32_async(int(self._fault_memory), 0, 1, queue)

    def wait(self, event: Event) -> None:
        """Let later work wait for `event`; the host waits for events of other providers."""
        if not isinstance(event, CudaEvent):
            event.synchronize()
            return
        if event.stream is self:
            return
        queue = self.queue
        with self.device.context.doing(f"letting {self.name} wait"):
            if event.stream.device is self.device:
                queue.wait_for_event(event.raw)
            else:
                event.raw.synchronize()

    def synchronize(self) -> None:
        """Block until the stream is empty; raise the error that work on it met."""
        queue = self._queue
        if queue is None:
            # Closing has waited for the work.
            return
        with self.device.context.doing(f"waiting for {self.name}"):
            fault = self._read_fault()
            with self._lock:
                position = self._position
            queue.synchronize()
        self.passed(position)
        if fault is not None and fault.array[0]:
            self.heard()
            raise fault_error(fault.array)

    def close(self) -> None:
        """Finish the work; twice without harm."""
        with self._lock:
            queue, self._queue = self._queue, None
        if queue is None:
            return
        try:
            if is_forked():
                abandon((queue, self._fault_memory))
            else:
                self._finish(queue)
        finally:
            self.passed(self._position)
            self._on_close(self)

    def when_passed(self, action: Callable[[], None]) -> bool:
        """Have `action` done once the work submitted so far is known to be over.

        Returns False if the stream is closed.
        """
        with self._lock:
            if self._queue is None:
                return False
            self._position += 1
            self._waiting.append((self._position, action))
        return True

    def keep(self, item: object) -> None:
        """Keep something alive until the work submitted so far is over."""
        if not self.when_passed(partial(_ignore, item)):
            raise ContractError(f"{self.name} was closed while it was used")

    def passed(self, position: int) -> None:
        """The work up to a position is over: do what waited for it."""
        while True:
            with self._lock:
                if not self._waiting or self._waiting[0][0] > position:
                    return
                action = self._waiting.popleft()[1]
            action()

    def _finish(self, queue: drv.Stream) -> None:
        """Wait for the work, and let go of what the stream had; after an error nothing is kept."""
        with self.device.context.doing(f"closing {self.name}"):
            queue.synchronize()
            if self._fault_memory is not None:
                self._fault_memory.free()
                self._fault_memory = None
        self.device.give_queue(queue)

    def _read_fault(self) -> Word | None:
        """Have the fault word read after the work so far; None if no kernel could meet one."""
        if self._fault_memory is None:
            return None
        word = self.device.words.take()
        drv.memcpy_dtoh_async(word.array, int(self._fault_memory), self.queue)
        self.keep(word)
        return word

    def _read_clock(self, queue: drv.Stream) -> tuple[PooledEvent, int]:
        """A recent point and its time on the host; the host waits for the device once a second."""
        now = time.perf_counter_ns()
        if self._origin is None or now - self._origin[1] > _CLOCK_SECONDS * 1e9:
            origin = self.device.marks.take()
            origin.raw.record(queue)
            origin.raw.synchronize()
            self._origin = origin, time.perf_counter_ns()
        return self._origin


def _ignore(item: object) -> None:
    """Do nothing; the item was kept until here."""
