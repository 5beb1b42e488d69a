"""The small frozen vocabulary that every other room shares: data types, value types, devices.

Nothing here knows graphs, providers or sessions.
Source of the element type numbers: `TensorProto.DataType` in onnx.proto (onnx 1.23).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from ep_core.errors import ContractError, NotSupportedError

__all__ = [
    "HOST_MEMORY",
    "DataType",
    "DeviceInfo",
    "DeviceSpeed",
    "Dim",
    "MapType",
    "MemoryInfo",
    "MemoryKind",
    "OpSet",
    "OptionalType",
    "SequenceType",
    "Shape",
    "SparseTensorType",
    "TensorType",
    "ValueType",
]

Dim = int | str | None
"""One dimension: a length, the name of a symbolic length, or unknown."""

Shape = tuple[Dim, ...]


class DataType(enum.IntEnum):
    """Element types of ONNX tensors, numbered as in onnx.proto."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of a host array of this type; strings are object arrays of `str`."""
        return _NUMPY[self]

    @property
    def bits(self) -> int:
        """Bits of one element in a packed buffer; 0 for strings, which have no fixed size."""
        return _BITS[self]

    @property
    def text(self) -> str:
        """The name inside ONNX type strings, e.g. `float` or `int64`."""
        return self.name.lower()

    @property
    def is_float(self) -> bool:
        """True for every floating type, narrow ones included, complex ones not."""
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers of every width, bool not included."""
        return self in _INTEGERS

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any] | type) -> DataType:
        """Return the ONNX type of a numpy dtype.

        Raises:
            NotSupportedError: numpy types without an ONNX counterpart, such as datetimes.
        """
        dtype = np.dtype(dtype)
        found = _FROM_NUMPY.get(dtype)
        if found is not None:
            return found
        if dtype.kind in "UOT":
            return cls.STRING
        native = _FROM_NUMPY.get(dtype.newbyteorder("="))
        if native is not None:
            return native
        raise NotSupportedError(
            f"numpy dtype {dtype} has no ONNX element type",
            fix="Convert the array, for example with astype(numpy.float32).",
        )


_NUMPY: dict[DataType, np.dtype[Any]] = {
    DataType.FLOAT: np.dtype(np.float32),
    DataType.UINT8: np.dtype(np.uint8),
    DataType.INT8: np.dtype(np.int8),
    DataType.UINT16: np.dtype(np.uint16),
    DataType.INT16: np.dtype(np.int16),
    DataType.INT32: np.dtype(np.int32),
    DataType.INT64: np.dtype(np.int64),
    DataType.STRING: np.dtype(object),
    DataType.BOOL: np.dtype(np.bool_),
    DataType.FLOAT16: np.dtype(np.float16),
    DataType.DOUBLE: np.dtype(np.float64),
    DataType.UINT32: np.dtype(np.uint32),
    DataType.UINT64: np.dtype(np.uint64),
    DataType.COMPLEX64: np.dtype(np.complex64),
    DataType.COMPLEX128: np.dtype(np.complex128),
    DataType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    DataType.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    DataType.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    DataType.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    DataType.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    DataType.UINT4: np.dtype(ml_dtypes.uint4),
    DataType.INT4: np.dtype(ml_dtypes.int4),
    DataType.FLOAT4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
    DataType.FLOAT8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    DataType.UINT2: np.dtype(ml_dtypes.uint2),
    DataType.INT2: np.dtype(ml_dtypes.int2),
    DataType.FLOAT6E2M3: np.dtype(ml_dtypes.float6_e2m3fn),
    DataType.FLOAT6E3M2: np.dtype(ml_dtypes.float6_e3m2fn),
}
_FROM_NUMPY = {dtype: kind for kind, dtype in _NUMPY.items()}
_NARROW_BITS = {
    DataType.FLOAT6E2M3: 6,
    DataType.FLOAT6E3M2: 6,
    DataType.UINT4: 4,
    DataType.INT4: 4,
    DataType.FLOAT4E2M1: 4,
    DataType.UINT2: 2,
    DataType.INT2: 2,
    DataType.STRING: 0,
}
_BITS = {kind: _NARROW_BITS.get(kind, dtype.itemsize * 8) for kind, dtype in _NUMPY.items()}
_FLOATS = frozenset(k for k in DataType if "FLOAT" in k.name or k is DataType.DOUBLE)
_INTEGERS = frozenset(k for k in DataType if "INT" in k.name)


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor; `shape` is None when even the rank is unknown."""

    dtype: DataType
    shape: Shape | None = None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape when every dimension is a known length, else None."""
        if self.shape is None or not all(isinstance(dim, int) for dim in self.shape):
            return None
        return self.shape  # type: ignore[return-value]

    def __str__(self) -> str:
        return f"tensor({self.dtype.text})"


@dataclass(frozen=True, slots=True)
class SparseTensorType:
    """A sparse tensor in COO form."""

    dtype: DataType
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"sparse_tensor({self.dtype.text})"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type; a host value is a Python list."""

    element: ValueType | None

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value or nothing; a host value is the value itself or None."""

    element: ValueType | None

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True, slots=True)
class MapType:
    """A mapping from scalars to values; a host value is a Python dict."""

    key: DataType
    value: ValueType | None

    def __str__(self) -> str:
        return f"map({self.key.text},{self.value})"


ValueType = TensorType | SparseTensorType | SequenceType | OptionalType | MapType


class MemoryKind(enum.Enum):
    """What kind of memory a buffer lies in."""

    HOST = "host"
    DEVICE = "device"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Names one memory.

    Two buffers may be used in place of each other only if these are equal, and always if they
    are, whichever open objects of the provider made them.

    `device` is `"cpu"` for host memory, else `"<provider>:<device id>"`.
    """

    device: str
    kind: MemoryKind

    @property
    def is_host(self) -> bool:
        """True where host code may read and write the bytes without a copy."""
        return self.kind is not MemoryKind.DEVICE

    def __str__(self) -> str:
        return f"{self.device}/{self.kind.value}"


