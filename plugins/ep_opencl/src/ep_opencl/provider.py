"""The OpenCL provider: the kernels of `ep_sdk.device_kernels` on an open device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ep_core.contracts import HostArray, ProviderFeatures, ProviderInfo
from ep_core.types import DataType, DeviceInfo, MemoryInfo
from ep_opencl.costs import processor_seconds
from ep_opencl.device import OpenDevice, open_device
from ep_opencl.memory import MemoryPool, OpenCLBuffer
from ep_opencl.stream import OpenCLStream
from ep_opencl.transfer import OpenCLTransfer
from ep_sdk.device_kernels.provider import DeviceProvider
from ep_sdk.kernels import KernelNode, KernelRow

__all__ = ["OpenCLProvider"]


class OpenCLProvider(DeviceProvider):
    """One open OpenCL device."""

    def __init__(self, info: ProviderInfo, device: DeviceInfo, options: Mapping[str, Any]) -> None:
        super().__init__(info, device, options)
        self._opened = open_device(device.id)
        self._features = ProviderFeatures(
            asynchronous=True,
            profiles_nodes=True,
            tells_memory=True,
            # Where device and host share memory, staging and a second queue only cost time.
            overlaps_copies=self.opened.has_own_memory,
            pinned_host=self.opened.has_own_memory,
            imports_dlpack=self.opened.sharing.takes_host_memory,
            numerics=self.opened.numerics,
        )
        self._pool = MemoryPool(self.opened, options["capacity"])
        self._transfer = OpenCLTransfer(self.memory, self.create_stream)

    @property
    def opened(self) -> OpenDevice:
        """The device, for kernels."""
        return self._opened

    @property
    def features(self) -> ProviderFeatures:  # type: ignore[override]
        """What the device can do, as it is."""
        return self._features

    @property
    def memory(self) -> MemoryInfo:
        """The device's own memory."""
        return self.opened.memory

    @property
    def allocator(self) -> MemoryPool:
        """The device's allocator."""
        return self._pool

    @property
    def data_transfer(self) -> OpenCLTransfer:
        """Copies to and from the host."""
        return self._transfer

    def create_stream(self) -> OpenCLStream:
        """A new in-order queue.

        Raises:
            ProviderError: the provider is closed.
        """
        self.check_open()
        stream = OpenCLStream(self.opened, on_close=self.forget)
        self.track(stream)
        return stream

    def estimate(self, kernel_node: KernelNode, row: KernelRow) -> float | None:
        """What is known of kernels on processors; see `costs`."""
        if not self.opened.is_cpu or self.device.speed is None:
            return None
        return processor_seconds(kernel_node, self.device.speed)

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """An array in page-locked host memory.

        Raises:
            ProviderError: the provider is closed.
            AllocationError: the driver has no more.
            NotSupportedError: strings.
        """
        self.check_open()
        return self._pool.pinned.allocate(shape, dtype)

    def import_dlpack(self, tensor: Any) -> OpenCLBuffer:
        """A buffer over a tensor that another library has on the host, without a copy.

        Raises:
            ProviderError: the provider is closed.
            BufferError: it lies elsewhere, or has a type or layout that kernels don't know.
        """
        self.check_open()
        return self._pool.import_dlpack(tensor)

    def close_device(self) -> None:
        """Give the memory back; the device stays open for the process."""
        self._pool.close()
