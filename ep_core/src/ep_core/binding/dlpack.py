"""Host tensors in and out by the DLPack protocol, without a copy.

numpy does the work. What it doesn't know are bfloat16 and the floats of 8 bits; those pass it as
unsigned integers, with the type in the capsule changed on the way. Source of the numbers and of the
layout of a capsule: dlpack.h of DLPack 1.1 (`DLDataTypeCode`, `DLTensor`, `DLManagedTensor`).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ep_core.contracts import HostArray
from ep_core.errors import NotSupportedError
from ep_core.types import DataType

__all__ = ["HOST_DEVICE", "DLPackError", "array_from", "export"]

HOST_DEVICE = (1, 0)
"""kDLCPU, and there is one."""

_CODES = {
    DataType.BFLOAT16: 4,
    DataType.FLOAT8E4M3FN: 10,
    DataType.FLOAT8E4M3FNUZ: 11,
    DataType.FLOAT8E5M2: 12,
    DataType.FLOAT8E5M2FNUZ: 13,
    DataType.FLOAT8E8M0: 14,
}
_KINDS = {(code, kind.bits): kind for kind, code in _CODES.items()}
_UNSIGNED = 1


class DLPackError(NotSupportedError, BufferError):
    """A tensor can't go in or out by DLPack; the protocol wants a BufferError."""


class _DataType(ctypes.Structure):
    """`DLDataType`."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


_DTYPE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}
"""Bytes before the `DLDataType`, by the capsule's name: pointer, device and rank are in front of
it, and in the newer form version, context, deleter and flags before those."""


def export(array: HostArray, arguments: dict[str, Any]) -> object:
    """Return a capsule that shares the array's memory and keeps it alive.

    Args:
        arguments: of `__dlpack__` beside the stream, those that the consumer gave.
    """
    kind = DataType.from_numpy(array.dtype)
    try:
        if kind not in _CODES:
            return array.__dlpack__(**arguments)
        capsule = array.view(f"u{array.itemsize}").__dlpack__(**arguments)
        _dtype_in(capsule).code = _CODES[kind]
        return capsule
    except Exception as error:
        raise DLPackError(
            f"an array of {array.dtype} can't be exported by DLPack: {error}",
            fix="Take it with numpy().",
        ) from error


def array_from(data: Any) -> HostArray:
    """Return an array that shares the memory of a tensor on the host.

    Args:
        data: an object with `__dlpack__` and `__dlpack_device__`, or a capsule.

    Raises:
        DLPackError: the tensor is on another device, or has a type that neither numpy nor ONNX has.
    """
    is_capsule = type(data).__name__ == "PyCapsule"
    try:
        device = HOST_DEVICE if is_capsule else tuple(map(int, data.__dlpack_device__()))
    except Exception as error:
        raise DLPackError(
            "from_dlpack",
            expected="an object that has __dlpack__ and __dlpack_device__, or a capsule",
            got=type(data).__name__,
        ) from error
    passage: Any = _Passage(data, device, is_capsule)
    try:
        array: HostArray = np.from_dlpack(passage)
    except Exception as error:
        raise DLPackError(
            f"a tensor of {type(data).__module__} on DLPack device {device} can't be taken: "
            f"{passage.problem or error}",
            fix="Copy it to the host, in a type that ONNX has.",
        ) from error
    return array if passage.kind is None else array.view(passage.kind.numpy)


class _Passage:
    """Hands a tensor to numpy, which looks into the capsule for the true device.

    Attributes:
        kind: what the elements are, where numpy is told that they are integers.
        problem: what the tensor's own library said, which numpy doesn't repeat.
    """

    def __init__(self, data: Any, device: tuple[int, ...], is_capsule: bool) -> None:
        self._data = data
        self._device = device
        self._is_capsule = is_capsule
        self.kind: DataType | None = None
        self.problem = ""

    def __dlpack__(self, **arguments: Any) -> object:
        try:
            capsule = self._data if self._is_capsule else self._data.__dlpack__(**arguments)
        except TypeError:
            raise  # an older library; numpy asks again without arguments
        except Exception as error:
            self.problem = str(error)
            raise
        dtype = _dtype_in(capsule)
        self.kind = _KINDS.get((dtype.code, dtype.bits))
        if self.kind is not None:
            dtype.code = _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> tuple[int, ...]:
        return self._device


def _dtype_in(capsule: object) -> _DataType:
    """The element type inside a capsule that nobody has used yet; changes go into it."""
    # By item and not by attribute, so that nobody else's settings of these functions are touched.
    name_of = ctypes.pythonapi["PyCapsule_GetName"]
    name_of.restype = ctypes.c_char_p
    name_of.argtypes = (ctypes.py_object,)
    address_of = ctypes.pythonapi["PyCapsule_GetPointer"]
    address_of.restype = ctypes.c_void_p
    address_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
    name = name_of(capsule)
    if name not in _DTYPE_AT:
        raise ValueError(f"the capsule {name!r} is used, or is none of DLPack's")
    return _DataType.from_address(address_of(capsule, name) + _DTYPE_AT[name])
