"""Tensor protos into arrays: sizes are checked before anything is allocated, decoding is lazy.

Graphs and types are elsewhere; the way back (array into proto) is in `export.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from ep_core.errors import InvalidModelError, NotSupportedError
from ep_core.graph import Initializer
from ep_core.loading.external import ExternalFiles
from ep_core.loading.limits import LoadLimits
from ep_core.loading.payloads import Payloads
from ep_core.types import DataType

__all__ = ["TensorReader", "data_type"]

Array = np.ndarray[Any, np.dtype[Any]]

_MAX_RANK = 32  # what every numpy we support can hold
_INLINE_BYTES = 4096
"""Tensors up to this size stay visible to shape inference, which reads shapes from them."""

_BY_NUMBER = {int(kind): kind for kind in DataType}
_TYPED_FIELDS = {
    DataType.FLOAT: "float_data",
    DataType.COMPLEX64: "float_data",
    DataType.DOUBLE: "double_data",
    DataType.COMPLEX128: "double_data",
    DataType.INT64: "int64_data",
    DataType.UINT32: "uint64_data",
    DataType.UINT64: "uint64_data",
    DataType.STRING: "string_data",
}
_PAYLOAD_FIELDS = (*dict.fromkeys(_TYPED_FIELDS.values()), "int32_data", "raw_data")


def data_type(number: int, what: str) -> DataType:
    """Return the element type with that number in onnx.proto."""
    found = _BY_NUMBER.get(number)
    if found is not None:
        return found
    if number in onnx.TensorProto.DataType.values() and number != 0:
        name = onnx.TensorProto.DataType.Name(number)
        raise NotSupportedError(f"{what} has element type {name}, which isn't supported yet")
    raise InvalidModelError(
        f"{what} has an undefined element type",
        expected="a number of TensorProto.DataType other than 0",
        got=number,
    )


class TensorReader:
    """Reads the tensors of one model.

    Reading consumes: the payload of a large tensor is taken out of its proto, which then says
    that it is external. What remains of the model is small and serves for shape inference.

    Args:
        payloads: what was taken out before, which is as good as inside.
    """

    def __init__(self, files: ExternalFiles, limits: LoadLimits, payloads: Payloads) -> None:
        self._files = files
        self._limits = limits
        self._payloads = payloads

    def read(self, proto: onnx.TensorProto, what: str, name: str = "") -> Initializer:
        """Return the tensor as an initializer called `name`; raises if its bytes don't fit."""
        dtype = data_type(proto.data_type, what)
        shape = tuple(proto.dims)
        count = self._count(shape, dtype, what)
        size = (count * dtype.bits + 7) // 8
        if proto.HasField("segment"):
            raise NotSupportedError(f"{what} is stored in segments")
        external = proto.data_location == onnx.TensorProto.EXTERNAL
        raw: bytes | memoryview = proto.raw_data
        if dtype is DataType.STRING and (external or raw):
            raise InvalidModelError(f"{what} holds strings outside string_data")
        if external:
            entries = {str(entry.key): str(entry.value) for entry in proto.external_data}
            inside = self._payloads.get(entries.get("location", ""))
            raw = self._files.read(entries, size, what) if inside is None else inside
        if not external and not raw:
            array = _from_typed_fields(proto, dtype, shape, count, what)
            read: Callable[[], Array] = lambda: array  # noqa: E731
        else:
            if len(raw) != size:
                raise _wrong_size(what, shape, dtype, f"{size} bytes", f"{len(raw)} bytes")
            read = lambda: _decode(raw, dtype, shape)  # noqa: E731
        _detach(proto, raw, max(size, count))
        return Initializer(name, dtype, shape, read)

    def read_sparse(self, proto: onnx.SparseTensorProto, what: str, name: str = "") -> Initializer:
        """Return a sparse tensor as a dense initializer, made dense when it is first read."""
        values = self.read(proto.values, f"the values of {what}")
        indices = self.read(proto.indices, f"the indices of {what}").numpy()
        shape = tuple(proto.dims)
        count = self._count(shape, values.dtype, what)
        # A string in a numpy array takes a pointer at least.
        self._limits.check("max_densified_bytes", count * values.dtype.numpy.itemsize, what)
        flat = _flat_indices(indices, shape, what)
        if len(values.shape) != 1 or len(flat) != values.shape[0]:
            raise InvalidModelError(
                f"The values and indices of {what} differ in number",
                got=f"values {values.shape}, indices {indices.shape}",
            )
        if len(flat) and (flat.min() < 0 or flat.max() >= count or (np.diff(flat) <= 0).any()):
            raise InvalidModelError(
                f"{what} has indices outside its shape, repeated or unsorted",
                expected=f"ascending indices within {shape}",
            )

        def densify() -> Array:
            fill: Any = "" if values.dtype is DataType.STRING else 0
            dense = np.full(count, fill, values.dtype.numpy)
            dense[flat] = values.numpy()
            return dense.reshape(shape)

        return Initializer(name, values.dtype, shape, densify)

    def _count(self, shape: tuple[int, ...], dtype: DataType, what: str) -> int:
        if any(length < 0 for length in shape):
            raise InvalidModelError(f"{what} has a negative dimension", got=shape)
        if len(shape) > _MAX_RANK:
            raise NotSupportedError(f"{what} has more than {_MAX_RANK} dimensions", got=len(shape))
        # Zeros don't count: numpy refuses (0, 2**62) too.
        extent = math.prod(length for length in shape if length)
        self._limits.check("max_tensor_bytes", (extent * max(dtype.bits, 8) + 7) // 8, what)
        return math.prod(shape)


def _wrong_size(
    what: str, shape: tuple[int, ...], dtype: DataType, need: str, got: str
) -> InvalidModelError:
    return InvalidModelError(
        f"The data of {what} doesn't match its dimensions {shape} of {dtype.text}",
        expected=need,
        got=got,
        fix="The file is damaged or truncated; export or download it again.",
    )


def _detach(proto: onnx.TensorProto, raw: bytes | memoryview, size: int) -> None:
    if size > _INLINE_BYTES:
        for field in _PAYLOAD_FIELDS:
            proto.ClearField(field)
        proto.data_location = onnx.TensorProto.EXTERNAL
    elif proto.data_location == onnx.TensorProto.EXTERNAL:
        proto.raw_data = bytes(raw)
        proto.data_location = onnx.TensorProto.DEFAULT
        del proto.external_data[:]


def _decode(raw: bytes | memoryview, dtype: DataType, shape: tuple[int, ...]) -> Array:
    if not len(raw):
        return np.empty(shape, dtype.numpy)
    if dtype is DataType.BOOL:
        # Any byte but 0 is true; numpy would misbehave on bytes other than 0 and 1.
        return np.frombuffer(raw, np.uint8).astype(np.bool_).reshape(shape)
    if dtype.bits < 8:
        return _unpack(np.frombuffer(raw, np.uint8), dtype, math.prod(shape)).reshape(shape)
    array = np.frombuffer(raw, dtype.numpy).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _unpack(packed: Array, dtype: DataType, count: int) -> Array:
    """Split bytes into elements of 2, 4 or 6 bits, the lowest bits first."""
    bits = dtype.bits
    codes: Array
    if 8 % bits:
        stream = np.unpackbits(packed, bitorder="little")[: count * bits].reshape(count, bits)
        codes = np.packbits(stream, axis=1, bitorder="little").reshape(-1)
    else:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        wide: Array = (packed[:, None] >> shifts) & ((1 << bits) - 1)
        codes = wide.astype(np.uint8).reshape(-1)[:count]
    if not dtype.is_integer:
        return codes.view(dtype.numpy)
    if dtype in (DataType.INT4, DataType.INT2):
        unused = 8 - bits
        codes = (codes << unused).astype(np.uint8).view(np.int8) >> unused
    unpacked: Array = codes.astype(dtype.numpy)
    return unpacked


def _from_typed_fields(
    proto: onnx.TensorProto, dtype: DataType, shape: tuple[int, ...], count: int, what: str
) -> Array:
    field = _TYPED_FIELDS.get(dtype, "int32_data")
    entries = getattr(proto, field)
    need = count
    if dtype in (DataType.COMPLEX64, DataType.COMPLEX128):
        need = 2 * count
    elif dtype.bits in (2, 4):
        need = (count * dtype.bits + 7) // 8
    if len(entries) != need:
        raise _wrong_size(
            what, shape, dtype, f"{need} entries", f"{len(entries)} entries of {field}"
        )
    if dtype is DataType.STRING:
        return _strings(entries, what).reshape(shape)
    if field == "int32_data":
        # Narrow types are stored widened, floats by their bit pattern.
        wide: Array = np.array(entries, np.int32)
        if dtype is DataType.BOOL:
            wide = wide.astype(np.bool_)
            return wide.reshape(shape)
        if dtype.bits in (2, 4):
            return _unpack(wide.astype(np.uint8), dtype, count).reshape(shape)
        pattern: Array = wide.astype(f"u{dtype.numpy.itemsize}")
        return pattern.view(dtype.numpy).reshape(shape)
    stored = {"float_data": np.float32, "double_data": np.float64, "int64_data": np.int64}
    array: Array = np.array(entries, stored.get(field, np.uint64))
    if dtype is DataType.UINT32:
        array = array.astype(np.uint32)
    return array.view(dtype.numpy).reshape(shape)


def _strings(entries: Any, what: str) -> Array:
    array = np.empty(len(entries), object)
    try:
        array[:] = [entry.decode() for entry in entries]
    except UnicodeDecodeError as error:
        raise InvalidModelError(f"{what} holds a string that isn't UTF-8 ({error})") from error
    return array


def _flat_indices(indices: Array, shape: tuple[int, ...], what: str) -> Array:
    if indices.dtype != np.int64 or indices.ndim not in (1, 2):
        raise InvalidModelError(
            f"The indices of {what} have a wrong type",
            expected="int64 of shape [n] or [n, rank]",
            got=f"{indices.dtype} {indices.shape}",
        )
    if indices.ndim == 1:
        return indices
    if indices.shape[1] != len(shape) or (indices < 0).any() or (indices >= shape).any():
        raise InvalidModelError(f"{what} has indices outside its shape {shape}")
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    flat: Array = indices @ np.array(strides, np.int64)
    return flat
