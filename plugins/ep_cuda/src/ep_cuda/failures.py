"""Errors of CUDA as errors of the project: what happened, and what to do about it."""

from __future__ import annotations

import pycuda.driver as drv

from ep_core.errors import AllocationError, DeviceLostError, EpError, RunError

__all__ = ["translate"]

_LOST = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "unspecified launch failure",
    "misaligned address",
    "invalid program counter",
    "operation not supported on global/shared address space",
    "hardware stack error",
    "device-side assert triggered",
    "the launch timed out and was terminated",
    "uncorrectable ecc error encountered",
    "uncorrectable nvlink error",
    "context is destroyed",
    "driver shutting down",
    "device is lost",
    "no cuda-capable device is detected",
    "invalid device context",
)
"""The driver's words for errors after which the context does no more work; pycuda keeps no number.
See CUresult in the driver's interface."""


def translate(error: drv.Error, doing: str) -> EpError:
    """Return the error to raise in place of one of pycuda's."""
    text = str(error).strip()
    if isinstance(error, drv.MemoryError):
        return AllocationError(
            f"the device ran out of memory while {doing}: {text}",
            fix="Use smaller batches, or close other users of the device.",
        )
    if any(words in text.lower() for words in _LOST):
        return DeviceLostError(
            f"the device was lost while {doing}: {text}",
            fix="Start the process anew: CUDA gives it no other context on this device.",
        )
    return RunError(f"CUDA failed while {doing}: {text}")
