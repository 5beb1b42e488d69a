"""What every kernel file needs: the table, memory for outputs and scratch, values on the host.

Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import (
    DeviceBuffer,
    DeviceKernel,
    DeviceStream,
    KernelDevice,
    KernelHost,
)
from ep_sdk.device_kernels.known_values import MOST_KNOWN
from ep_sdk.device_kernels.rehearsal import Rehearsal
from ep_sdk.device_kernels.tiles import Tile
from ep_sdk.kernels import KernelNode, KernelTable
from ep_sdk.shapes import Shape

__all__ = [
    "TABLE",
    "Bench",
    "signed",
    "text_attribute",
]

TABLE = KernelTable({"": 28})
"""Looked at up to version 28 of the default domain."""


class Bench:
    """The tools of one node: its device, memory for what it writes, and host copies of inputs.

    Args:
        node: of a provider that meets `KernelHost`.
    """

    def __init__(self, node: KernelNode) -> None:
        self.node = node
        self.host: KernelHost = node.provider
        self.device: KernelDevice = self.host.opened
        self._allocator = self.host.allocator
        self._transfer = self.host.data_transfer
        self._keep = bool(node.options.get("program_cache", True))

    @property
    def measure_tile(self) -> Callable[[Tile], float] | None:
        """What times a tile of a product, None where nobody wants or needs it timed."""
        if not self.device.is_cpu or not self.node.options.get("tune", True):
            return None
        from ep_sdk.device_kernels.trial import time_product

        return partial(time_product, self)

    def kernel(
        self,
        file: str,
        name: str,
        defines: dict[str, object] | None = None,
        *,
        head: str = "",
        body: str = "",
    ) -> DeviceKernel:
        """A kernel of the folder `cl`; see `KernelDevice.kernel`."""
        return self.device.kernel(file, name, defines, head=head, body=body, keep=self._keep)

    def writing(
        self,
        stream: DeviceStream,
        shape: Shape,
        dtype: DataType,
        out: DeviceBuffer | None = None,
    ) -> Writing:
        """Memory for an output, as a context: it is given back if anything fails inside.

        Raises:
            RunError: `out` has another type.
        """
        if out is None:
            allocator = self._allocator_of(stream)
            return Writing(allocator, stream, allocator.allocate(shape, dtype, stream))
        if out.shape != shape or out.dtype != dtype:
            raise RunError(
                "memory given for the output doesn't fit",
                expected=f"{dtype.text}{list(shape)}",
                got=f"{out.dtype.text}{list(out.shape)}",
            )
        out.forget_values()
        return Writing(None, stream, out)

    def scratch(self, stream: DeviceStream, shape: Shape, dtype: DataType) -> Scratch:
        """Memory for the work inside the context, given back at its end."""
        allocator = self._allocator_of(stream)
        return Scratch(allocator, stream, allocator.allocate(shape, dtype, stream))

    def release(self, stream: DeviceStream, buffer: DeviceBuffer) -> None:
        """Give memory back after the work submitted so far."""
        self._allocator_of(stream).release(buffer, stream)

    def values(self, stream: DeviceStream, buffer: DeviceBuffer) -> np.ndarray[Any, Any]:
        """The values of a small tensor on the host; waits for the device if it must.

        Raises:
            RunError: a rehearsal, in which nobody knows them.
        """
        known = buffer.values
        if known is None:
            if isinstance(stream, Rehearsal):
                raise RunError("values aren't known before a run")
            known = np.empty(buffer.shape, buffer.dtype.numpy)
            self._transfer.copy(buffer, known, stream)
            stream.synchronize()
            buffer.remember_values(known)
        return known.reshape(buffer.shape)

    def ints(self, stream: DeviceStream, buffer: DeviceBuffer | None) -> list[int] | None:
        """The values of a small tensor as integers, None where it is left out; see `values`."""
        if buffer is None:
            return None
        return [int(item) for item in self.values(stream, buffer).reshape(-1)]

    def upload(
        self, stream: DeviceStream, values: np.ndarray[Any, Any], out: DeviceBuffer | None = None
    ) -> DeviceBuffer:
        """A tensor on the device with the values of a host array."""
        dtype = DataType.from_numpy(values.dtype)
        with self.writing(stream, values.shape, dtype, out) as target:
            # A copy of our own: the caller may go on with the array at once.
            own = np.array(values, order="C")
            if not isinstance(stream, Rehearsal):
                self._transfer.copy(own, target, stream)
            elif own.size <= MOST_KNOWN:
                target.remember_values(own)
        return target

    def _allocator_of(self, stream: DeviceStream) -> Any:
        return stream if isinstance(stream, Rehearsal) else self._allocator

    def constant(self, values: np.ndarray[Any, Any]) -> DeviceBuffer:
        """A tensor on the device that lives as long as the node's partition."""
        return self.host.keep_constant(values)


class Writing:
    """See `Bench.writing`."""

    __slots__ = ("_allocator", "_stream", "_target")

    def __init__(self, allocator: Any, stream: DeviceStream, target: DeviceBuffer) -> None:
        self._allocator = allocator
        self._stream = stream
        self._target = target

    def __enter__(self) -> DeviceBuffer:
        return self._target

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._allocator is not None:
            self._allocator.release(self._target, self._stream)


class Scratch(Writing):
    """See `Bench.scratch`."""

    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._allocator.release(self._target, self._stream)


def signed(*values: int) -> tuple[np.int64, ...]:
    """Kernel arguments of type long."""
    return tuple(np.int64(value) for value in values)


def text_attribute(node: KernelNode, name: str, default: str) -> str:
    """A string attribute as `str`."""
    value = node.attr(name, default)
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