HOST_MEMORY = MemoryInfo("cpu", MemoryKind.HOST)
"""Plain host memory, where a tensor is a `numpy.ndarray`."""


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """How fast a device is, as its provider declares it.

    Attributes:
        flops_per_second: peak for 32-bit floats, a multiplication and an addition counting two.
        bytes_per_second: bandwidth of the memory it works in.
        operator_seconds: what any operator takes, however small.
        partition_seconds: what starting a partition takes, waiting for its end included.
        copy_seconds, copy_bytes_per_second: between host memory and its own, either way. Without
            meaning for a device that works in host memory.
    """

    flops_per_second: float
    bytes_per_second: float
    operator_seconds: float
    partition_seconds: float
    copy_seconds: float = 1e-5
    copy_bytes_per_second: float = 1e10

    def __post_init__(self) -> None:
        rates = (self.flops_per_second, self.bytes_per_second, self.copy_bytes_per_second)
        if not all(math.isfinite(value) and value >= 0 for value in astuple(self)) or 0 in rates:
            raise ContractError(
                "the declared speed of a device",
                expected="finite numbers, rates above 0 and times from 0 up",
                got=self,
            )


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device that a provider can run on.

    Attributes:
        provider: name of the provider that lists it, e.g. `cpu`.
        id: the provider's own stable identifier, e.g. `0` or `GPU.1`.
        kind: `cpu`, `gpu`, `npu` or the vendor's word for something else.
        vendor, name: as the hardware reports them.
        memory_bytes: size of the device's memory, 0 if it has none of its own.
        fingerprint: what a certificate binds to, as coarse as is honest (instruction set and
            runtime version for a CPU library; chip, driver and runtime for a GPU).
        properties: anything else worth showing, as text.
        speed: what placement computes with, None where the provider doesn't know.
        dlpack_device: DLPack's type and number of the device, as `__dlpack_device__` of its buffers
            tells them, where tensors of other libraries may lie on it; None where none can.
    """

    provider: str
    id: str
    kind: str
    vendor: str = ""
    name: str = ""
    memory_bytes: int = 0
    fingerprint: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, compare=False)
    speed: DeviceSpeed | None = field(default=None, compare=False)
    dlpack_device: tuple[int, int] | None = field(default=None, compare=False)


class OpSet(Mapping[str, int]):
    """Operator set versions by domain, immutable; `ai.onnx` is spelled `""`."""

    __slots__ = ("_versions",)

    def __init__(self, versions: Mapping[str, int]) -> None:
        normal = {("" if domain == "ai.onnx" else domain): v for domain, v in versions.items()}
        self._versions = MappingProxyType(normal)

    def __getitem__(self, domain: str) -> int:
        return self._versions["" if domain == "ai.onnx" else domain]

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def __repr__(self) -> str:
        return f"OpSet({dict(self._versions)!r})"
