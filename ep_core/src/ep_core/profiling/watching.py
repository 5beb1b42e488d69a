"""When copies on streams really happen, which the host that queues them doesn't see.

An event is recorded on both sides of each copy, and a thread looks at them in turn: the contracts
tell that an event has happened, not when. So times are as right as the looks are frequent: to about
a tenth of a millisecond, or to as long as other threads kept this one from looking. Each copy says.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ep_core.contracts import Event, Stream
from ep_core.profiling.trace import Trace
from ep_core.running.plan import RunState, Step

__all__ = ["CopyWatch", "WatchedCopy"]

_EVERY_SECONDS = 50e-6
_PATIENCE_SECONDS = 2.0


@dataclass(slots=True)
class _Span:
    """A copy under way.

    Attributes:
        looked: when what is awaited, its begin or its end, hadn't happened yet.
        start: when it was seen to have begun; 0 until then.
        unsure: nanoseconds by which `start` may be late.
    """

    name: str
    row: str
    args: Mapping[str, Any]
    begin: Event
    end: Event
    looked: int
    start: int = 0
    unsure: int = 0


class CopyWatch:
    """Puts copies into a trace when they are over. The thread is there once there is a copy."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._new: queue.SimpleQueue[_Span | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._numbers: dict[int, int] = {}

    def add(self, span: _Span) -> None:
        """Watch one more copy."""
        with self._lock:
            if self._stopped:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="ep copies", daemon=True)
                self._thread.start()
            self._new.put(span)

    def number(self, stream: Stream) -> int:
        """A small number for a stream, as long as it is there."""
        return self._numbers.setdefault(id(stream), len(self._numbers) + 1)

    def stop(self) -> None:
        """Note what is over by now and end the thread; twice without harm."""
        with self._lock:
            self._stopped = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._new.put(None)
            thread.join()

    def _serve(self) -> None:
        spans: list[_Span] = []
        deadline = float("inf")
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                while True:
                    span = self._new.get(block=not spans and deadline == float("inf"))
                    if span is None:
                        deadline = time.monotonic() + _PATIENCE_SECONDS
                    else:
                        spans.append(span)
            spans = self._still_under_way(spans)
            if deadline < float("inf") and not spans:
                return
            time.sleep(_EVERY_SECONDS)

    def _still_under_way(self, spans: list[_Span]) -> list[_Span]:
        """In the order of their streams: one is over before the next is seen to begin."""
        found: list[_Span] = []
        rows: set[str] = set()
        now = time.perf_counter_ns()
        for span in spans:
            if span.row in rows or self._is_under_way(span):
                span.looked = now
                rows.add(span.row)
                found.append(span)
        return found

    def _is_under_way(self, span: _Span) -> bool:
        try:
            if not span.start and span.begin.done():
                span.start = time.perf_counter_ns()
                span.unsure = span.start - span.looked
            if not span.start or not span.end.done():
                return True
        except Exception:  # noqa: BLE001 - whoever waits for the copy is told
            return False
        now = time.perf_counter_ns()
        unsure = max(span.unsure, now - span.looked) / 1000
        args = {**span.args, "right_to_us": unsure}
        self._trace.add(span.name, "device copy", span.start, now, span.row, **args)
        return False


@dataclass(frozen=True, slots=True)
class WatchedCopy:
    """A step that hands a copy to a stream.

    Attributes:
        row: of the trace, with the number of the stream behind it.
    """

    step: Step
    stream: int
    name: str
    row: str
    args: Mapping[str, Any]
    watch: CopyWatch

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return self.step.label

    def execute(self, values: list[Any], state: RunState) -> None:
        stream = state.stream(self.stream)
        assert stream is not None
        before = time.perf_counter_ns()
        begin = stream.record()
        self.step.execute(values, state)
        row = f"{self.row}, stream {self.watch.number(stream)}"
        self.watch.add(_Span(self.name, row, self.args, begin, stream.record(), before))
