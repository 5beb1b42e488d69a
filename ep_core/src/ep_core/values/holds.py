"""Keeps a provider open while values lie in its memory, and lets go of values that are gone.

A value may go at any moment: the garbage collector runs inside whatever code happens to allocate,
also inside an allocator that holds its own lock. What it finds is put aside and released at the
next safe moment (`bury`); a value that goes because its last reference did is released at once.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import weakref
from collections import deque
from typing import Any

from ep_core.contracts import Allocator, Buffer, ExecutionProvider

__all__ = ["DeviceTensor", "bury", "hold", "let_go", "retire"]

_LOG = logging.getLogger("ep_core")


class _Hold:
    """Who is kept open by whom, and whether it would be closed otherwise."""

    def __init__(self, provider: ExecutionProvider) -> None:
        self.provider = provider
        self.holders: set[object] = set()
        self.is_retired = False


_lock = threading.Lock()
_holds: dict[int, _Hold] = {}  # by the provider's id, as long as somebody holds it
_dead: deque[tuple[Buffer, Allocator, ExecutionProvider, object]] = deque()
_collecting: list[int] = []  # the thread in which the garbage collector is at work


def hold(provider: ExecutionProvider, holder: object) -> None:
    """Keep a provider open until `let_go` is called for this holder.

    The caller makes sure that it will be before it calls: an interrupt may come at any moment.
    """
    with _lock:
        _holds.setdefault(id(provider), _Hold(provider)).holders.add(holder)


def let_go(provider: ExecutionProvider, holder: object) -> None:
    """Undo a `hold`; closes the provider if that was the last and it is retired.

    Nothing happens if there is no such holder.
    """
    with _lock:
        held = _holds.get(id(provider))
        if held is None:
            return
        held.holders.discard(holder)
        if held.holders:
            return
        del _holds[id(provider)]
    if held.is_retired:
        provider.close()


def retire(provider: ExecutionProvider) -> None:
    """Close a provider, now or when nobody holds it any more."""
    bury()
    with _lock:
        held = _holds.get(id(provider))
        if held is not None and held.holders:
            held.is_retired = True
            return
        _holds.pop(id(provider), None)
    provider.close()


class DeviceTensor:
    """A buffer that is released when nobody refers to this object any more.

    Attributes:
        buffer: ready: no work that writes it is under way.
        provider: the one whose allocator made it; held until the buffer is released.
        is_read_only: another library's memory that must not be written.
    """

    __slots__ = ("__weakref__", "buffer", "is_read_only", "provider")

    def __init__(
        self, buffer: Buffer, provider: ExecutionProvider, *, is_read_only: bool = False
    ) -> None:
        allocator = provider.allocator
        assert allocator is not None
        if _note_collection not in gc.callbacks:
            gc.callbacks.append(_note_collection)
        self.buffer = buffer
        self.provider = provider
        self.is_read_only = is_read_only
        holder = object()
        weakref.finalize(self, _lose, buffer, allocator, provider, holder)
        hold(provider, holder)


def bury() -> None:
    """Release what has been put aside."""
    while _dead:
        with contextlib.suppress(IndexError):
            _release(*_dead.popleft())


def _lose(
    buffer: Buffer, allocator: Allocator, provider: ExecutionProvider, holder: object
) -> None:
    _dead.append((buffer, allocator, provider, holder))
    if threading.get_ident() not in _collecting:
        bury()


def _release(
    buffer: Buffer, allocator: Allocator, provider: ExecutionProvider, holder: object
) -> None:
    try:
        allocator.release(buffer)
    except Exception as error:  # noqa: BLE001 - nobody is there who could be told
        _LOG.warning("releasing a value in %s: %s", buffer.memory, error)
    try:
        let_go(provider, holder)
    except Exception as error:  # noqa: BLE001 - as above
        _LOG.warning("closing provider %r: %s", provider.info.name, error)


def _note_collection(phase: str, info: dict[str, Any]) -> None:
    if phase == "start":
        _collecting.append(threading.get_ident())
    else:
        _collecting.clear()
