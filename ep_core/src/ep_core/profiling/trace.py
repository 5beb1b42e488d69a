"""The events of a trace and the file they go to; knows nothing of sessions, plans and providers.

The format is Chrome's "Trace Event Format" in its form as an array: complete events (`X`) with
`ts` and `dur` in microseconds, counters (`C`), and the names of processes and threads (`M`). They
are in the order of their starts.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ep_core.errors import OptionError

__all__ = ["Trace"]

MOST_EVENTS = 1_000_000
"""About 200 MB of JSON, and more than a viewer likes; what comes after it is only counted."""

_NUMBERS = itertools.count()


class Trace:
    """Collects events, from any thread, until the file is written.

    Args:
        prefix: the start of the file's path; time, process and a number make it unique.

    Raises:
        OptionError: no file can be made there.
    """

    def __init__(self, prefix: str) -> None:
        self._path, self._part = _claimed(prefix)
        self.started_ns = time.monotonic_ns()
        self._origin = time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []
        self._rows: dict[int | str, str] = {}
        self._dropped = 0
        self._lock = threading.Lock()
        self._open = True

    def add(
        self, name: str, category: str, start: int, end: int, queue: str = "", **args: Any
    ) -> None:
        """Note what happened between two readings of `time.perf_counter_ns`.

        Args:
            queue: where it ran; empty for the calling thread.
            args: shown with the event.
        """
        event = {"ph": "X", "name": name, "cat": category, "ts": start, "dur": end - start}
        self._keep({**event, "args": args}, queue)

    def count(self, name: str, **values: int) -> None:
        """Note the values that a counter has now."""
        now = time.perf_counter_ns()
        self._keep({"ph": "C", "name": name, "ts": now, "args": values}, "")

    @contextlib.contextmanager
    def span(self, name: str, category: str, **args: Any) -> Iterator[None]:
        """Note how long the body of a `with` takes, also if it fails."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, category, start, time.perf_counter_ns(), **args)

    def write(self) -> str:
        """Write the file, once, and return its path; what comes later is lost.

        Raises:
            OptionError: the file can't be written.
        """
        import json

        with self._lock:
            if not self._open:
                return str(self._path)
            self._open = False
            numbers = {row: number for number, row in enumerate(self._rows, start=1)}
            # Sorted, so that times only grow and what is around something stands before it.
            self._events.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
            events = [*self._names(), *(self._finished(e, numbers) for e in self._events)]
            self._events = []
        try:
            text = ",\n".join(json.dumps(event) for event in events)
            self._part.write_text(f"[\n{text}\n]\n", encoding="ascii")
            self._part.replace(self._path)
        except OSError as error:
            self._remove()
            raise OptionError(
                f"the profile can't be written to '{self._path}'", got=str(error)
            ) from error
        return str(self._path)

    def discard(self) -> None:
        """Forget everything; leaves no file behind."""
        with self._lock:
            if self._open:
                self._open = False
                self._events = []
                self._remove()

    def _keep(self, event: dict[str, Any], queue: str) -> None:
        row: int | str = queue or threading.get_ident()
        if row not in self._rows:
            self._rows.setdefault(row, queue or threading.current_thread().name)
        event["tid"] = row
        if not self._open or len(self._events) >= MOST_EVENTS:
            self._dropped += self._open
            return
        self._events.append(event)

    def _finished(self, event: dict[str, Any], numbers: dict[int | str, int]) -> dict[str, Any]:
        """The event as the file has it: microseconds since the start, and rows by number."""
        finished = {**event, "pid": os.getpid(), "tid": numbers[event["tid"]]}
        finished["ts"] = (event["ts"] - self._origin) / 1000
        if "dur" in event:
            finished["dur"] = event["dur"] / 1000
        return finished

    def _names(self) -> Iterator[dict[str, Any]]:
        process = f"ep-core, {self._dropped} events lost" if self._dropped else "ep-core"
        meta = {"ph": "M", "pid": os.getpid()}
        yield {**meta, "name": "process_name", "tid": 0, "args": {"name": process}}
        for number, name in enumerate(self._rows.values(), start=1):
            yield {**meta, "name": "thread_name", "tid": number, "args": {"name": name}}

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._part.unlink()


def _claimed(prefix: str) -> tuple[Path, Path]:
    """A path that nobody has, and the unfinished file that keeps it from others."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    while True:
        path = Path(f"{prefix}_{stamp}_{os.getpid()}_{next(_NUMBERS)}.json").absolute()
        part = path.with_name(f"{path.name}.part")
        try:
            part.touch(exist_ok=False)
        except FileExistsError:
            continue
        except (OSError, ValueError) as error:
            raise OptionError(
                "profile_file_prefix",
                expected="the start of a path where a file can be made",
                got=f"{prefix!r}: {error}",
            ) from error
        if not path.exists():
            return path, part
        part.unlink()
