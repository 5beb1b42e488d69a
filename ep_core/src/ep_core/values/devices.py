"""From the name of a device to its memory: of a session at hand, or opened for values alone.

A device that a value is made on without a session is opened once per process, with its provider's
default options, and stays open until the process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.contracts import Buffer, ExecutionProvider, HostArray
from ep_core.discovery.registry import registry
from ep_core.errors import AllocationError, DeviceLostError, NotSupportedError, OptionError
from ep_core.memory import contiguous, direct_hop, pinned_array
from ep_core.running.plan import reraise
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo
from ep_core.values.dlpack import DLPackError, Watched
from ep_core.values.holds import DeviceTensor, bury, retire

__all__ = [
    "HOST",
    "Place",
    "adopt",
    "copy_between",
    "find_importer",
    "find_place",
    "new_array",
    "new_tensor",
    "pinned_for",
    "to_host",
]

_ORT_SUFFIX = "executionprovider"
_lock = threading.RLock()
_opened: dict[tuple[str, str], ExecutionProvider] = {}  # by provider and device id


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value can lie.

    Attributes:
        provider: whose allocator and data transfer serve the memory; None for the host. With the
            host's memory it is whose page-locked memory that shall be.
    """

    memory: MemoryInfo
    provider: ExecutionProvider | None = None


HOST = Place(HOST_MEMORY)


def find_place(
    device_type: str, device_id: int | str, nearby: Sequence[ExecutionProvider] = ()
) -> Place:
    """Return the memory of a device.

    Args:
        device_type: `"cpu"` for the host, else a provider's name in either spelling.
        device_id: as `ep providers` lists it; 0 is the first device where none is called so.
        nearby: open providers to be used if they have that device.

    Raises:
        OptionError: no such device.
        ProviderNotFoundError, ProviderUnavailableError: no such provider, or it can't be used.
    """
    if not isinstance(device_type, str):
        raise OptionError("device_type", expected="a str, such as 'cpu'", got=repr(device_type))
    if isinstance(device_id, bool) or not isinstance(device_id, int | str):
        raise OptionError("device_id", expected="an int or a str", got=repr(device_id))
    short = device_type.lower().removesuffix(_ORT_SUFFIX)
    if short == HOST_MEMORY.device:
        return HOST
    registry().factory(device_type)  # raises where it can't be used
    status = registry().status(device_type)
    ids = [device.id for device in status.devices]
    wanted = str(device_id)
    if wanted not in ids:
        if wanted != "0":
            expected = f"one of {', '.join(map(repr, ids))}"
            raise OptionError(f"a device of {status.name!r}", expected=expected, got=repr(wanted))
        wanted = ids[0]
    for provider in nearby:
        if (provider.info.name, provider.device.id) == (status.name, wanted):
            return _place_of(provider)
    return _place_of(_open(status.name, wanted))


def new_tensor(place: Place, shape: tuple[int, ...], dtype: DataType) -> DeviceTensor:
    """Allocate a tensor in a device's memory; its contents are undefined.

    Raises:
        AllocationError, DeviceLostError, NotSupportedError: what the allocator says.
    """
    bury()
    provider = place.provider
    assert provider is not None
    assert provider.allocator is not None
    try:
        buffer = provider.allocator.allocate(shape, dtype)
    except Exception as error:  # noqa: BLE001 - raised again, as an error of the project
        if isinstance(error, DeviceLostError):
            _forget(provider)
        reraise(error, f"allocating {dtype.text}{list(shape)} on {place.memory}")
    return DeviceTensor(buffer, provider)


def find_importer(device: tuple[int, int]) -> ExecutionProvider:
    """Return an open provider that takes tensors of other libraries on one of DLPack's devices.

    Where several do, that is the first in the order of automatic providers.

    Raises:
        DLPackError: there is none.
    """
    for name in registry().available():
        for info in registry().status(name).devices:
            if info.dlpack_device == device:
                provider = _open(name, info.id)
                if provider.features.imports_dlpack:
                    return provider
    raise DLPackError(
        f"no provider here takes tensors on DLPack device {device}",
        expected="a provider with DeviceInfo.dlpack_device and the feature imports_dlpack",
        fix="Install the provider of that device, or copy the tensor to the host.",
    )


