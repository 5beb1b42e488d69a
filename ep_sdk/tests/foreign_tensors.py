"""Another library's tensors: DLPack as dlpack.h of DLPack 1.1 has it, written down for tests.

It shares no code with the packages, so that a misreading on one side shows.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np

EXT_DEVICE = 12
READ_ONLY = 1
_api = ctypes.PyDLL(None)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_OLD, _NEW = ctypes.c_char_p(b"dltensor"), ctypes.c_char_p(b"dltensor_versioned")
_USED_OLD = ctypes.c_char_p(b"used_dltensor")
_USED_NEW = ctypes.c_char_p(b"used_dltensor_versioned")


class Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class Kind(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", Kind),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("dl_tensor", Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _Deleter))


class Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("version", Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", Tensor),
    )


_EXPORTED = []
"""Capsules point into these tensors, and whoever has one may give it up long after a test."""


class Foreign:
    """A tensor of host memory that says it lies on a device.

    Attributes:
        deleted: how often a consumer has said that it is done.
        asked: the arguments of each `__dlpack__`.
    """

    def __init__(self, array, number=0, *, device=EXT_DEVICE, told=None, kind=None, flags=0):
        codes = {"i": 0, "u": 1, "f": 2, "b": 6}
        self.array = array
        self.kind = kind or (codes[array.dtype.kind], array.itemsize * 8, 1)
        self.device = (device, number)
        self.told = told or self.device
        self.flags = flags
        self.deleted = 0
        self.asked = []
        self._kept = []

    def __dlpack_device__(self):
        return self.told

    def __dlpack__(self, **arguments):
        self.asked.append(arguments)
        is_new = (arguments.get("max_version") or (0, 0)) >= (1, 0)
        managed = ManagedVersioned() if is_new else Managed()
        managed.deleter = _Deleter(self._delete)
        if is_new:
            managed.version = Version(1, 1)
            managed.flags = self.flags
        tensor = managed.dl_tensor
        rank = self.array.ndim
        tensor.data = self.array.ctypes.data - 64
        tensor.byte_offset = 64
        tensor.device = Device(*self.device)
        tensor.ndim = rank
        tensor.dtype = Kind(*self.kind)
        tensor.shape = (ctypes.c_int64 * rank)(*self.array.shape)
        strides = (n // self.array.itemsize for n in self.array.strides)
        tensor.strides = (ctypes.c_int64 * rank)(*strides)
        self._kept.append(managed)
        _EXPORTED.append(self)
        return _new(ctypes.addressof(managed), _NEW if is_new else _OLD, None)

    def _delete(self, pointer):
        self.deleted += 1


class Old(Foreign):
    """The same by a library from before the protocol had arguments."""

    def __dlpack__(self):
        return super().__dlpack__()


class Consumer:
    """What another library sees of a tensor."""

    def __init__(self, tensor, **arguments):
        capsule = tensor.__dlpack__(**arguments)
        self.is_new = _name(capsule) == _NEW.value
        shape = ManagedVersioned if self.is_new else Managed
        pointer = _pointer(capsule, _NEW if self.is_new else _OLD)
        self._pointer = pointer
        self._managed = shape.from_address(pointer)
        _rename(capsule, _USED_NEW if self.is_new else _USED_OLD)

    @property
    def tensor(self) -> Tensor:
        return self._managed.dl_tensor

    @property
    def device(self):
        return (self.tensor.device.type, self.tensor.device.id)

    @property
    def address(self):
        return (self.tensor.data or 0) + self.tensor.byte_offset

    def array(self, dtype):
        shape = self.tensor.shape[: self.tensor.ndim]
        memory = (ctypes.c_uint8 * (math.prod(shape) * np.dtype(dtype).itemsize)).from_address(
            self.address
        )
        return np.frombuffer(memory, dtype).reshape(shape)

    def done(self):
        self._managed.deleter(self._pointer)
