"""Errors of OpenCL as errors of the project: what happened, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyopencl as cl

from ep_core.errors import AllocationError, DeviceLostError, EpError, RunError

__all__ = ["explained", "translate"]

_code = cl.status_code

_NO_MEMORY = frozenset(
    {
        _code.MEM_OBJECT_ALLOCATION_FAILURE,
        _code.OUT_OF_RESOURCES,
        _code.OUT_OF_HOST_MEMORY,
        _code.INVALID_BUFFER_SIZE,
    }
)

_NVIDIA_FAULT = -9999
"""What NVIDIA's driver returns after a kernel read or wrote where it must not."""

_LOST = frozenset({_code.DEVICE_NOT_AVAILABLE, _code.INVALID_CONTEXT, _NVIDIA_FAULT})


def translate(error: cl.Error, doing: str) -> EpError:
    """Return the error to raise in place of one of pyopencl's."""
    text = str(error).strip()
    if error.code in _NO_MEMORY:
        return AllocationError(
            f"the device ran out of memory while {doing}: {text}",
            fix="Use smaller batches, or close other users of the device.",
        )
    if error.code in _LOST:
        return DeviceLostError(
            f"the device was lost while {doing}: {text}",
            fix="Open a new session; if it happens again, look at the driver's log.",
        )
    return RunError(f"OpenCL failed while {doing}: {text}")


@contextlib.contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn errors of pyopencl inside into errors of the project."""
    try:
        yield
    except cl.Error as error:
        raise translate(error, doing) from error
