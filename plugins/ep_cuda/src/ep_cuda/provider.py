"""The CUDA provider: the kernels of `ep_sdk.device_kernels` on an open device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ep_core.contracts import HostArray, ProviderFeatures, ProviderInfo
from ep_core.types import DataType, DeviceInfo, MemoryInfo
from ep_cuda.device import OpenDevice, open_device
from ep_cuda.memory import CudaBuffer, MemoryPool
from ep_cuda.stream import CudaStream
from ep_cuda.transfer import CudaTransfer
from ep_sdk.device_kernels.provider import DeviceProvider

__all__ = ["CudaProvider"]


class CudaProvider(DeviceProvider):
    """One open CUDA device."""

    features = ProviderFeatures(
        asynchronous=True,
        profiles_nodes=True,
        tells_memory=True,
        overlaps_copies=True,
        pinned_host=True,
        imports_dlpack=True,
    )

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        super().__init__(info, device, options)
        self._opened = open_device(device.id)
        self._pool = MemoryPool(
            self.opened,
            options["gpu_mem_limit"],
            doubles=options["arena_extend_strategy"] == "kNextPowerOfTwo",
        )
        self._transfer = CudaTransfer(self.memory, self.create_stream)

    @property
    def opened(self) -> OpenDevice:
        """The device, for kernels."""
        return self._opened

    @property
    def memory(self) -> MemoryInfo:
        """The device's own memory."""
        return self.opened.memory

    @property
    def allocator(self) -> MemoryPool:
        """The device's allocator."""
        return self._pool

    @property
    def data_transfer(self) -> CudaTransfer:
        """Copies to and from the host."""
        return self._transfer

    def create_stream(self) -> CudaStream:
        """A new in-order stream.

        Raises:
            ProviderError: the provider is closed.
        """
        self.check_open()
        stream = CudaStream(self.opened, on_close=self.forget)
        self.track(stream)
        return stream

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """An array in page-locked host memory.

        Raises:
            ProviderError: the provider is closed.
            AllocationError: the driver has no more.
            NotSupportedError: strings.
        """
        self.check_open()
        return self._pool.pinned.allocate(shape, dtype)

    def import_dlpack(self, tensor: Any) -> CudaBuffer:
        """A buffer over a tensor that another library has on the device, without a copy.

        Raises:
            ProviderError: the provider is closed.
            BufferError: it lies elsewhere, or has a type or layout that kernels don't know.
        """
        self.check_open()
        return self._pool.import_dlpack(tensor)

    def close_device(self) -> None:
        """Give the memory back; the device stays open for the process."""
        self._pool.close()
