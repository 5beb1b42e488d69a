"""Tensors in and out by the DLPack protocol, without a copy, on the host and on devices.

numpy does the work, and with it the care for lifetimes. What it doesn't know are devices, bfloat16
and the floats of 8 bits. Tensors on a device pass it as if they lay on the host, in arrays whose
elements nobody touches; the other types pass it as unsigned integers. What a capsule says of both
is changed on the way. Source of the numbers and of the layout of a capsule: dlpack.h of DLPack 1.1
(`DLDeviceType`, `DLDataTypeCode`, `DLTensor`, `DLManagedTensor`, `DLManagedTensorVersioned`).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ep_core.contracts import HostArray
from ep_core.errors import NotSupportedError
from ep_core.types import DataType

__all__ = [
    "HOST_DEVICE",
    "DLPackError",
    "RawTensor",
    "Watched",
    "array_from",
    "device_of",
    "export",
    "shadow",
]

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


class _Head(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_VERSIONED = b"dltensor_versioned"
_TENSOR_AT = {b"dltensor": 0, _VERSIONED: 32}
"""Bytes before the `DLTensor`, by the capsule's name: in the newer form version, context, deleter
and flags are in front of it."""
_MAJOR_VERSION = 1
_FLAGS_AT = 24
_READ_ONLY = 1
_MOST_DIMENSIONS = 64
"""Of numpy's arrays."""


def export(
    array: HostArray, arguments: dict[str, Any], device: tuple[int, int] = HOST_DEVICE
) -> object:
    """Return a capsule that shares the array's memory and keeps it alive.

    Args:
        arguments: of `__dlpack__` beside the stream, those that the consumer gave.
        device: where the memory lies in truth.
    """
    kind = DataType.from_numpy(array.dtype)
    try:
        plain = array.view(f"u{array.itemsize}") if kind in _CODES else array
        capsule = plain.__dlpack__(**arguments)
        head = _head_of(capsule)
        head.code = _CODES.get(kind, head.code)
        head.device[:] = device
        return capsule
    except Exception as error:
        raise DLPackError(
            f"an array of {array.dtype} can't be exported by DLPack: {error}",
            fix="Take it with numpy().",
        ) from error


def device_of(data: Any) -> tuple[int, int]:
    """The device that a tensor says it lies on; the host for a capsule, which doesn't say.

    Raises:
        DLPackError: it is no tensor.
    """
    if type(data).__name__ == "PyCapsule":
        return HOST_DEVICE
    try:
        kind, number = map(int, data.__dlpack_device__())
    except Exception as error:
        raise DLPackError(
            "from_dlpack",
            expected="an object that has __dlpack__ and __dlpack_device__, or a capsule",
            got=type(data).__name__,
        ) from error
    return kind, number


def array_from(data: Any) -> HostArray:
    """Return an array that shares the memory of a tensor on the host.

    Args:
        data: an object with `__dlpack__` and `__dlpack_device__`, or a capsule.

    Raises:
        DLPackError: the tensor is on another device, or has a type that neither numpy nor ONNX has.
    """
    return _taken(data, device_of(data), None, {})


def shadow(data: Any, device: tuple[int, int], arguments: dict[str, Any]) -> HostArray:
    """Return an array that stands for a tensor on a device, and keeps it alive.

    It has the tensor's address, shape, strides and type. Its elements must not be touched.

    Args:
        data: an object with `__dlpack__` and `__dlpack_device__`.
        device: where it must lie.
        arguments: of `__dlpack__`, such as the stream that the tensor has to be ready on.

    Raises:
        DLPackError: the tensor is on another device, or has a type that neither numpy nor ONNX has.
    """
    return _taken(data, device, device, arguments)


def _taken(
    data: Any, told: tuple[int, int], expected: tuple[int, int] | None, arguments: dict[str, Any]
) -> HostArray:
    passage: Any = _Passage(data, expected, arguments)
    try:
        array: HostArray = np.from_dlpack(passage)
    except Exception as error:
        raise DLPackError(
            f"a tensor of {type(data).__module__} on DLPack device {told} can't be taken: "
            f"{passage.problem or error}",
            fix="Copy it to the host, in a type that ONNX has.",
        ) from error
    finally:
        passage.restore()
    array = array if passage.kind is None else array.view(passage.kind.numpy)
    if not array.flags.aligned:
        raise DLPackError(
            f"a tensor of {type(data).__module__} isn't aligned for its elements",
            expected=f"an address that is a multiple of {array.dtype.alignment}",
            fix="Copy it first.",
        )
    return array


