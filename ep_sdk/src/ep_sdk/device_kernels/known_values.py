"""Small tensors whose values the host knows, so that shapes and axes are read without waiting."""

from __future__ import annotations

import numpy as np

from ep_core.contracts import Buffer, HostArray
from ep_sdk.device_kernels.contracts import DeviceBuffer

__all__ = ["MOST_KNOWN", "note_values"]

MOST_KNOWN = 64
"""Elements of a tensor whose values the host remembers."""


def note_values(source: Buffer | HostArray, target: DeviceBuffer) -> None:
    """A copy to `target` is about to be submitted: remember what it will hold, if it is small.

    Args:
        source: an array, a buffer of the same kind as `target`, or one of which nothing is known.
    """
    values: HostArray | None = None
    if isinstance(source, np.ndarray):
        is_small = source.size <= MOST_KNOWN and source.dtype.kind in "iubf"
        values = np.array(source) if is_small else None
    elif isinstance(source, type(target)):
        values = source.values
    if values is None:
        target.forget_values()
    else:
        target.remember_values(values)
