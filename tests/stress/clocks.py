"""Vector clocks of the host and of streams, and the accesses that nothing orders.

What happened in time doesn't count here, only what was asked for: work is ordered after all that
its stream was given before, after what the host knew when it submitted it, and after the events
that its stream waits for. Two accesses to the same memory, one of them a write, that aren't ordered
so are a race, also if the earlier one happened to be over. Vector clocks are Mattern's (1989);
comparing with the last write and the reads since is from FastTrack (Flanagan and Freund, 2009).

All threads of the host count as one: what one of them has waited for, all of them know. Streams
belong to one run at a time, so that this hides nothing between the parts of a run.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Ordering", "Timeline"]

_OWN_REFERENCES = 3
"""Of an array that only `Ordering` keeps: its entry, a variable, the argument of getrefcount."""

_MOST_RACES = 50


class Timeline:
    """The host or a stream: what it has done, and what it knows of others.

    Attributes:
        clock: how much of each timeline is ordered before whatever is done here next.
        closed: it was a stream, and the host has waited for its end.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: dict[Timeline, int] = {self: 0}
        self.closed = False

    def advance(self) -> int:
        """Do one more thing; returns its number."""
        self.clock[self] += 1
        return self.clock[self]

    def join(self, clock: dict[Timeline, int]) -> None:
        """From now on everything here is ordered after what `clock` knows."""
        for line, tick in clock.items():
            if not line.closed and self.clock.get(line, 0) < tick:
                self.clock[line] = tick

    def knows(self, line: Timeline, tick: int) -> bool:
        """True if a thing that was done on a timeline is ordered before what is done here next."""
        return line.closed or self.clock.get(line, 0) >= tick


@dataclass(frozen=True)
class _Access:
    line: Timeline
    tick: int
    what: str


@dataclass
class _Memory:
    """Who has used one piece of memory.

    Attributes:
        owners: how many buffers there are over it.
        reads: since the last write, the last one of each timeline.
    """

    name: str
    owners: int = 1
    written: _Access | None = None
    reads: dict[Timeline, _Access] = field(default_factory=dict)

    def accesses(self) -> Iterator[_Access]:
        """All that later ones may have to be ordered after."""
        if self.written is not None:
            yield self.written
        yield from self.reads.values()


@dataclass
class _Root:
    """An array that owns its memory, and the parts of it that were used, by first and last byte."""

    reference: weakref.ref[np.ndarray]
    parts: dict[tuple[int, int], _Memory] = field(default_factory=dict)

    def overlapping(self, start: int, stop: int) -> list[_Memory]:
        return [part for (a, b), part in self.parts.items() if a < stop and start < b]


