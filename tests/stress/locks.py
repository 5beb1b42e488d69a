"""Which locks are taken while which are held, and orders that could end in a deadlock.

A lock belongs to the line of code that made it. Taking one while another is held is an edge from
the other's line to its own; a cycle of edges is a deadlock that needs nothing but bad luck. Two
locks made by one line are told apart: that they are taken in one order here and in the other
elsewhere is a cycle too. A lock that is given back by another thread than the one that took it is
a signal, not a lock, and has no place in an order.
"""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["LockOrder"]

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_NUMBERS = itertools.count()


class LockOrder:
    """Watches locks that packages of a prefix make; see `watching`.

    Attributes:
        edges: by the lines of two locks, where the second was taken while the first was held.
    """

    def __init__(self, prefixes: tuple[str, ...] = ("ep_core", "ep_sdk", "ep_cpu")) -> None:
        self._prefixes = prefixes
        self._guard = threading.Lock()
        self._held = threading.local()
        self._signals: set[str] = set()
        self._pairs: dict[str, dict[tuple[int, int], str]] = {}  # of locks made by one line
        self.edges: dict[tuple[str, str], str] = {}

    @contextmanager
    def watching(self) -> Iterator[LockOrder]:
        """Locks that are made as long as this lasts, and those of modules, are watched."""
        lock, rlock = threading.Lock, threading.RLock
        replaced: list[tuple[Any, str, Any]] = []
        for place, name, own in list(self._known()):
            replaced.append((place, name, own))
            setattr(place, name, Watched(own, f"{_name_of(place)}.{name}", self))
        try:
            threading.Lock = lambda: self._made(lock)  # type: ignore[assignment]
            threading.RLock = lambda: self._made(rlock)  # type: ignore[assignment]
            yield self
        finally:
            threading.Lock, threading.RLock = lock, rlock
            for place, name, own in replaced:
                setattr(place, name, own)

    def cycles(self) -> list[str]:
        """Orders that contradict each other, in words."""
        found: dict[frozenset[str], str] = {}
        after: dict[str, set[str]] = {}
        for first, second in self.edges:
            if first not in self._signals:
                after.setdefault(first, set()).add(second)
        for first, second in self.edges:
            way = _path(after, second, first)
            if first not in self._signals and way is not None:
                steps = [first, *way]
                told = (f"{a} before {b} at {self.edges[a, b]}" for a, b in pairwise(steps))
                found.setdefault(frozenset(steps), "; ".join(told))
        for line, pairs in self._pairs.items():
            twice = [where for (a, b), where in pairs.items() if (b, a) in pairs]
            if twice and line not in self._signals:
                told = f"two locks of {line} in either order: {' and '.join(twice[:2])}"
                found.setdefault(frozenset([line]), told)
        return list(found.values())

    def taking(self, lock: Watched) -> None:
        """A thread wants a lock; the order counts, whether it has to wait or not."""
        for other in self._stack():
            self._note(other, lock)

    def took(self, lock: Watched) -> None:
        """A thread has got a lock."""
        self._stack().append(lock)

    def gave(self, lock: Watched) -> None:
        """A thread gives a lock back, for good."""
        held = self._stack()
        if lock in held:
            held.remove(lock)
        else:
            self._signals.add(lock.line)

    def _note(self, first: Watched, second: Watched) -> None:
        if first is second:
            return  # a lock that may be taken again by who has it
        if first.line == second.line:
            pairs = self._pairs.setdefault(first.line, {})
            pairs.setdefault((first.number, second.number), _where())
        elif (first.line, second.line) not in self.edges:
            with self._guard:
                self.edges[first.line, second.line] = _where()

    def _stack(self) -> list[Watched]:
        if not hasattr(self._held, "stack"):
            self._held.stack = []
        # What another thread has given back in the meantime isn't held.
        own = threading.get_ident()
        self._held.stack = [lock for lock in self._held.stack if lock.holder == own]
        stack: list[Watched] = self._held.stack
        return stack

    def _made(self, make: Any) -> Any:
        frame = sys._getframe(2)
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(self._prefixes):
            return make()
        return Watched(make(), f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}", self)

    def _known(self) -> Iterator[tuple[Any, str, Any]]:
        """Locks of modules that are there already, and of objects that modules hold."""
        for module in list(sys.modules.values()):
            if not getattr(module, "__name__", "").startswith(self._prefixes):
                continue
            for name, item in list(vars(module).items()):
                if isinstance(item, _LOCKS):
                    yield module, name, item
                elif isinstance(item, type) and item.__module__ == module.__name__:
                    # Until Python 3.12 a lock for all objects of the class, held to compute.
                    for attribute in vars(item).values():
                        if isinstance(attribute, cached_property) and hasattr(attribute, "lock"):
                            yield attribute, "lock", attribute.lock
                elif type(item).__module__.startswith(self._prefixes):
                    for inner, value in list(getattr(item, "__dict__", {}).items()):
                        if isinstance(value, _LOCKS):
                            yield item, inner, value


class Watched:
    """A lock that tells who takes it.

    Attributes:
        line: what made it.
        number: no other lock has it.
        holder: the thread that has it, 0 for none.
    """

    def __init__(self, inner: Any, line: str, order: LockOrder) -> None:
        self._inner = inner
        self._order = order
        self.line = line
        self.number = next(_NUMBERS)
        self.holder = 0
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As a lock does."""
        if blocking:
            self._order.taking(self)
        if not self._inner.acquire(blocking, timeout):
            return False
        self.holder = threading.get_ident()
        self._depth += 1
        if self._depth == 1:
            self._order.took(self)
        return True

    def release(self) -> None:
        """As a lock does."""
        if self._depth == 1:
            self._order.gave(self)
            self.holder = 0
        self._depth -= 1
        self._inner.release()

    def locked(self) -> bool:
        """As a lock does."""
        return bool(self._inner.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


def _where() -> str:
    """The lines of the calls that led here, the nearest last."""
    frames = [f for f in traceback.extract_stack() if f.filename != __file__][-4:]
    return " > ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)


def _name_of(place: Any) -> str:
    if isinstance(place, cached_property):
        return place.func.__qualname__
    return place.__name__ if isinstance(place, ModuleType) else type(place).__name__


def _path(after: dict[str, set[str]], start: str, end: str) -> list[str] | None:
    """A way from one to the other along the edges."""
    ways = [[start]]
    seen = {start}
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        for following in sorted(after.get(way[-1], ())):
            if following not in seen:
                seen.add(following)
                ways.append([*way, following])
    return None
