"""A buffer's export as another library might have made it: on another device, in another order.

The layout of a capsule is that of dlpack.h of DLPack 1.1 (`DLTensor`, `DLManagedTensor`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ep_core.contracts import Buffer

__all__ = ["Altered", "Exported", "askew", "elsewhere", "nowhere", "of_other_type", "transposed"]

_OPAQUE_HANDLE = 3
"""kDLOpaqueHandle: elements that nobody but their owner understands."""


class _Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Change = Callable[["_Tensor"], object]
"""Alters a tensor and returns what has to live as long as it."""


class Exported:
    """A buffer as a tensor of some library: it takes the arguments that the protocol has.

    Attributes:
        exports: how often it was taken.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.exports = 0

    def __dlpack__(self, *, stream: int | None = None, **others: Any) -> object:
        self.exports += 1
        return self._buffer.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._buffer.__dlpack_device__()


class Altered(Exported):
    """The same, with something else in the capsule."""

    def __init__(self, buffer: Buffer, change: Change) -> None:
        super().__init__(buffer)
        self._change = change
        self._kept: list[object] = []

    def __dlpack__(self, *, stream: int | None = None, **others: Any) -> object:
        capsule = super().__dlpack__(stream=stream)
        pointer_of = ctypes.pythonapi["PyCapsule_GetPointer"]
        pointer_of.restype = ctypes.c_void_p
        pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
        self._kept.append(self._change(_Tensor.from_address(pointer_of(capsule, b"dltensor"))))
        return capsule


def elsewhere(tensor: _Tensor) -> object:
    """On the next device of the same type."""
    tensor.device_id += 1
    return None


def nowhere(tensor: _Tensor) -> object:
    """Elements without an address."""
    tensor.data = None
    return None


def askew(tensor: _Tensor) -> object:
    """At an address between two elements."""
    tensor.byte_offset += 1
    return None


def of_other_type(tensor: _Tensor) -> object:
    """Of elements that ONNX hasn't."""
    tensor.code = _OPAQUE_HANDLE
    return None


def transposed(tensor: _Tensor) -> object:
    """A matrix read by columns, so that it isn't contiguous."""
    rows, columns = tensor.shape[0], tensor.shape[1]
    lengths = (ctypes.c_int64 * 2)(columns, rows)
    strides = (ctypes.c_int64 * 2)(1, columns)
    tensor.shape, tensor.strides = lengths, strides
    return lengths, strides
