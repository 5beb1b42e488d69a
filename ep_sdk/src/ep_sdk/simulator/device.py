"""The state of one simulated device: its latencies, its planned faults, and whether it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from ep_core.errors import AllocationError, DeviceLostError, RunError
from ep_core.types import MemoryInfo, MemoryKind
from ep_sdk.simulator.pinned import PinnedMemory

__all__ = ["SimulatedDevice"]


class SimulatedDevice:
    """Counts what happens and lets it fail where the options say so. Safe on many threads.

    Attributes:
        memory: the name of the device's memory.
        pinned: host memory that it copies from and to without keeping the host waiting.
    """

    def __init__(self, device_id: str, options: Mapping[str, Any]) -> None:
        self.memory = MemoryInfo(f"simulator:{device_id}", MemoryKind.DEVICE)
        self.pinned = PinnedMemory(self.memory.device, options["pinned_capacity"])
        self._options = options
        self._lock = threading.Lock()
        self._counts = {"allocation": 0, "copy": 0, "kernel": 0}
        self._lost = False

    def check(self) -> None:
        """Raise DeviceLostError if the device is lost."""
        if self._lost:
            raise DeviceLostError(f"device {self.memory.device} is lost", fix="Open a new session.")

    def count_allocation(self) -> None:
        """Note one more allocation; raises AllocationError if this is the one to fail."""
        if self._count("allocation") == self._options["fail_allocation_at"]:
            raise AllocationError(f"allocation on {self.memory.device} failed as told")

    def count_copy(self) -> int:
        """Note one more copy and return its number, for `copying`."""
        return self._count("copy")

    def count_kernel(self) -> int:
        """Note one more launch of a kernel and return its number, for `computing`."""
        return self._count("kernel")

    def compiling(self, nodes: int) -> None:
        """What compiling does: take its time for every node."""
        self._pass_time(self._options["compile_latency_us"] * nodes)

    def staging(self) -> None:
        """What the host does for a copy on a stream whose host memory isn't pinned: wait."""
        self._pass_time(self._options["pageable_latency_us"])

    def copying(self, number: int) -> None:
        """What a copy does before it moves bytes: take its time, and fail if it is told to."""
        self._pass_time(self._options["copy_latency_us"])
        self.check()
        if number == self._options["fail_copy_at"]:
            raise RunError(f"copy {number} on {self.memory.device} failed as told")

    def computing(self, number: int) -> None:
        """What a kernel does before it computes: take its time, and fail if it is told to."""
        self._pass_time(self._options["kernel_latency_us"])
        if number == self._options["lose_device_at"]:
            self._lost = True
        self.check()
        if number == self._options["fail_kernel_at"]:
            raise RunError(f"kernel {number} on {self.memory.device} failed as told")

    def _pass_time(self, microseconds: int) -> None:
        if microseconds:
            time.sleep(microseconds / 1e6)

    def _count(self, what: str) -> int:
        with self._lock:
            self._counts[what] += 1
            return self._counts[what]
