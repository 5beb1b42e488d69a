"""Copies between the simulator's memories and the host, in the order of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.contracts import Buffer, HostArray, Stream
from ep_core.errors import ContractError
from ep_core.types import HOST_MEMORY, DataType, MemoryInfo
from ep_sdk.simulator.device import SimulatedDevice
from ep_sdk.simulator.memory import SimulatorBuffer, device_array
from ep_sdk.simulator.pinned import is_pinned
from ep_sdk.simulator.stream import SimulatorStream

__all__ = ["SimulatorTransfer"]


class SimulatorTransfer:
    """Meets `ep_core.contracts.DataTransfer`; also copies straight to another simulated device."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        """True if one side is this device and the other plain host memory or a simulated device."""
        own = self._device.memory
        if own not in (source, target):
            return False
        other = target if source == own else source
        simulated = other.kind is own.kind and other.device.startswith("simulator:")
        return simulated or other == HOST_MEMORY

    def copy(
        self, source: Buffer | HostArray, target: Buffer | HostArray, stream: Stream | None
    ) -> None:
        """Copy all bytes, in the order of `stream`; without one, before returning.

        Raises:
            ContractError: shapes or types differ, an array isn't contiguous or writeable, a buffer
                has been released or is none of the simulator's, the stream is none of its.
            DeviceLostError: the device is lost.
        """
        self._device.check()
        read = _opener(source)
        write = _opener(target)
        _check_equal(source, target)
        if isinstance(target, np.ndarray) and not target.flags.writeable:
            raise ContractError("the target of a copy is read-only")
        number = self._device.count_copy()

        def work() -> None:
            self._device.copying(number)
            write()[...] = read()

        if stream is None:
            work()
        elif isinstance(stream, SimulatorStream):
            if _is_pageable(source) or _is_pageable(target):
                self._device.staging()
            stream.submit(work)
        else:
            raise ContractError(
                "a copy was given a stream of another provider", got=type(stream).__name__
            )


def _is_pageable(side: Buffer | HostArray) -> bool:
    return isinstance(side, np.ndarray) and not is_pinned(side)


def _opener(side: Buffer | HostArray) -> Callable[[], np.ndarray[Any, Any]]:
    """Check one side now; the function returned gives its bytes when the copy happens."""
    if isinstance(side, np.ndarray):
        if not side.flags.c_contiguous:
            raise ContractError("a copy was given an array that isn't C-contiguous")
        return lambda: side
    if isinstance(side, SimulatorBuffer):
        side.check()
        return lambda: device_array(side)
    raise ContractError(
        "the simulator can't copy this memory",
        expected="an array or a simulator's buffer",
        got=type(side).__name__,
    )


def _check_equal(source: Buffer | HostArray, target: Buffer | HostArray) -> None:
    source_type = (_dtype(source), tuple(source.shape))
    target_type = (_dtype(target), tuple(target.shape))
    if source_type != target_type:
        raise ContractError(
            "source and target of a copy differ", expected=source_type, got=target_type
        )


def _dtype(side: Buffer | HostArray) -> DataType:
    return DataType.from_numpy(side.dtype) if isinstance(side, np.ndarray) else side.dtype
