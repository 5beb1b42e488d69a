"""DLPack for providers: taking tensors of other libraries, and letting them take buffers.

What a provider adds is its own: what an address means on its device, how work is ordered, and
what happens to memory that nobody uses any more.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.types import DataType
from ep_core.values.dlpack import export, shadow

__all__ = ["Borrowed", "lend", "take"]


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Memory of another library's tensor: C-contiguous elements on the provider's device.

    Attributes:
        address: of the first element, as the device's libraries take it.
        owner: keeps the memory; it is given back when nobody refers to this object any more.
    """

    address: int
    shape: tuple[int, ...]
    dtype: DataType
    owner: object


def take(tensor: Any, device: tuple[int, int], stream: int | None = None) -> Borrowed:
    """Take another library's tensor; for `ExecutionProvider.import_dlpack`.

    Args:
        tensor: has `__dlpack__` and `__dlpack_device__`.
        device: DLPack's type and number of the provider's device.
        stream: on which the tensor has to be ready, in the form that DLPack's protocol has for the
            type of device; None where it has none.

    Raises:
        BufferError: it lies elsewhere, isn't C-contiguous, or has a type that ONNX hasn't.
    """
    array = shadow(tensor, device, {} if stream is None else {"stream": stream})
    if not array.flags.c_contiguous:
        raise BufferError(f"the tensor of shape {list(array.shape)} isn't C-contiguous")
    dtype = DataType.from_numpy(array.dtype)
    return Borrowed(int(array.ctypes.data), array.shape, dtype, array)


def lend(
    address: int,
    shape: tuple[int, ...],
    dtype: DataType,
    device: tuple[int, int],
    given_back: Callable[[], None],
    max_version: tuple[int, int] | None = None,
) -> object:
    """Make a capsule over memory; for `Buffer.__dlpack__`.

    Args:
        address: of the first element, as the device's libraries take it.
        device: DLPack's type and number of the device.
        given_back: called once, when nobody uses the memory any more: on any thread, and possibly
            inside the garbage collector, so that it must not wait for a lock.
        max_version: the newest form of a capsule that the consumer knows; None for the old one.

    Raises:
        BufferError: a type that DLPack hasn't.
    """
    size = math.prod(shape) * dtype.numpy.itemsize
    memory = (ctypes.c_uint8 * max(size, 1)).from_address(address)
    weakref.finalize(memory, given_back).atexit = False
    raw = np.frombuffer(memoryview(memory).cast("B"), np.uint8, size)
    array = raw.view(dtype.numpy).reshape(shape)
    return export(array, {} if max_version is None else {"max_version": max_version}, device)
