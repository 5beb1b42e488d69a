"""Files of a report: written whole or not at all; a folder that can't hold them is told early."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ep_compliance.errors import ReportError

__all__ = ["prepare_folder", "write_text"]

_FIX = "Name another folder with --out."


def prepare_folder(path: Path) -> None:
    """Make a folder for reports, and make sure that files can be made in it.

    Raises:
        ReportError: they can't.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        message = f"reports can't be written into {path}"
        raise ReportError(message, got=str(error), fix=_FIX) from error


def write_text(path: Path, text: str) -> None:
    """Write a file of text, in place of one that may be there; whole or not at all.

    Raises:
        ReportError: that can't be done.
    """
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".")
    except OSError as error:
        raise ReportError(f"{path} can't be written", got=str(error), fix=_FIX) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # Temporary files are private; a report is for whoever may read its folder.
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except OSError as error:
        Path(draft).unlink(missing_ok=True)
        raise ReportError(f"{path} can't be written", got=str(error), fix=_FIX) from error
