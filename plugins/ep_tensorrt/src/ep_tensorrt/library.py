"""The vendor's library, TensorRT or TensorRT-RTX, and all in which the two differ.

Also its messages, which are caught and become part of errors. Nothing here knows graphs or claims.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from ep_core.errors import ProviderUnavailableError

__all__ = ["MODULES", "Library", "open_library", "said"]

MODULES = ("tensorrt", "tensorrt_rtx")
"""In this order, as TensorRT is chosen on purpose where both are there."""

_LONGEST = 400


@dataclass(frozen=True)
class Library:
    """The library that is used in this process.

    Attributes:
        trt: the module.
        name: `TensorRT` or `TensorRT-RTX`.
        version: such as `1.7.1.116`.
        builds_anywhere: engines are built without a GPU, for targets that are named.
        targets: by compute capability such as `sm_89`, what the library calls the targets.
        has_fp16: the builder may compute 32-bit nodes in 16-bit floats.
        log: receives what the library says.
    """

    trt: Any
    name: str
    version: str
    builds_anywhere: bool
    targets: dict[str, Any]
    has_fp16: bool
    log: Any

    def network_flags(self) -> int:
        """What networks are made with: types are those of the model unless fp16 may be chosen."""
        if self.has_fp16:
            return 0
        return 1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Collect what the library says on this thread, warnings and errors."""
        told: list[str] = []
        before = self.log.listeners.__dict__.get("told")
        self.log.listeners.told = told
        try:
            yield told
        finally:
            self.log.listeners.told = before


def said(messages: list[str]) -> str:
    """What was collected, in one line of limited length."""
    text = " ".join(" ".join(message.split()) for message in messages)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


@cache
def open_library() -> Library:
    """Return the process's library.

    Raises:
        ProviderUnavailableError: neither is installed, or it can't be loaded.
    """
    name = next((name for name in MODULES if importlib.util.find_spec(name)), None)
    if name is None:
        raise ProviderUnavailableError(
            "neither TensorRT nor TensorRT-RTX is installed",
            fix="Install one with: pip install ep-tensorrt[rtx]",
        )
    try:
        trt = importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise ProviderUnavailableError(f"{name} can't be loaded: {error}") from error
    is_rtx = name == "tensorrt_rtx"
    return Library(
        trt=trt,
        name="TensorRT-RTX" if is_rtx else "TensorRT",
        version=str(trt.__version__),
        builds_anywhere=is_rtx,
        targets=_targets(trt) if is_rtx else {},
        has_fp16="FP16" in trt.BuilderFlag.__members__,
        log=_make_log(trt),
    )


def _targets(trt: Any) -> dict[str, Any]:
    members = trt.ComputeCapability.__members__.items()
    return {f"sm_{name[2:]}": member for name, member in members if name.startswith("SM")}


def _make_log(trt: Any) -> Any:
    """A logger that keeps errors for whoever listens on the thread."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.listeners = threading.local()

        def log(self, severity: Any, message: str) -> None:
            told = self.listeners.__dict__.get("told")
            if told is not None and severity <= trt.ILogger.Severity.ERROR:
                told.append(message)

    return Log()
