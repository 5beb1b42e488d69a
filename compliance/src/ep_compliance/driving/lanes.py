"""The way of values into a provider's memory and back, through its own allocator and transfer.

A lane does for one partition what the core's plan does for a session: copies, order, waiting,
ownership. It judges nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.driving.values import poison
from ep_core.contracts import (
    Allocator,
    AllocatorStats,
    Buffer,
    CompiledPartition,
    DataTransfer,
    ExecutionProvider,
    Stream,
    Value,
)
from ep_core.errors import ContractError
from ep_core.types import HOST_MEMORY, DataType

__all__ = ["DeviceLane", "HostLane", "Lane", "open_lane"]

Array = np.ndarray[Any, Any]


class Lane:
    """What both kinds have in common: a stream, if the provider works asynchronously.

    Attributes:
        on_host: values are arrays and need no copies.
    """

    on_host = True

    def __init__(self, provider: ExecutionProvider) -> None:
        self.provider = provider
        self.stream: Stream | None = None
        if provider.features.asynchronous:
            self.stream = provider.create_stream()
            if self.stream is None:
                raise ContractError("create_stream() gives none though `asynchronous` is declared")

    def feed(self, values: Sequence[Value]) -> list[Value]:
        """Bring host values into the provider's memory, and wait until they are there."""
        return list(values)

    def fetch(self, values: Sequence[Value]) -> list[Value]:
        """Bring values back to the host; those on the host already come as they are."""
        return list(values)

    def release(self, values: Sequence[Value]) -> None:
        """Give memory back; a None is skipped."""

    def submit(
        self, partition: CompiledPartition, inputs: Sequence[Value], outputs: list[Value | None]
    ) -> None:
        """Run a partition without waiting for its work."""
        partition.run(inputs, outputs, self.stream)

    def wait(self) -> None:
        """Wait for the work so far; raises the error that it met."""
        if self.stream is not None:
            self.stream.synchronize()

    def run(
        self, partition: CompiledPartition, inputs: Sequence[Value], outputs: list[Value | None]
    ) -> float:
        """Run a partition, wait until its outputs are there, and return the seconds it took."""
        began = time.perf_counter()
        self.submit(partition, inputs, outputs)
        self.wait()
        return time.perf_counter() - began

    def stats(self) -> AllocatorStats:
        """Counters of the provider's allocator, zeros where it has none."""
        allocator = self.provider.allocator
        return AllocatorStats() if allocator is None else allocator.stats()

    def close(self) -> None:
        """Close the stream."""
        if self.stream is not None:
            self.stream.close()


class HostLane(Lane):
    """For providers in host memory."""


class DeviceLane(Lane):
    """For providers with memory of their own."""

    on_host = False

    def __init__(self, provider: ExecutionProvider) -> None:
        if provider.allocator is None or provider.data_transfer is None:
            raise ContractError("memory of its own without an allocator or a data transfer")
        super().__init__(provider)
        self.allocator: Allocator = provider.allocator
        self.transfer: DataTransfer = provider.data_transfer

    def feed(self, values: Sequence[Value]) -> list[Value]:
        buffers: list[Value] = []
        sent: list[Array] = []
        try:
            for value in values:
                if not isinstance(value, np.ndarray):
                    what = type(value).__name__
                    raise ContractError(f"a claimed node reads a {what}, which no buffer can hold")
                array = np.array(value, order="C")
                sent.append(array)
                dtype = DataType.from_numpy(array.dtype)
                buffers.append(self.allocator.allocate(array.shape, dtype, self.stream))
                self.transfer.copy(array, buffers[-1], self.stream)
            self.wait()
        except BaseException:
            self.release(buffers)
            raise
        # Who says that a copy is done has no more business with its source.
        poison(sent)
        return buffers

    def fetch(self, values: Sequence[Value]) -> list[Value]:
        arrays: list[Value] = [self._fetch_one(value) for value in values]
        self.wait()
        return arrays

    def overwrite(self, target: Buffer, array: Array) -> None:
        """Replace the contents of a buffer, and wait until that is done."""
        self.transfer.copy(array, target, self.stream)
        self.wait()

    def release(self, values: Sequence[Value]) -> None:
        for value in values:
            if value is not None:
                self.allocator.release(value, self.stream)

    def _fetch_one(self, value: Value) -> Array:
        if not isinstance(value, Buffer):
            raise ContractError("an output on the device", expected="a Buffer", got=type(value))
        array = np.empty(value.shape, value.dtype.numpy)
        poison(array)
        self.transfer.copy(value, array, self.stream)
        return array


def open_lane(provider: ExecutionProvider) -> HostLane | DeviceLane:
    """Open the lane that suits a provider's memory; the caller closes it."""
    return HostLane(provider) if provider.memory == HOST_MEMORY else DeviceLane(provider)
