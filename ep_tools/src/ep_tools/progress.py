"""A bar that shows how far long work has come: on a terminal only, and gone when it's done."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from types import TracebackType

from ep_tools.console import Console

__all__ = ["Progress"]

_WIDTH = 24
_BLOCKS = ("\u2588", "\u2591")
_ASCII = ("#", "-")
_REDRAW_SECONDS = 0.1
_CLEAR = "\r\x1b[K"


class Progress:
    """Shows work on one line of the error stream, with a bar once `update` has been called.

    Args:
        console: where; nothing is shown unless its error stream is a terminal.
        title: what is being done.
        clock: seconds, for the tests.
    """

    def __init__(
        self, console: Console, title: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._title = title
        self._clock = clock
        self._drawn_at = 0.0
        self._full, self._empty = _BLOCKS if console.can_show("".join(_BLOCKS)) else _ASCII

    def __enter__(self) -> Progress:
        self._draw(f"{self._title} ...")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._console.live(_CLEAR)

    def update(self, done: float, total: float, note: str = "") -> None:
        """Show that `done` of `total` is done, of whatever unit; redraws ten times a second."""
        now = self._clock()
        if now - self._drawn_at < _REDRAW_SECONDS and done < total:
            return
        self._drawn_at = now
        share = min(1.0, done / total) if total else 1.0
        filled = round(share * _WIDTH)
        bar = self._full * filled + self._empty * (_WIDTH - filled)
        self._draw(f"{self._title}  {bar} {share:4.0%}  {note}".rstrip())

    def _draw(self, text: str) -> None:
        # A line that wraps couldn't be cleared again.
        columns = shutil.get_terminal_size().columns
        self._console.live(_CLEAR, text[: columns - 1])
