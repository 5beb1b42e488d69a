"""Everything `ep` writes goes through here: plain lines, columns, JSON, warnings, errors.

Nothing here knows models or providers. Colours appear only on a terminal, and not when NO_COLOR
is set or TERM is `dumb`.
"""

from __future__ import annotations

import contextlib
import json
import math
import numbers
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

__all__ = [
    "Console",
    "OutputError",
    "format_bytes",
    "format_seconds",
    "json_text",
    "scoped",
    "shorten",
]

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_STYLE_CODE = re.compile("(\x1b\\[[0-9;]*m)")


class OutputError(Exception):
    """The output can't be written, for another reason than that its reader left."""


class Console:
    """Writes results to `out`, warnings and errors to `err`.

    Args:
        out, err: text streams; by default what `sys.stdout` and `sys.stderr` are now. They are
            None where the caller closed them; then nothing is written.
        environ: where NO_COLOR and TERM are looked up; by default `os.environ`.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.out = sys.stdout if out is None else out
        self.err = sys.stderr if err is None else err
        self._environ = os.environ if environ is None else environ

    def line(self, text: str = "") -> None:
        """Write one line of the result."""
        self._write(self.out, text)

    def columns(self, rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
        """Return one text per row, with the cells padded so that columns are aligned.

        With `right`, all but the first column are aligned to the right, as numbers are.
        """
        widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = []
            for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
                padding = " " * (width - _width(cell))
                cells.append(padding + cell if right and index else cell + padding)
            lines.append("  ".join(cells).rstrip())
        return lines

    def json(self, document: Any) -> None:
        """Write one JSON document; numbers that JSON has no word for become "nan" and "inf"."""
        self._write(self.out, json_text(document))

    def can_show(self, text: str) -> bool:
        """True if the error stream's encoding has every character of the text."""
        return self.err is not None and _encodable(self.err, text) == text

    def live(self, control: str, text: str = "") -> None:
        """Write control codes, then text, to the error stream, if it is a terminal that obeys."""
        if self.err is None or not self.err.isatty() or self._environ.get("TERM") == "dumb":
            return
        with _telling_errors():
            self.err.write(control + _encodable(self.err, _visible(text)))
            self.err.flush()

    def warning(self, text: str) -> None:
        """Write a warning line to the error stream."""
        self._write(self.err, f"{self._on(self.err, 'ep: warning:', 'yellow')} {text}")

    def error(self, text: str) -> None:
        """Write an error line to the error stream."""
        self._write(self.err, f"{self._on(self.err, 'ep: error:', 'red')} {text}")

    def style(self, text: str, *styles: str) -> str:
        """Return `text` for `line` or `columns`, styled if the output stream shows colours."""
        return self._on(self.out, text, *styles)

    def flush(self) -> None:
        """Hand everything written so far to the reader."""
        for stream in (self.out, self.err):
            if stream is not None:
                with _telling_errors():
                    stream.flush()

    def _on(self, stream: TextIO | None, text: str, *styles: str) -> str:
        if not styles or not self._colours(stream):
            return text
        codes = ";".join(_STYLES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def _colours(self, stream: TextIO | None) -> bool:
        if self._environ.get("NO_COLOR") or self._environ.get("TERM") == "dumb":
            return False
        return stream is not None and stream.isatty()

    def _write(self, stream: TextIO | None, text: str) -> None:
        if stream is None:
            return
        with _telling_errors():
            stream.write(f"{_encodable(stream, _visible(text))}\n")


@contextlib.contextmanager
def _telling_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"can't write the output: {error}") from error


def json_text(document: Any) -> str:
    """Return strict JSON in ASCII; numbers that JSON has no word for become "nan" and "inf"."""
    text = json.dumps(_json_value(document), indent=2, allow_nan=False)
    # json escapes every control character but this one.
    return text.replace("\x7f", "\\u007f")


def shorten(text: str, width: int) -> str:
    """Return at most `width` characters; of a path of names the end tells most, so that stays."""
    return text if len(text) <= width else f"...{text[3 - width :]}"


def scoped(scope: str, name: str) -> str:
    """Return a name with the path of the body that it is in, if it is in one."""
    return f"{scope}: {name}" if scope else name


def format_seconds(seconds: float) -> str:
    """Return a time with the unit that suits it: `1.25 s`, `3.40 ms`, `12.0 us`."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.1f} us"


def format_bytes(count: int) -> str:
    """Return a size in binary units: `512 B`, `1.5 KiB`, `16.0 GiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _json_value(value: Any) -> Any:
    """Return plain data, also for numpy's numbers and for those that aren't finite."""
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    return value


def _encodable(stream: TextIO, text: str) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _visible(text: str) -> str:
    """Escape control characters, other than our own styles: names come from model files."""
    return "".join(
        part if _STYLE_CODE.fullmatch(part) else _escape(part) for part in _STYLE_CODE.split(text)
    )


def _escape(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _width(cell: str) -> int:
    return len(_escape(_STYLE_CODE.sub("", cell)))
