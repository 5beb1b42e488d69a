"""`OrtValue`: a value of a model, on the host or in the memory of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_core.contracts import HostArray, Value
from ep_core.errors import FeedError, NotSupportedError
from ep_core.memory import contiguous
from ep_core.signature import as_strings
from ep_core.types import (
    HOST_MEMORY,
    DataType,
    MemoryInfo,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from ep_core.values.devices import (
    HOST,
    Place,
    adopt,
    copy_between,
    find_importer,
    find_place,
    new_array,
    new_tensor,
    pinned_for,
    to_host,
)
from ep_core.values.dlpack import HOST_DEVICE, DLPackError, array_from, device_of, export
from ep_core.values.holds import DeviceTensor
from ep_core.values.pointers import element_type_of, shape_of

__all__ = ["OrtValue", "as_tensor", "is_read_only"]


class OrtValue:
    """A tensor on the host or on a device, or another value of a model, on the host.

    Made by the class methods, and by runs. The memory stays valid for as long as the object, or
    anything that shares it, is referred to; also after the session that it came from is closed.
    Work that writes it has always finished: reading needs no synchronisation.
    """

    __slots__ = ("__weakref__", "_content", "_kind")

    def __init__(self, content: Value | DeviceTensor, kind: ValueType | None) -> None:
        self._content = content
        self._kind = kind

    # ------------------------------------------------------------ making one

    @classmethod
    def ortvalue_from_numpy(
        cls,
        numpy_obj: HostArray,
        /,
        device_type: str = "cpu",
        device_id: int | str = 0,
        *,
        pinned: bool = False,
    ) -> OrtValue:
        """Make a tensor with the content of an array.

        Args:
            numpy_obj: on the host the value shares its memory, unless that isn't C-contiguous, has
                another byte order, or holds strings.
            device_type: `"cpu"`, or the name of a provider.
            device_id: the device as `ep providers` lists it.
            pinned: a copy on the host instead, in page-locked memory that the device copies from
                and to without keeping the host waiting.

        Raises:
            FeedError: no array, or of a type that ONNX hasn't.
            OptionError, ProviderNotFoundError, ProviderUnavailableError: no such device.
            AllocationError, NotSupportedError: the device has no room, can't hold the type, or has
                no pinned memory.
        """
        place = _place(device_type, device_id, pinned)
        array, kind = as_tensor("the array", numpy_obj)
        if place is HOST:
            return cls(array, kind)
        value = _new(place, array.shape, kind.dtype)
        value.update_inplace(array)
        return value

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(
        cls, data: HostArray, /, onnx_element_type: int
    ) -> OrtValue:
        """Make a tensor on the host from an array whose bytes are elements of another type.

        Args:
            data: C-contiguous; its memory is shared.
            onnx_element_type: number of an ONNX type of as many bytes, e.g. TensorProto.BFLOAT16.
        """
        array, kind = as_tensor("data", data)
        dtype = element_type_of(onnx_element_type)
        if DataType.STRING in (dtype, kind.dtype) or dtype.numpy.itemsize != array.itemsize:
            raise FeedError(
                f"data for {dtype.text}",
                expected=f"elements of {dtype.numpy.itemsize} bytes",
                got=f"dtype {array.dtype}",
            )
        return cls(array.view(dtype.numpy), TensorType(dtype, array.shape))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int | str = 0,
        *,
        pinned: bool = False,
    ) -> OrtValue:
        """Make a tensor whose contents are undefined.

        Args:
            element_type: a numpy dtype, or the number of an ONNX element type.
            device_type, device_id, pinned: as in `ortvalue_from_numpy`, with the same errors.
        """
        place = _place(device_type, device_id, pinned)
        return _new(place, shape_of(shape), element_type_of(element_type))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Take a tensor of any library that has DLPack, on the host or a device, without a copy.

        What the other library still has queued for it is waited for. Its memory is kept until the
        value is gone.

        Args:
            data: an object with `__dlpack__` and `__dlpack_device__`, or a capsule, on the host.

        Raises:
            DLPackError: no provider takes tensors on its device, or it has a type or layout that
                can't be shared.
            ProviderError: the provider failed.
        """
        device = device_of(data)
        if device != HOST_DEVICE:
            content = adopt(data, find_importer(device))
            shape = tuple(content.buffer.shape)
            return cls(content, TensorType(content.buffer.dtype, shape))
        array = array_from(data)
        if not array.flags.c_contiguous:
            raise DLPackError("the tensor isn't C-contiguous", fix="Make it contiguous first.")
        return cls(*as_tensor("data", array))

    ortvalue_from_dlpack = from_dlpack

    # ------------------------------------------------------------ what it is

    @property
    def memory(self) -> MemoryInfo:
        """Where it lies."""
        content = self._content
        return content.buffer.memory if isinstance(content, DeviceTensor) else HOST_MEMORY

    def device_name(self) -> str:
        """`"cpu"` for the host, else the name of the provider whose memory it is."""
        return self.memory.device.partition(":")[0]

    def shape(self) -> list[int]:
        """Lengths of a tensor's dimensions."""
        return list(self._tensor("shape").shape)

    def data_type(self) -> str:
        """The type as text, such as `tensor(int64)` or `seq(tensor(float))`."""
        return str(self._kind) if self._kind is not None else "unknown"

    def element_type(self) -> int:
        """The number of a tensor's ONNX element type."""
        return int(self._dtype("element_type"))

    def tensor_size_in_bytes(self) -> int:
        """Bytes of a tensor's elements; strings count as references."""
        return int(self._tensor("tensor_size_in_bytes").nbytes)

    def has_value(self) -> bool:
        """False for an optional that is empty."""
        return self._content is not None

    def is_tensor(self) -> bool:
        """True for dense tensors."""
        return isinstance(self._content, np.ndarray | DeviceTensor)

    def is_sparse_tensor(self) -> bool:
        """False: sparse tensors don't flow between nodes."""
        return False

    def is_tensor_sequence(self) -> bool:
        """True for a sequence of tensors."""
        kind = self._kind.element if isinstance(self._kind, OptionalType) else self._kind
        if not isinstance(self._content, list) or not isinstance(kind, SequenceType):
            return False
        return isinstance(kind.element, TensorType)

    def data_ptr(self) -> int:
        """The address of a tensor's first element: a number that says nothing of who owns it.

        On a device it is what the vendor's own libraries take for an address.

        Raises:
            NotSupportedError: no tensor, or one in a memory without addresses.
        """
        tensor = self._tensor("data_ptr")
        if isinstance(tensor, np.ndarray):
            return int(tensor.ctypes.data)
        try:
            return int(tensor.data_ptr())
        except BufferError as error:
            raise NotSupportedError(
                f"a tensor in {self.memory} has no address: {error}",
                fix="Bind the OrtValue itself.",
            ) from error

    # ------------------------------------------------------------ reading and writing

    def numpy(self) -> HostArray:
        """The tensor as an array: on the host its own memory, from a device a copy.

        Raises:
            NotSupportedError: no tensor.
            ProviderError: the copy failed.
        """
        self._tensor("numpy")
        content = self._content
        return to_host(content) if isinstance(content, DeviceTensor) else np.asarray(content)

    def update_inplace(self, data: HostArray | OrtValue) -> None:
        """Overwrite the tensor, where it lies, with a tensor of equal shape and type.

        No run that reads or writes this value may be under way.

        Args:
            data: an array, or a value in any memory; between devices that can copy to each other
                it doesn't pass through the host.

        Raises:
            FeedError: another shape or type, or memory that is read-only.
            ProviderError: the copy failed; the content is undefined then.
        """
        target = self._tensor("update_inplace")
        kind = TensorType(self._dtype("update_inplace"), tuple(target.shape))
        if isinstance(data, OrtValue):
            source = data._tensor("update_inplace")
            given = TensorType(data._dtype("update_inplace"), tuple(source.shape))
        else:
            source, given = as_tensor("data", data)
        if given != kind:
            raise FeedError("data", expected=_describe(kind), got=_describe(given))
        if is_read_only(self._content):
            raise FeedError("the memory of the value is read-only", fix="Make one from a copy.")
        contents = (self._content, data._content if isinstance(data, OrtValue) else None)
        providers = [item.provider for item in contents if isinstance(item, DeviceTensor)]
        copy_between(source, target, providers)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        """For `numpy.asarray(value)`."""
        array = self.numpy()
        if copy:
            return np.array(array, dtype)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Share a tensor's memory with another library.

        Args:
            stream, max_version, copy: as DLPack's protocol for Python has them. The tensor is
                ready, whatever the stream.
            dl_device: where it is wanted: where it lies, or on the host, to which it is copied.

        Raises:
            DLPackError: no tensor, or a type or memory that can't be shared.
        """
        tensor = self._tensor("__dlpack__")
        version = {} if max_version is None else {"max_version": max_version}
        if isinstance(tensor, np.ndarray):
            given = {"dl_device": dl_device, "copy": copy}
            given = {name: item for name, item in given.items() if item is not None}
            return export(tensor, {**version, **given})
        own = tensor.__dlpack_device__()
        wanted = own if dl_device is None else dl_device
        if wanted == HOST_DEVICE and (copy or (copy is None and own != HOST_DEVICE)):
            return export(self.numpy(), version)
        if wanted != own or copy:
            raise DLPackError(
                f"a tensor on DLPack device {own} can't go to {wanted}{' as a copy' * bool(copy)}",
                fix="Take a copy on the host with numpy().",
            )
        try:
            return tensor.__dlpack__(stream=stream, **version)
        except BufferError as error:
            raise DLPackError(str(error), fix="Take a copy with numpy().") from error

    def __dlpack_device__(self) -> tuple[int, int]:
        """The numbers of the device's kind and of the device."""
        tensor = self._tensor("__dlpack_device__")
        return HOST_DEVICE if isinstance(tensor, np.ndarray) else tensor.__dlpack_device__()

    def __repr__(self) -> str:
        text = f"OrtValue {self.data_type()}"
        if self.is_tensor():
            text += f" {self.shape()}"
        return f"<{text} in {self.memory}>"

    # ------------------------------------------------------------ inside

    def _tensor(self, what: str) -> Any:
        """The array or the buffer."""
        content = self._content
        if isinstance(content, DeviceTensor):
            return content.buffer
        if not isinstance(content, np.ndarray):
            raise NotSupportedError(f"{what} is for tensors, and the value is {self.data_type()}")
        return content

    def _dtype(self, what: str) -> DataType:
        dtype = self._tensor(what).dtype
        return dtype if isinstance(dtype, DataType) else DataType.from_numpy(dtype)


