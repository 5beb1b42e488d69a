"""Writes what `ep explain` makes into files: whole or not at all, and never over a model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from ep_core.errors import EpError, OptionError

__all__ = ["check_target", "write_chunks", "write_file"]


def check_target(flag: str, path: str) -> None:
    """Refuse a target that can't be meant, before any work is done.

    Args:
        flag: the argument that names the path, for the message.

    Raises:
        OptionError: it ends as a model does, or isn't in a folder.
    """
    if path.lower().endswith(".onnx"):
        raise OptionError(
            f"{flag} {path} would write over a model",
            fix=f"Give {flag} a file with another ending; the model stands in front of it.",
        )
    if not path or Path(path).is_dir() or not Path(path).parent.is_dir():
        raise OptionError(
            f"{flag} '{path}'", expected="a file in a folder that exists", fix="Make the folder."
        )


def write_file(path: Path, content: bytes) -> None:
    """Write a file by way of another one beside it, so that it is never there in part.

    Raises:
        EpError: it can't be written.
    """
    write_chunks(path, [content])


def write_chunks(path: Path, chunks: Iterable[bytes]) -> None:
    """The same for what is too large to hold at once.

    Raises:
        EpError: it can't be written.
    """
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".ep-{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():
            _write(target, chunks)  # a device or a pipe, which nothing may take the place of
            return
        try:
            _write(beside, chunks)
            beside.replace(target)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
    except OSError as error:
        raise EpError(
            f"can't write '{path}'", got=str(error), fix="Give a file that can be written."
        ) from error


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
