"""Providers with leaks so slow that only soak finds them.

They join the tables of hosts and devices.
"""

from __future__ import annotations

import itertools
import threading
from typing import ClassVar

from zoo_base import CorrectProvider
from zoo_device import OtherMemory
from zoo_device import animal as device_animal
from zoo_host import Wrapped
from zoo_host import animal as host_animal
from zoo_placement import WrappingDevice

from ep_core.types import DataType
from ep_sdk.simulator.memory import MemoryPool


@host_animal("leaks a thread now and then", "soak/sessions", "sessions leave .* threads")
class LeaksSlowly(CorrectProvider):
    stop = threading.Event()
    count = itertools.count(1)

    def __init__(self, *args):
        super().__init__(*args)
        if next(self.count) % 10 == 0:
            threading.Thread(target=self.stop.wait, daemon=True).start()


@device_animal("leaks a buffer now and then", "soak/runs", "bytes of device memory")
class LeaksBuffersSlowly(WrappingDevice):
    count: ClassVar = itertools.count(1)

    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            if next(LeaksBuffersSlowly.count) % 100 == 0:
                self.provider.allocator.allocate((2,), DataType.FLOAT, stream)


@device_animal("sometimes forgets a release", "soak/faults", "bytes of device memory")
class ForgetsSlowly(OtherMemory):
    class pool_class(MemoryPool):  # noqa: N801
        count = itertools.count(1)

        def release(self, buffer, stream=None):
            if stream is not None or next(self.count) % 20:
                super().release(buffer, stream)


def clean_up():
    """Let go of what leaky animals have kept."""
    LeaksSlowly.stop.set()