def is_read_only(content: Value | DeviceTensor) -> bool:
    """True for a tensor whose memory must not be written."""
    if isinstance(content, DeviceTensor):
        return content.is_read_only
    return isinstance(content, np.ndarray) and not content.flags.writeable


def as_tensor(what: str, array: Any) -> tuple[HostArray, TensorType]:
    """Bring an array into the form that values have on the host; FeedError, about `what`."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        raise FeedError(what, expected="a numpy.ndarray", got=kind)
    dtype = DataType.from_numpy(array.dtype)
    array = np.asarray(array)
    if dtype is DataType.STRING:
        array = as_strings(what, array)
    elif array.dtype != dtype.numpy:
        array = array.astype(dtype.numpy)  # the other byte order
    return contiguous(array), TensorType(dtype, array.shape)


def _place(device_type: str, device_id: int | str, pinned: bool) -> Place:
    place = find_place(device_type, device_id)
    return pinned_for(place) if pinned else place


def _new(place: Place, shape: tuple[int, ...], dtype: DataType) -> OrtValue:
    content: HostArray | DeviceTensor
    if place.memory == HOST_MEMORY:
        content = new_array(shape, dtype, place.provider)
    else:
        content = new_tensor(place, shape, dtype)
    return OrtValue(content, TensorType(dtype, shape))


def _describe(kind: TensorType) -> str:
    return f"{kind} of shape {list(kind.shape or ())}"
