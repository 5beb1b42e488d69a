"""The primary context of a device, shared politely with other libraries of the process.

It is retained and never destroyed or reset. It is current on a thread only while this package calls
the driver there; what was current before is so again afterwards.
"""

from __future__ import annotations

import ctypes
import os
from types import TracebackType

import pycuda.driver as drv

from ep_core.errors import DeviceLostError
from ep_cuda.failures import translate

__all__ = ["FORKED", "Context", "abandon", "check_process", "initialize", "is_forked"]

FORKED = "CUDA was initialized before this process was forked, and doesn't work in it"

_INITIALIZED_BY: list[int] = []
_ABANDONED: list[object] = []


def initialize() -> None:
    """Have the driver ready; later calls do nothing.

    Raises:
        drv.Error: there is no device, or the driver is out of order.
    """
    if not _INITIALIZED_BY:
        drv.init()
        _INITIALIZED_BY.append(os.getpid())


def is_forked() -> bool:
    """The driver was initialized by a process that this one was forked from."""
    return bool(_INITIALIZED_BY) and os.getpid() not in _INITIALIZED_BY


def check_process() -> None:
    """Raise DeviceLostError in a process that was forked from one that used CUDA."""
    if is_forked():
        raise DeviceLostError(
            FORKED,
            fix="Start processes with the method 'spawn', and open sessions in each of them.",
        )


def abandon(item: object) -> None:
    """Never destroy an object of pycuda's: in a forked process that calls a driver that hangs."""
    _ABANDONED.append(item)


class Context:
    """The primary context of one device. Safe on many threads.

    Args:
        number: of the device, in the driver's order.
    """

    def __init__(self, number: int) -> None:
        self._context = drv.Device(number).retain_primary_context()
        # Pycuda's destructor would give it back with a function that isn't for primary contexts.
        # One reference too many keeps it for as long as the process lives.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._context))

    def doing(self, what: str) -> Doing:
        """A block in which the context is current, and errors of pycuda become the project's.

        Args:
            what: is done, for the error's text.
        """
        return Doing(self._context, what)


class Doing:
    """See `Context.doing`. Blocks may lie in one another."""

    __slots__ = ("_context", "_what")

    def __init__(self, context: drv.Context, what: str) -> None:
        self._context = context
        self._what = what

    def __enter__(self) -> None:
        check_process()
        try:
            self._context.push()
        except drv.Error as error:
            raise translate(error, self._what) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._context.pop()
        if isinstance(error, drv.Error):
            raise translate(error, self._what) from error