class Ordering:
    """Notes what is done with the memory of devices and with arrays. Safe on many threads.

    Attributes:
        host: the timeline of the host.
        races: accesses that nothing orders, memory that was used after it was released, arrays
            that were let go while a copy could still use them; in words.
        checked: how many accesses were compared.
    """

    def __init__(self) -> None:
        self.host = Timeline("the host")
        self.races: list[str] = []
        self.checked = 0
        self._lock = threading.RLock()
        self._buffers: dict[Hashable, _Memory] = {}
        self._roots: dict[int, _Root] = {}
        self._at_work: dict[int, np.ndarray] = {}  # roots that streams may still use

    # ------------------------------------------------------------ order

    def submitted(self, line: Timeline) -> None:
        """The host gives work to a stream: it comes after all that the host knows."""
        with self._lock:
            line.join(self.host.clock)

    def recorded(self, line: Timeline) -> dict[Timeline, int]:
        """An event of a stream; returns what is known to whoever waits for it."""
        with self._lock:
            self.submitted(line)
            line.advance()
            return dict(line.clock)

    def waits(self, line: Timeline, clock: dict[Timeline, int]) -> None:
        """A stream waits for an event."""
        with self._lock:
            self.submitted(line)
            line.join(clock)

    def host_waited(self, clock: dict[Timeline, int]) -> None:
        """The host has waited for an event, or for all of a stream."""
        with self._lock:
            self.host.join(clock)
            self._look_at_lives()

    def stream_closed(self, line: Timeline) -> None:
        """A stream has ended, after its work."""
        with self._lock:
            self.host.join(line.clock)
            self._look_at_lives()
            line.closed = True
            self.host.clock.pop(line, None)

    # ------------------------------------------------------------ buffers

    def allocated(self, key: Hashable, line: Timeline, name: str) -> None:
        """A buffer was made, for work on `line`."""
        with self._lock:
            self.submitted(line)
            self._buffers[key] = memory = _Memory(name)
            self._write(memory, line, "its allocation")

    def shared(self, key: Hashable, name: str) -> None:
        """One more buffer was made over memory that another one may be over already."""
        with self._lock:
            if key in self._buffers:
                self._buffers[key].owners += 1
            else:
                self._buffers[key] = _Memory(name)

    def released(self, key: Hashable, line: Timeline) -> None:
        """A buffer was given back, for whatever comes next on `line`."""
        with self._lock:
            self.submitted(line)
            memory = self._buffers.get(key)
            if memory is None:
                return
            memory.owners -= 1
            if not memory.owners:
                del self._buffers[key]
                self._write(memory, line, "its release")

    def read(self, key: Hashable, line: Timeline, what: str) -> None:
        """Work on `line` reads a buffer."""
        self._use(key, line, what, writes=False)

    def wrote(self, key: Hashable, line: Timeline, what: str) -> None:
        """Work on `line` writes a buffer."""
        self._use(key, line, what, writes=True)

    def _use(self, key: Hashable, line: Timeline, what: str, *, writes: bool) -> None:
        with self._lock:
            self.submitted(line)
            memory = self._buffers.get(key)
            if memory is None:
                self._complain(f"{what} uses memory that has been released, or never was given out")
                return
            (self._write if writes else self._read)(memory, line, what)

    # ------------------------------------------------------------ arrays

    def read_array(self, array: np.ndarray, line: Timeline, what: str) -> None:
        """Work on `line` reads an array."""
        self._use_array(array, line, what, writes=False)

    def wrote_array(self, array: np.ndarray, line: Timeline, what: str) -> None:
        """Work on `line` writes an array."""
        self._use_array(array, line, what, writes=True)

    def host_reads(self, values: Iterable[Any], what: str) -> None:
        """The host looks at values."""
        for array in _arrays(values):
            self.read_array(array, self.host, what)

    def host_writes(self, values: Iterable[Any], what: str) -> None:
        """The host changes values."""
        for array in _arrays(values):
            self.wrote_array(array, self.host, what)

    def _use_array(self, array: np.ndarray, line: Timeline, what: str, *, writes: bool) -> None:
        if not array.nbytes:
            return
        root = _root_of(array)
        start, stop = np.lib.array_utils.byte_bounds(array)
        with self._lock:
            self.submitted(line)
            entry = self._entry(root)
            memory = entry.parts.get((start, stop))
            if memory is None:
                name = f"array {array.dtype}{list(array.shape)}"
                memory = entry.parts[start, stop] = _Memory(name)
            for other in entry.overlapping(start, stop):
                if other is not memory:
                    self._compare(other, line, what, writes=writes)
            (self._write if writes else self._read)(memory, line, what)
            if line is not self.host:
                self._at_work[id(root)] = root

    def _entry(self, root: np.ndarray) -> _Root:
        entry = self._roots.get(id(root))
        if entry is None or entry.reference() is not root:
            if len(self._roots) > 2000:
                gone = [key for key, item in self._roots.items() if item.reference() is None]
                for key in gone:
                    del self._roots[key]
            entry = self._roots[id(root)] = _Root(weakref.ref(root))
        return entry

    def _look_at_lives(self) -> None:
        """Let go of arrays that streams are done with; somebody else has to have them still."""
        for key in list(self._at_work):
            entry = self._roots[key]
            used = (access for part in entry.parts.values() for access in part.accesses())
            if not all(self.host.knows(access.line, access.tick) for access in used):
                continue
            root = self._at_work[key]
            if sys.getrefcount(root) <= _OWN_REFERENCES:
                names = ", ".join(part.name for part in entry.parts.values())
                self._complain(f"{names} was let go while a stream could still use it")
            del self._at_work[key]

    # ------------------------------------------------------------ comparing

    def _read(self, memory: _Memory, line: Timeline, what: str) -> None:
        self._compare(memory, line, what, writes=False)
        memory.reads[line] = _Access(line, line.advance(), what)

    def _write(self, memory: _Memory, line: Timeline, what: str) -> None:
        self._compare(memory, line, what, writes=True)
        memory.written = _Access(line, line.advance(), what)
        memory.reads.clear()

    def _compare(self, memory: _Memory, line: Timeline, what: str, *, writes: bool) -> None:
        self.checked += 1
        earlier = memory.accesses() if writes else filter(None, [memory.written])
        for access in earlier:
            if not line.knows(access.line, access.tick):
                self._complain(
                    f"{memory.name}: {what} ({line.name}) isn't ordered after "
                    f"{access.what} ({access.line.name})"
                )

    def _complain(self, race: str) -> None:
        if len(self.races) < _MOST_RACES:
            self.races.append(race)


def _root_of(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _arrays(values: Iterable[Any]) -> Iterator[np.ndarray]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from _arrays(value)
        elif isinstance(value, dict):
            yield from _arrays(value.values())
