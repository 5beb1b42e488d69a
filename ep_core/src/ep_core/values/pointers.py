"""What a caller says of memory in numbers: element types, shapes, addresses."""

from __future__ import annotations

import ctypes
import math
import numbers
from typing import Any

import numpy as np

from ep_core.contracts import HostArray
from ep_core.errors import EpError, OptionError
from ep_core.types import DataType

__all__ = ["array_at", "element_type_of", "shape_of"]

_MOST_BYTES = 2**63 - 1
_MOST_DIMENSIONS = 64
"""Of numpy's arrays."""


def element_type_of(element_type: Any) -> DataType:
    """The type that a numpy dtype, or the number of an ONNX element type, stands for."""
    expected = "a numpy dtype, or the number of an ONNX element type such as TensorProto.FLOAT"
    try:
        if isinstance(element_type, numbers.Integral) and not isinstance(element_type, bool):
            return DataType(int(element_type))
        if element_type is None:
            raise TypeError("None is float64 to numpy")
        return DataType.from_numpy(np.dtype(element_type))
    except (EpError, TypeError, ValueError) as error:
        got = repr(element_type)
        raise OptionError("element_type", expected=expected, got=got) from error


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of lengths."""
    try:
        if isinstance(shape, str | bytes):
            raise TypeError("text is no shape")
        lengths = tuple(_length(item) for item in shape)
        if 0 in lengths or len(lengths) > _MOST_DIMENSIONS:
            np.empty(lengths, np.complex128)  # raises where there are no such arrays
        return lengths
    except (TypeError, ValueError) as error:
        expected = "a list of ints from 0 up that an array of numpy's can have for its shape"
        raise OptionError("shape", expected=expected, got=repr(shape)) from error


def _length(item: Any) -> int:
    whole = isinstance(item, numbers.Integral) and not isinstance(item, bool)
    if not whole or not 0 <= item <= _MOST_BYTES:
        raise ValueError(f"{item!r} is no length")
    return int(item)


def array_at(address: Any, shape: tuple[int, ...], dtype: DataType, what: str) -> HostArray:
    """A view of host memory, which must stay valid for as long as the view is used.

    Raises:
        OptionError: about `what`, where the address can't be one of such a tensor.
    """
    if dtype.bits % 8 or dtype is DataType.STRING:
        raise OptionError(f"{what}: raw memory can't hold {dtype.text}", fix="Bind an array.")
    if isinstance(address, bool) or not isinstance(address, numbers.Integral):
        raise OptionError(f"buffer_ptr of {what}", expected="an address", got=repr(address))
    size = dtype.numpy.itemsize
    nbytes = math.prod(shape) * size
    address = int(address)
    if nbytes == 0:
        return np.empty(shape, dtype.numpy)
    if not 0 < address <= _MOST_BYTES - nbytes or address % dtype.numpy.alignment:
        raise OptionError(
            f"buffer_ptr of {what}",
            expected=f"the address of {nbytes} bytes, a multiple of {dtype.numpy.alignment}",
            got=hex(address),
        )
    memory = memoryview((ctypes.c_uint8 * nbytes).from_address(address)).cast("B")
    array: HostArray = np.frombuffer(memory, np.uint8).view(dtype.numpy).reshape(shape)
    return array