def adopt(tensor: Any, provider: ExecutionProvider) -> DeviceTensor:
    """Take another library's tensor, which lies in a provider's memory, without a copy.

    Raises:
        DLPackError: the provider says that it doesn't fit.
        ProviderError: what else it raises.
    """
    bury()
    watched = Watched(tensor)
    try:
        buffer = provider.import_dlpack(watched)
    except BufferError as error:
        raise DLPackError(
            f"a tensor of {type(tensor).__module__} can't be taken into {provider.memory}: {error}"
        ) from error
    except Exception as error:  # noqa: BLE001 - raised again, as an error of the project
        reraise(error, f"taking a tensor of {type(tensor).__module__} into {provider.memory}")
    return DeviceTensor(buffer, provider, is_read_only=watched.is_read_only)


def pinned_for(place: Place) -> Place:
    """Return the host memory that a device copies from and to without keeping the host waiting.

    Raises:
        NotSupportedError: the device has none.
    """
    if place.provider is None or not place.provider.features.pinned_host:
        raise NotSupportedError(
            f"there is no pinned host memory for {place.memory}",
            expected="a device whose provider declares pinned_host",
            fix="Leave `pinned` out; plain host memory does everywhere.",
        )
    return Place(HOST_MEMORY, place.provider)


def new_array(
    shape: tuple[int, ...], dtype: DataType, pinner: ExecutionProvider | None = None
) -> HostArray:
    """Allocate a host array; its contents are undefined, except that strings are empty.

    Args:
        pinner: whose page-locked memory it shall lie in.

    Raises:
        AllocationError, NotSupportedError: there isn't so much; strings can't be pinned.
    """
    if pinner is not None:
        try:
            return pinned_array(pinner, shape, dtype)
        except Exception as error:  # noqa: BLE001 - raised again, as an error of the project
            reraise(error, f"allocating pinned {dtype.text}{list(shape)}")
    try:
        if dtype is DataType.STRING:
            return np.full(shape, "", object)
        return np.empty(shape, dtype.numpy)
    except (MemoryError, ValueError) as error:
        raise AllocationError(f"no memory for {dtype.text}{list(shape)}: {error}") from error


def to_host(tensor: DeviceTensor) -> HostArray:
    """Copy a tensor to a new host array."""
    array = new_array(tensor.buffer.shape, tensor.buffer.dtype)
    copy_between(tensor.buffer, array, [tensor.provider])
    return array


def copy_between(
    source: Buffer | HostArray, target: Buffer | HostArray, providers: Sequence[ExecutionProvider]
) -> None:
    """Copy a tensor, and return when it is done; shapes and dtypes are equal.

    Args:
        providers: of the two sides. Where neither can copy directly it goes through the host.

    Raises:
        ProviderError: what a provider's data transfer raises.
    """
    if isinstance(source, np.ndarray) and isinstance(target, np.ndarray):
        np.copyto(target, source)
        return
    hop = direct_hop(_memory_of(source), _memory_of(target), providers)
    if hop is None:
        middle = new_array(tuple(source.shape), _dtype_of(source))
        copy_between(source, middle, providers)
        copy_between(middle, target, providers)
        return
    if isinstance(source, np.ndarray):
        source = contiguous(source)
    try:
        hop.transfer.copy(source, target, None)
    except Exception as error:  # noqa: BLE001 - raised again, as an error of the project
        reraise(error, f"the copy from {hop.source} to {hop.target}")


def _memory_of(side: Buffer | HostArray) -> MemoryInfo:
    return HOST_MEMORY if isinstance(side, np.ndarray) else side.memory


def _dtype_of(side: Buffer | HostArray) -> DataType:
    return DataType.from_numpy(side.dtype) if isinstance(side, np.ndarray) else side.dtype


def _place_of(provider: ExecutionProvider) -> Place:
    return HOST if provider.memory == HOST_MEMORY else Place(provider.memory, provider)


def _open(name: str, device_id: str) -> ExecutionProvider:
    with _lock:
        found = _opened.get((name, device_id))
        if found is None:
            found = registry().create(name, {"device_id": device_id})
            _opened[name, device_id] = found
            atexit.unregister(_close_all)
            atexit.register(_close_all)
        return found


def _forget(provider: ExecutionProvider) -> None:
    """Open a lost device anew when it is wanted again."""
    with _lock:
        for key, opened in list(_opened.items()):
            if opened is provider:
                del _opened[key]
                retire(provider)


def _close_all() -> None:
    with _lock:
        for provider in list(_opened.values()):
            with contextlib.suppress(Exception):
                retire(provider)
        _opened.clear()
