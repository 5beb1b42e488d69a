"""One CUDA device, opened once for the whole process: context, programs, what is used again.

All providers of a device share it, so that buffers which one made can be read by the others; see
`MemoryInfo`.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

import pycuda.driver as drv

from ep_core.errors import ProviderUnavailableError
from ep_core.types import MemoryInfo, MemoryKind
from ep_cuda.context import Context, is_forked
from ep_cuda.devices import DLPACK_CUDA, FoundDevice, compiler, find_devices
from ep_cuda.dialect import text_of
from ep_cuda.events import EventPool, WordPool
from ep_cuda.failures import translate
from ep_cuda.launching import CudaKernel
from ep_cuda.programs import Programs
from ep_sdk.device_kernels.tiles import TileChooser

__all__ = ["OpenDevice", "open_device"]

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: work of other libraries on the default stream holds nothing up here."""

_OPENED: dict[tuple[int, str], OpenDevice] = {}
_OPENING = threading.Lock()


class OpenDevice:
    """A device that is ready for work; meets `ep_sdk.device_kernels.contracts.KernelDevice`.

    Attributes:
        memory: the name of the device's memory.
        memory_bytes: what it has of that.
        dlpack_device: the same for DLPack.
        context: the primary one.
        marks: events that have a time.
        points: events that have none, which cost less.
        words: of page-locked memory.
        is_cpu: False.
        has_double: True, for all chips.
        vector_width: see `KernelDevice`.
        tiles: see `KernelDevice`.
    """

    is_cpu = False
    has_double = True
    vector_width = 4

    def __init__(self, found: FoundDevice) -> None:
        self.info = found.info
        self.memory = MemoryInfo(f"cuda:{found.info.id}", MemoryKind.DEVICE)
        self.memory_bytes = found.info.memory_bytes or 0
        self.dlpack_device = (DLPACK_CUDA, found.number)
        try:
            self.context = Context(found.number)
        except drv.Error as error:
            raise translate(error, f"opening {found.info.name}") from error
        self.marks = EventPool(drv.event_flags.DEFAULT)
        self.points = EventPool(drv.event_flags.DISABLE_TIMING)
        self.words = WordPool(self.context)
        self.tiles = TileChooser(found.build_key, "cuda")
        self._programs = Programs(self.context, compiler(), found.target, found.build_key)
        self._queues: deque[drv.Stream] = deque()
        self._kernels: dict[Any, CudaKernel] = {}
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
    ) -> CudaKernel:
        """Return a kernel that is ready to launch, built at most once; see `KernelDevice.kernel`.

        Raises:
            CompileError: the compiler refuses the source.
        """
        macros = dict(defines or {})
        key = (file, name, tuple(macros.items()), head, body)
        with self._lock:
            found = self._kernels.get(key)
        if found is None:
            module = self._programs.get(text_of(file, macros, head, body), file, keep)
            with self.context.doing(f"making kernel {name}"):
                made = CudaKernel(name, module.get_function(name), self.context)
            with self._lock:
                found = self._kernels.setdefault(key, made)
        return found

    def take_queue(self) -> drv.Stream:
        """A stream of pycuda on which nothing is going on.

        Raises:
            AllocationError, DeviceLostError, RunError: see `failures`.
        """
        try:
            return self._queues.pop()
        except IndexError:
            with self.context.doing("making a stream"):
                return drv.Stream(_NON_BLOCKING)

    def give_queue(self, queue: drv.Stream) -> None:
        """Let others have a stream whose work is over."""
        self._queues.append(queue)

    def let_go(self) -> None:
        """Destroy what is kept for use, on a thread that has the context; at the process's end."""
        if is_forked():
            return
        self._kernels.clear()
        self._programs.let_go()
        with self.context.doing("letting go of the device"):
            self._queues.clear()
            self.marks.let_go()
            self.points.let_go()
            self.words.let_go()


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
                    atexit.register(found.let_go)
                    break
    if found is None:
        raise ProviderUnavailableError(f"CUDA device {device_id!r} isn't there any more")
    return found
