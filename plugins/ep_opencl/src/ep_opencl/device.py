"""One OpenCL device, opened once for the whole process: context, programs, launching.

All providers of a device share its context, so that buffers which one made can be read by the
others; see `MemoryInfo`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyopencl as cl

from ep_core.contracts import Numerics
from ep_core.errors import ProviderUnavailableError
from ep_core.types import MemoryInfo, MemoryKind
from ep_opencl.devices import FoundDevice, find_devices
from ep_opencl.failures import explained, translate
from ep_opencl.programs import Programs
from ep_opencl.storage import HostSharing
from ep_sdk.device_kernels.tiles import TileChooser

__all__ = ["ClKernel", "OpenDevice", "open_device"]

_OPENED: dict[tuple[int, str], OpenDevice] = {}
_OPENING = threading.Lock()


class OpenDevice:
    """A device that is ready for work; meets `ep_sdk.device_kernels.contracts.KernelDevice`.

    Attributes:
        memory: the name of the device's memory.
        context: of this device alone.
        cl_device: the device itself.
        sharing: what device and host can share without copies.
        extensions: names of what it has beyond the standard.
        has_own_memory: not the host's, so that copies cross a bus.
        is_cpu: its work-items run on the host's processor, so that registers and caches decide
            over tiles, and local memory is memory like any other.
        tiles: chooses tiles of products.
        vector_width: 32-bit floats in the widest register that kernels should use.
    """

    def __init__(self, found: FoundDevice) -> None:
        self.info = found.info
        self.cl_device = found.device
        self.memory = MemoryInfo(f"opencl:{found.info.id}", MemoryKind.DEVICE)
        with explained(f"opening {found.info.name}"):
            self.context = cl.Context([found.device])
        self.sharing = HostSharing(self.context, found.device)
        self.extensions = frozenset(found.device.extensions.split())
        self.has_own_memory = not found.device.host_unified_memory
        self.is_cpu = found.info.kind == "cpu"
        width = found.device.native_vector_width_float
        self.vector_width = max(4, min(16, width)) if self.is_cpu else 4
        self.has_double = "cl_khr_fp64" in self.extensions
        self.numerics = Numerics(
            flushes_denormals=not found.device.single_fp_config & cl.device_fp_config.DENORM
        )
        self._programs = Programs(
            self.context, found.device, found.build_key, _build_options(found)
        )
        self.tiles = TileChooser(found.build_key, "opencl")
        self._kernels: dict[Any, ClKernel] = {}
        self._lock = threading.Lock()

    def kernel(
        self,
        file: str,
        name: str,
        defines: Mapping[str, object] | None = None,
        *,
        head: str = "",
        body: str = "",
        keep: bool = True,
    ) -> ClKernel:
        """Return a kernel that is ready to launch; built at most once.

        Args:
            file: source in the folder `cl`.
            name: of the kernel in it.
            defines: macros set before the file.
            head: text before the file, after `common.cl`.
            body: text after the file.
            keep: use the user's cache of binaries.

        Raises:
            CompileError: the driver's compiler refuses the source.
        """
        macros = dict(defines or {})
        key = (file, name, tuple(macros.items()), head, body)
        with self._lock:
            found = self._kernels.get(key)
        if found is None:
            program = self._programs.get(file, macros, body, keep, head)
            with explained(f"making kernel {name}"):
                made = ClKernel(name, cl.Kernel(program, name))
            with self._lock:
                found = self._kernels.setdefault(key, made)
        return found


class ClKernel:
    """A built kernel. Safe on many threads: arguments are set and handed in under a lock."""

    def __init__(self, name: str, kernel: cl.Kernel) -> None:
        self.name = name
        self._kernel = kernel
        self._lock = threading.Lock()

    def launch(
        self,
        stream: Any,
        size: tuple[int, ...],
        group: tuple[int, ...] | None,
        arguments: Sequence[Any],
    ) -> None:
        """Hand the kernel to a stream's queue and return; meets `contracts.DeviceKernel`.

        Args:
            stream: an `OpenCLStream`, or one that rehearses, on which nothing is done.
            size: work-items by dimension, the fastest first; nothing is done where one is 0.
            group: work-items of a group, None for the driver's choice.
            arguments: buffers of OpenCL and numpy scalars.

        Raises:
            AllocationError, DeviceLostError, RunError: see `failures`.
        """
        if stream.rehearses or 0 in size:
            return
        queue = stream.queue
        try:
            with self._lock:
                self._kernel.set_args(*arguments)
                cl.enqueue_nd_range_kernel(queue, self._kernel, size, group)
        except cl.Error as error:
            raise translate(error, f"starting kernel {self.name}") from error


def _build_options(found: FoundDevice) -> str:
    """Nothing that trades accuracy for speed; division rounds rightly where the device can."""
    options = ["-cl-std=CL3.0" if _is_three(found) else "-cl-std=CL1.2"]
    if found.device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return " ".join(options)


def _is_three(found: FoundDevice) -> bool:
    return int(found.info.properties["OpenCL"].split(".")[0]) >= 3


def open_device(device_id: str) -> OpenDevice:
    """Return the opened device of an id; the same object each time, in this process.

    Raises:
        ProviderUnavailableError: there is no such device.
    """
    key = (os.getpid(), device_id)
    with _OPENING:
        found = _OPENED.get(key)
        if found is None:
            for candidate in find_devices():
                if candidate.info.id == device_id:
                    found = _OPENED[key] = OpenDevice(candidate)
                    break
    if found is None:
        raise ProviderUnavailableError(f"OpenCL device {device_id!r} isn't there any more")
    return found
