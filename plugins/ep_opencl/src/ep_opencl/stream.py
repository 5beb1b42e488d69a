"""Streams and events of OpenCL: one in-order queue per stream.

Work that fails is reported by the event or the queue at the next synchronisation. Memory that was
given back on a stream is free for others as soon as an event tells that the stream got there.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
import pyopencl as cl

from ep_core.contracts import Event, HostArray
from ep_core.errors import ContractError, DeviceLostError
from ep_opencl.device import OpenDevice
from ep_opencl.failures import explained
from ep_opencl.runtimes import FORKED, is_forked
from ep_sdk.device_kernels.faults import fault_error

__all__ = ["OpenCLEvent", "OpenCLStream"]

_NUMBERS = itertools.count()


def check_process() -> None:
    """Raise DeviceLostError in a process that was forked from the one that loaded the drivers."""
    if is_forked():
        raise DeviceLostError(
            FORKED,
            fix="Start processes with the method 'spawn', and open sessions in each of them.",
        )


class OpenCLEvent:
    """A point in the work of a stream; meets `ep_core.contracts.Event`."""

    __slots__ = ("_fault", "_position", "_stream", "cl_event")

    def __init__(
        self, stream: OpenCLStream, cl_event: cl.Event, position: int, fault: HostArray | None
    ) -> None:
        self._stream = stream
        self._position = position
        self._fault = fault
        self.cl_event = cl_event

    def done(self) -> bool:
        """True once all work before it is over, also if it failed."""
        with explained("asking for the state of an event"):
            status: int = self.cl_event.command_execution_status
        over = status <= cl.command_execution_status.COMPLETE
        if over:
            self._stream.passed(self._position)
        return over

    def synchronize(self) -> None:
        """Block until it has happened; raise the error that work before it met."""
        check_process()
        with explained(f"waiting for {self._stream.name}"):
            self.cl_event.wait()
        self._stream.passed(self._position)
        if self._fault is not None and self._fault[0]:
            self._stream.heard()
            raise fault_error(self._fault)


class OpenCLStream:
    """An in-order queue; meets `ep_sdk.device_kernels.contracts.DeviceStream`.

    Attributes:
        name: no other stream has it.
        queue: pyopencl's queue.
        rehearses: False, work is done.

    Args:
        device: whose stream it is.
        on_close: called once, with the stream, when it is closed.
    """

    rehearses: ClassVar[bool] = False

    def __init__(
        self,
        device: OpenDevice,
        on_close: Callable[[OpenCLStream], None],
    ) -> None:
        self.device = device
        self.name = f"{device.memory.device} queue {next(_NUMBERS)}"
        self._on_close = on_close
        with explained("making a queue"):
            self._queue = cl.CommandQueue(
                device.context, device.cl_device, cl.command_queue_properties.PROFILING_ENABLE
            )
        self._lock = threading.Lock()
        self._closed = False
        self._position = 0
        self._clock_offset: int | None = None
        self._fault_buffer: cl.Buffer | None = None
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def queue(self) -> cl.CommandQueue:
        """The queue, for commands.

        Raises:
            ContractError: the stream is closed.
        """
        if self._closed:
            raise ContractError(f"{self.name} was used after it was closed")
        check_process()
        return self._queue

    def record(self) -> OpenCLEvent:
        """An event after everything submitted so far; the device starts on that work."""
        queue = self.queue
        with explained(f"recording an event of {self.name}"):
            fault = self._read_fault()
            with self._lock:
                marker = cl.enqueue_marker(queue)
                queue.flush()
                return OpenCLEvent(self, marker, self._position, fault)

    def copy_bytes(
        self,
        source: cl.Buffer,
        source_start: int,
        target: cl.Buffer,
        target_start: int,
        nbytes: int,
    ) -> None:
        """Copy inside the device's memory, in order; starts and length in bytes."""
        with explained("copying inside the device"):
            cl.enqueue_copy(
                self.queue,
                target,
                source,
                byte_count=nbytes,
                src_offset=source_start,
                dst_offset=target_start,
            )

    def mark(self) -> cl.Event:
        """A command that does nothing, of which the device keeps the time."""
        with explained(f"marking {self.name}"):
            return cl.enqueue_marker(self.queue)

    def host_time(self, mark: cl.Event) -> int:
        """When a mark was reached, in nanoseconds of `time.perf_counter_ns`."""
        if self._clock_offset is None:
            probe = self.mark()
            probe.wait()
            self._clock_offset = time.perf_counter_ns() - probe.profile.end
        return int(mark.profile.end) + self._clock_offset

    def fault_word(self) -> cl.Buffer:
        """Memory for an int, 0 so far, into which kernels write what they met."""
        if self._fault_buffer is None:
            with explained("making a word for faults"):
                self._fault_buffer = cl.Buffer(self.device.context, cl.mem_flags.READ_WRITE, 4)
            self.heard()
        return self._fault_buffer

    def heard(self) -> None:
        """The host knows of the fault: later work starts with none."""
        if self._fault_buffer is not None and not self._closed:
            cl.enqueue_fill_buffer(self._queue, self._fault_buffer, np.zeros(1, np.int32), 0, 4)

    def _read_fault(self) -> HostArray | None:
        """Have the fault word read after the work so far; None if no kernel could meet one."""
        if self._fault_buffer is None:
            return None
        fault = np.zeros(1, np.int32)
        self.keep(cl.enqueue_copy(self._queue, fault, self._fault_buffer, is_blocking=False))
        return fault

    def wait(self, event: Event) -> None:
        """Let later work wait for `event`; the host waits for events of other providers."""
        if not isinstance(event, OpenCLEvent):
            event.synchronize()
            return
        if event._stream is self:
            return
        queue = self.queue
        with explained(f"letting {self.name} wait"):
            if event._stream.device is self.device:
                cl.enqueue_barrier(queue, wait_for=[event.cl_event])
            else:
                event.cl_event.wait()

    def synchronize(self) -> None:
        """Block until the queue is empty; raise the error that work on it met."""
        check_process()
        with explained(f"waiting for {self.name}"):
            fault = None if self._closed else self._read_fault()
            with self._lock:
                position = self._position
            self._queue.finish()
        self.passed(position)
        if fault is not None and fault[0]:
            self.heard()
            raise fault_error(fault)

    def close(self) -> None:
        """Finish the work; twice without harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            with explained(f"closing {self.name}"):
                if not is_forked():
                    self._queue.finish()
        finally:
            self.passed(self._position)
            self._on_close(self)

    def when_passed(self, action: Callable[[], None]) -> bool:
        """Have `action` done once the work submitted so far is known to be over.

        Returns False if the stream is closed.
        """
        with self._lock:
            if self._closed:
                return False
            self._position += 1
            self._waiting.append((self._position, action))
        return True

    def keep(self, event: cl.Event) -> None:
        """Keep an event until it is over: letting go of one that guards host memory would wait."""
        if not self.when_passed(partial(_ignore, event)):
            event.wait()

    def passed(self, position: int) -> None:
        """The work up to a position is over: do what waited for it."""
        while True:
            with self._lock:
                if not self._waiting or self._waiting[0][0] > position:
                    return
                action = self._waiting.popleft()[1]
            action()


def _ignore(event: cl.Event) -> None:
    """Do nothing; the event was kept until here."""
