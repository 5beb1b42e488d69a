"""Simulated devices whose copies don't go with their work, and whose pinned memory is none.

They join the table of devices.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from zoo_device import OtherMemory
from zoo_device import animal as device_animal

from ep_core.contracts import AllocatorStats
from ep_sdk.simulator.memory import MemoryPool
from ep_sdk.simulator.provider import SimulatorProvider
from ep_sdk.simulator.transfer import SimulatorTransfer

_LOST = "lost or mixed up|after it was freed|beyond the ends"


@device_animal("copies on a stream of its choice", "order/copies-beside-work", _LOST)
class OwnCopyStream(SimulatorProvider):
    """The stream that work is on is right, by chance, where there is but one."""

    def __init__(self, *args):
        super().__init__(*args)
        self._transfer = _FirstStream(self.simulated)

    def create_stream(self):
        stream = super().create_stream()
        self._transfer.streams.append(stream)
        return stream


class _FirstStream(SimulatorTransfer):
    def __init__(self, device):
        super().__init__(device)
        self.streams = []

    def copy(self, source, target, stream):
        self.streams = [each for each in self.streams if not each._closed]
        super().copy(source, target, None if stream is None else self.streams[0])


@device_animal("hands memory to other streams at once", "order/copies-beside-work", _LOST)
class SharesAtOnce(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        """All streams are one to its arena, so that what one still uses goes to another."""

        def __init__(self, *args):
            super().__init__(*args)
            take, give, settle = self._arena.take, self._arena.give, self._arena.settle
            self._arena.take = lambda nbytes, stream=None: take(nbytes, stream and "any")
            self._arena.give = lambda chunk, stream=None: give(chunk, stream and "any")
            self._arena.settle = lambda chunk, turn, stream: settle(chunk, turn, stream and "any")


@device_animal("frees pinned memory when it closes", "memory/pinned-host", "loses its contents")
class FreesPinned(SimulatorProvider):
    def __init__(self, *args):
        super().__init__(*args)
        self._given = []

    def allocate_pinned(self, shape, dtype):
        array = super().allocate_pinned(shape, dtype)
        if shape == (1000,):
            self._given.append(array)
        return array

    def close(self):
        super().close()
        for array in self._given:
            array[...] = 0


@device_animal("keeps pinned memory for good", "memory/pinned-host", "counts as held")
class KeepsPinned(SimulatorProvider):
    def __init__(self, *args):
        super().__init__(*args)
        self._given = []

    def allocate_pinned(self, shape, dtype):
        self._given.append(super().allocate_pinned(shape, dtype))
        return self._given[-1]


@device_animal("doesn't count pinned memory", "memory/pinned-host", "isn't counted")
class UncountedPinned(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        def stats(self) -> AllocatorStats:
            return replace(super().stats(), pinned_bytes=0)


@device_animal("gives pinned memory of one pool twice", "memory/pinned-host", "overlap each other")
class OverlappingPinned(SimulatorProvider):
    def allocate_pinned(self, shape, dtype):
        whole = super().allocate_pinned(shape, dtype)
        if not hasattr(self, "_pool_array"):
            self._pool_array = np.zeros(1 << 20, np.uint8)
        return self._pool_array[: whole.nbytes].view(dtype.numpy).reshape(shape)


@device_animal("raises MemoryError for pinned memory", "memory/pinned-host", "AllocationError")
class PlainPinnedError(SimulatorProvider):
    def allocate_pinned(self, shape, dtype):
        if shape and shape[0] > 1 << 40:
            raise MemoryError("too much")
        return super().allocate_pinned(shape, dtype)
