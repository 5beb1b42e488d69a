"""Routes of copies between memories, and copies of host values.

Knows contracts and types; knows nothing of plans or sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.contracts import DataTransfer, ExecutionProvider, Value
from ep_core.errors import ContractError, NotSupportedError
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo

__all__ = ["Hop", "contiguous", "copy_value", "direct_hop", "pinned_array"]


@dataclass(frozen=True, slots=True)
class Hop:
    """One direct copy: which provider's `DataTransfer` does it, and so on whose stream.

    Attributes:
        owner: position of that provider among the session's candidates.
    """

    owner: int
    transfer: DataTransfer
    source: MemoryInfo
    target: MemoryInfo


def direct_hop(
    source: MemoryInfo, target: MemoryInfo, providers: Sequence[ExecutionProvider]
) -> Hop | None:
    """Find who can copy from `source` to `target` directly; the source's side is asked first.

    Returns:
        The hop, or None where the copy has to go through the host.

    Raises:
        ContractError: a provider can't exchange data with the host.
    """
    for side in (source, target):
        for owner, provider in enumerate(providers):
            transfer = provider.data_transfer
            if provider.memory != side or side == HOST_MEMORY or transfer is None:
                continue
            try:
                possible = transfer.can_copy(source, target)
            except Exception as error:
                raise ContractError(
                    f"can_copy of provider {provider.info.name!r} raised "
                    f"{type(error).__name__}: {error}"
                ) from error
            if possible:
                return Hop(owner, transfer, source, target)
    if HOST_MEMORY in (source, target):
        raise ContractError(
            f"no provider copies between {source} and {target}",
            fix="Its DataTransfer must copy to and from host memory.",
        )
    return None


def pinned_array(
    provider: ExecutionProvider, shape: tuple[int, ...], dtype: DataType
) -> np.ndarray[Any, Any]:
    """Page-locked host memory of a provider that has it.

    Raises:
        NotSupportedError: strings.
        ContractError: the provider gives something else.
        and what it raises, such as AllocationError.
    """
    if dtype is DataType.STRING:
        raise NotSupportedError("strings are objects, which can't be pinned")
    array: Any = provider.allocate_pinned(shape, dtype)
    if (
        not isinstance(array, np.ndarray)
        or (array.shape, array.dtype) != (shape, dtype.numpy)
        or not (array.flags.c_contiguous and array.flags.writeable)
    ):
        raise ContractError(
            f"allocate_pinned of provider {provider.info.name!r} gives something else",
            expected=f"a writeable C-contiguous array of {dtype.text}{list(shape)}",
            got=type(array).__name__ if not isinstance(array, np.ndarray) else array.dtype,
        )
    return array


def contiguous(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array, or a C-contiguous copy of it; keeps rank 0, unlike ascontiguousarray."""
    return array if array.flags.c_contiguous else np.array(array, order="C")


def copy_value(value: Value) -> Value:
    """Deep-copy a host value: tensors, sequences, maps, empty optionals."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [copy_value(item) for item in value]
    if isinstance(value, dict):
        return {key: copy_value(item) for key, item in value.items()}
    return value
