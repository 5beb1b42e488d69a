"""Tensor data in files beside the model: memory-mapped, and confined to the model's folder.

Nothing here knows tensors; it hands out bytes of files after checking every word the model says
about them.
"""

from __future__ import annotations

import mmap
import stat
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath

from ep_core.errors import InvalidModelError, UnsafePathError
from ep_core.loading.limits import quoted

__all__ = ["ExternalFiles"]


class ExternalFiles:
    """The files that a model loaded from `model_path` may refer to; None for one without a path.

    Allowed is what lies, after following links, in the folder of the path as given or in the
    folder where the model file really is; the two differ where a cache keeps files by content and
    links to them.
    """

    def __init__(self, model_path: Path | None) -> None:
        self._folder = model_path.parent if model_path is not None else None
        self._roots: set[Path] = set()
        if model_path is not None:
            self._roots = {model_path.parent.resolve(), model_path.resolve().parent}
        self._open: dict[str, memoryview] = {}

    def read(self, entries: Mapping[str, str], size: int, what: str) -> memoryview:
        """Return `size` bytes, mapped read-only.

        Args:
            entries: the `external_data` of the tensor: `location`, `offset`, `length`.
            size: bytes that the tensor's type and dimensions need.
            what: names the tensor in errors.
        """
        location = entries.get("location", "")
        view = self._open.get(location)
        if view is None:
            view = self._open[location] = self._map(location, what)
        offset = _whole_number(entries.get("offset", "0"), "offset", what)
        length = _whole_number(entries.get("length", str(size)), "length", what)
        if length != size:
            raise InvalidModelError(
                f"The external data of {what} doesn't match its type and dimensions",
                expected=f"{size} bytes",
                got=f"length {length}",
            )
        if offset + size > len(view):
            raise InvalidModelError(
                f"The external data of {what} lies beyond the end of {quoted(location)}",
                expected=f"{size} bytes at offset {offset}",
                got=f"a file of {len(view)} bytes",
                fix="The file is truncated or belongs to another model; get it again.",
            )
        return view[offset : offset + size]

    def _map(self, location: str, what: str) -> memoryview:
        path = self._locate(location, what)
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise InvalidModelError(
                    f"The external data of {what} at {quoted(location)} isn't a regular file"
                )
            if status.st_size == 0:
                return memoryview(b"")
            with path.open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            raise InvalidModelError(
                f"The external data of {what} at {quoted(location)} can't be read ({error})",
                fix="Keep the data files in the model's folder, under the names they were "
                "saved with.",
            ) from error

    def _locate(self, location: str, what: str) -> Path:
        if self._folder is None:
            raise InvalidModelError(
                f"The data of {what} is in another file ({quoted(location)}), and a model given "
                "as bytes or as a proto has no folder to look in",
                fix="Load the model by path, or embed the data with "
                "onnx.external_data_helper.load_external_data_for_model.",
            )
        # Windows rules split at both slashes and know drives; POSIX forms are a subset.
        parsed = PureWindowsPath(location)
        if parsed.drive or parsed.root or ".." in parsed.parts:
            raise _unsafe(location, what)
        if not parsed.parts or "\0" in location:
            raise InvalidModelError(
                f"The external data of {what} has no usable location", got=quoted(location)
            )
        try:
            path = self._folder.joinpath(*parsed.parts).resolve()
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before 3.13
            raise InvalidModelError(
                f"The external data of {what} at {quoted(location)} can't be found ({error})"
            ) from error
        if not any(path.is_relative_to(root) for root in self._roots):
            raise _unsafe(location, what)
        return path


def _unsafe(location: str, what: str) -> UnsafePathError:
    return UnsafePathError(
        f"The external data of {what} lies outside the model's folder",
        expected="a relative path that stays in the folder, links followed",
        got=quoted(location),
        fix="Don't trust this model; if it is yours, save it again with its data beside it.",
    )


def _whole_number(written: str, field: str, what: str) -> int:
    # 19 digits hold every 64-bit number; int() of a huge text would be slow or refuse.
    if not (written.isascii() and written.isdigit() and len(written) <= 19):
        raise InvalidModelError(
            f"The external data of {what} has a bad {field}",
            expected="a whole number of bytes, 0 or more",
            got=quoted(written),
        )
    return int(written)
