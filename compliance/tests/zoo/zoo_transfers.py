"""Simulated devices that stumble over copies, exports and closing.

They join the table of devices.
"""

from __future__ import annotations

import mmap

import numpy as np
from zoo_device import OtherMemory
from zoo_device import animal as device_animal
from zoo_placement import with_buffers

from ep_sdk.simulator.memory import SimulatorBuffer
from ep_sdk.simulator.provider import SimulatorProvider
from ep_sdk.simulator.transfer import SimulatorTransfer


@device_animal("needs aligned targets", "memory/odd-addresses", "is corrupted")
class AlignedTargets(OtherMemory):
    class transfer_class(SimulatorTransfer):  # noqa: N801
        def copy(self, source, target, stream):
            if isinstance(target, np.ndarray) and target.ctypes.data % 16:
                target = np.empty_like(target)
            super().copy(source, target, stream)


@device_animal("keeps pinned pages instead of copying", "memory/pinned", "with other bits")
class KeepsPages(OtherMemory):
    class transfer_class(SimulatorTransfer):  # noqa: N801
        def __init__(self, device):
            super().__init__(device)
            self.kept = {}

        def copy(self, source, target, stream):
            if isinstance(source, np.ndarray) and source.ctypes.data % mmap.PAGESIZE == 0:
                self.kept[id(target)] = source
            super().copy(self.kept.get(id(source), source), target, stream)


@device_animal("denies the way back", "memory/routes", "can_copy denies the way")
class OneWay(OtherMemory):
    class transfer_class(SimulatorTransfer):  # noqa: N801
        def can_copy(self, source, target):
            return target == self._device.memory


class _Rude(SimulatorBuffer):
    __slots__ = ()

    def __dlpack__(self, *, stream=None, max_version=None):
        raise RuntimeError("not implemented")


@device_animal("raises for DLPack", "memory/dlpack", "expected BufferError")
class RudeExport(OtherMemory):
    pool_class = with_buffers(_Rude)


@device_animal("compiles what it was told to refuse", "faults/compile", "raises nothing")
class NeverRefuses(SimulatorProvider):
    def __init__(self, *args):
        super().__init__(*args)
        self._refused = frozenset()


@device_animal("can't be closed while busy", "faults/close-while-busy", "raises RuntimeError")
class BusyClose(SimulatorProvider):
    def close(self):
        busy = not self.closed
        super().close()
        if busy:
            raise RuntimeError("work is queued")