class _Passage:
    """Hands a tensor to numpy, which looks into the capsule for the true device.

    Args:
        expected: the device that it must lie on, if that isn't the host.

    Attributes:
        kind: what the elements are, where numpy is told that they are integers.
        problem: what the tensor's own library said, which numpy doesn't repeat.
    """

    def __init__(
        self, data: Any, expected: tuple[int, int] | None, arguments: dict[str, Any]
    ) -> None:
        self._data = data
        self._expected = expected
        self._arguments = arguments
        self._changed: tuple[object, _Head, tuple[int, int, int]] | None = None
        self.kind: DataType | None = None
        self.problem = ""

    def __dlpack__(self, **arguments: Any) -> object:
        try:
            capsule = self._capsule(arguments | self._arguments)
        except TypeError:
            raise  # an older library; numpy asks again without arguments
        except Exception as error:
            self.problem = str(error)
            raise
        head = _head_of(capsule)
        self.problem = _nonsense_in(head)
        if self.problem:
            raise BufferError(self.problem)
        # The tensor's own library reads this again when it frees the tensor, or tries elsewhere.
        self._changed = (capsule, head, (*head.device, head.code))
        if self._expected is not None:
            if tuple(head.device) != self._expected:
                self.problem = f"it lies on {tuple(head.device)}, not on {self._expected}"
                raise BufferError(self.problem)
            head.device[:] = HOST_DEVICE
        self.kind = _KINDS.get((head.code, head.bits))
        if self.kind is not None:
            head.code = _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST_DEVICE

    def restore(self) -> None:
        """Have the capsule say again what it said."""
        if self._changed is not None:
            _, head, (kind, number, code) = self._changed
            head.device[:] = kind, number
            head.code = code
            self._changed = None

    def _capsule(self, arguments: dict[str, Any]) -> object:
        is_capsule = type(self._data).__name__ == "PyCapsule"
        return self._data if is_capsule else self._data.__dlpack__(**arguments)


class Watched:
    """Passes a tensor on, and looks whether it may be written.

    Attributes:
        is_read_only: the tensor was taken, and its library said so.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self.is_read_only = False

    def __dlpack__(self, **arguments: Any) -> object:
        capsule: object = self._data.__dlpack__(**arguments)
        name, address = _opened(capsule)
        if name == _VERSIONED:
            flags = ctypes.c_uint64.from_address(address + _FLAGS_AT)
            self.is_read_only = bool(flags.value & _READ_ONLY)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_of(self._data)


class RawTensor:
    """Memory of a device, known by its address, as a tensor of DLPack's.

    It doesn't own the memory, and nothing is queued for it that others would have to wait for.

    Args:
        array: see `shadow`.
        device: DLPack's type and number of the device.
    """

    def __init__(self, array: HostArray, device: tuple[int, int]) -> None:
        self._array = array
        self._device = device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        **others: Any,
    ) -> object:
        version = {} if max_version is None else {"max_version": max_version}
        return export(self._array, version, self._device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def _head_of(capsule: object) -> _Head:
    """The tensor in a capsule that nobody has used yet; changes go into it."""
    name, address = _opened(capsule)
    return _Head.from_address(address + _TENSOR_AT[name])


def _nonsense_in(head: _Head) -> str:
    """What is wrong with a tensor that numpy would take, or would die of; empty for nothing."""
    if not 0 <= head.rank <= _MOST_DIMENSIONS:
        return f"it has {head.rank} dimensions"
    if head.rank and not head.shape:
        return "it has no shape"
    if not head.data and not (head.rank and 0 in head.shape[: head.rank]):
        return "it has elements, and no address"
    return ""


def _opened(capsule: object) -> tuple[bytes, int]:
    """The name of a capsule that nobody has used yet, and the address of what is in it."""
    # By item and not by attribute, so that nobody else's settings of these functions are touched.
    name_of = ctypes.pythonapi["PyCapsule_GetName"]
    name_of.restype = ctypes.c_char_p
    name_of.argtypes = (ctypes.py_object,)
    address_of = ctypes.pythonapi["PyCapsule_GetPointer"]
    address_of.restype = ctypes.c_void_p
    address_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
    name = name_of(capsule)
    if name not in _TENSOR_AT:
        raise ValueError(f"the capsule {name!r} is used, or is none of DLPack's")
    address = address_of(capsule, name)
    major = ctypes.c_uint32.from_address(address).value
    if name == _VERSIONED and major != _MAJOR_VERSION:
        raise ValueError(f"the capsule is of DLPack {major}, which is unknown here")
    return name, address
