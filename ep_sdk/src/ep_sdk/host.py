"""Values in host memory: copying, comparing, and making arrays of what kernels return."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ep_core.contracts import HostArray, Value
from ep_core.errors import RunError
from ep_core.types import TensorType, ValueType

__all__ = ["aligned_bytes", "as_value", "copy_into", "has_type", "shares_memory"]


def as_value(result: Any) -> Value:
    """What a kernel returned for its only output, as a value.

    A tuple of one is opened; numpy and Python scalars, which rank-0 computations give, become
    arrays. Sequences, maps and empty optionals stay as they are.
    """
    if type(result) is tuple:
        result = result[0]
    if result is None or isinstance(result, np.ndarray | list | dict):
        return result
    return np.asarray(result)


def copy_into(target: HostArray, value: Value, name: str) -> None:
    """Copy a tensor into memory given by the caller.

    Raises:
        RunError: dtype or shape differ, which numpy would paper over by broadcasting.
    """
    if not isinstance(value, np.ndarray):
        raise RunError(f"output {name!r} is no tensor and can't be written into given memory")
    if value.shape != target.shape or value.dtype != target.dtype:
        raise RunError(
            f"memory given for output {name!r} doesn't fit",
            expected=f"{value.dtype}{list(value.shape)}",
            got=f"{target.dtype}{list(target.shape)}",
            fix="Give no memory for it; the model declares another type than it computes.",
        )
    target[...] = value


def shares_memory(value: Value, others: Iterable[Value]) -> bool:
    """True if `value` may share memory with one of `others`; always true for non-tensors."""
    if not isinstance(value, np.ndarray):
        return value is not None
    return any(
        np.may_share_memory(value, other) if isinstance(other, np.ndarray) else other is not None
        for other in others
    )


def has_type(value: Value, kind: ValueType | None) -> bool:
    """True if a tensor has exactly the static type `kind`."""
    return (
        isinstance(kind, TensorType)
        and isinstance(value, np.ndarray)
        and value.shape == kind.static_shape
        and value.dtype == kind.dtype.numpy
    )


def aligned_bytes(nbytes: int, alignment: int) -> HostArray:
    """Uninitialised host memory of `nbytes` whose address is a multiple of `alignment`."""
    memory = np.empty(nbytes + alignment, np.uint8)
    skip = -memory.ctypes.data % alignment
    return memory[skip : skip + nbytes]
