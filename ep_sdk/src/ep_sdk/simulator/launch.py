"""From a numpy function to a kernel of the simulator: allocate now, compute later on the worker.

What every kernel needs and none should repeat. The kernel table is here too, because the files of
kernels fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ep_core.errors import ContractError, RunError
from ep_core.types import DataType
from ep_sdk.failures import node_error
from ep_sdk.kernels import Kernel, KernelNode, KernelTable
from ep_sdk.shapes import Shape
from ep_sdk.simulator.memory import SimulatorBuffer, device_array
from ep_sdk.simulator.stream import SimulatorStream

__all__ = [
    "ANY",
    "FLOATS",
    "NUMBERS",
    "TABLE",
    "Array",
    "constant_ints",
    "launched",
    "needs_constants",
    "viewed",
    "widened",
]

TABLE = KernelTable({"": 28})
"""Looked at up to version 28 of the default domain."""

FLOATS = frozenset({DataType.FLOAT16, DataType.FLOAT, DataType.DOUBLE})
NUMBERS = FLOATS | {DataType.INT32, DataType.INT64}
ANY = NUMBERS | {DataType.BOOL}

Array = np.ndarray[Any, Any]


def launched(
    node: KernelNode,
    compute: Callable[..., Any],
    shape_of: Callable[..., Shape],
    dtype: DataType | None = None,
) -> Kernel:
    """Return a kernel that computes on the stream's worker and returns at once.

    Args:
        node: the node, with its provider.
        compute: takes an array per input, None for one that is left out, and returns the output.
        shape_of: takes a shape per input, likewise, and returns the output's shape.
        dtype: element type of the output; None for that of the first input.
    """
    provider = node.provider

    def kernel(
        stream: SimulatorStream,
        *inputs: SimulatorBuffer | None,
        out: SimulatorBuffer | None = None,
    ) -> SimulatorBuffer:
        _check_buffers(node, inputs)
        shape = shape_of(*(None if item is None else item.shape for item in inputs))
        first = inputs[0]
        kind = dtype if dtype is not None or first is None else first.dtype
        assert kind is not None
        if out is not None and (out.shape, out.dtype) != (shape, kind):
            raise RunError(
                "memory given for the output doesn't fit",
                expected=f"{kind.text}{list(shape)}",
                got=f"{out.dtype.text}{list(out.shape)}",
            )
        number = provider.simulated.count_kernel()
        target = provider.allocator.allocate(shape, kind, stream) if out is None else out

        def work() -> None:
            try:
                provider.simulated.computing(number)
                arrays = [None if item is None else _read_only(item) for item in inputs]
                with np.errstate(all="ignore"):
                    result = np.asarray(compute(*arrays))
                _write(result, target)
            except Exception as error:
                failure = node_error(error, node.node, inputs)
                if failure is error:
                    raise
                raise failure from error

        try:
            stream.submit(work)
        except BaseException:
            if out is None:
                provider.allocator.release(target, stream)
            raise
        return target

    return kernel


def viewed(node: KernelNode, shape_of: Callable[[Shape], Shape]) -> Kernel:
    """Return a kernel that gives its first input another shape, without touching a byte."""

    def kernel(
        stream: SimulatorStream, data: SimulatorBuffer, *others: SimulatorBuffer | None
    ) -> SimulatorBuffer:
        _check_buffers(node, (data, *others))
        node.provider.simulated.check()
        return data.reshaped(shape_of(data.shape))

    return kernel


def widened(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Compute in float32 where the inputs are float16, and round once at the end."""

    def wide(*arrays: Array | None) -> Any:
        if arrays[0] is None or arrays[0].dtype != np.float16:
            return compute(*arrays)
        up = [None if item is None else item.astype(np.float32) for item in arrays]
        return np.asarray(compute(*up)).astype(np.float16)

    return wide


def needs_constants(**positions: int) -> Callable[[KernelNode], str | None]:
    """A predicate: inputs that are present must be constants, since the host has to know them.

    Args:
        positions: position of each input by its name in the schema.
    """

    def predicate(node: KernelNode) -> str | None:
        for name, position in positions.items():
            if node.has_input(position) and node.constants[position] is None:
                return f"needs a constant {name!r}"
        return None

    return predicate


def constant_ints(node: KernelNode, position: int) -> list[int] | None:
    """The integers of a constant input; None where the input is left out."""
    if not node.has_input(position):
        return None
    value = node.constants[position]
    return None if value is None else [int(item) for item in value.reshape(-1)]


def _check_buffers(node: KernelNode, buffers: Iterable[SimulatorBuffer | None]) -> None:
    memory = node.provider.memory
    for item in buffers:
        if item is None:
            continue
        if not isinstance(item, SimulatorBuffer) or item.memory != memory:
            raise ContractError(
                "a kernel was given an input in foreign memory",
                expected=f"a buffer in {memory}",
                got=repr(item),
            )
        item.check()


def _read_only(buffer: SimulatorBuffer) -> Array:
    array = device_array(buffer)
    array.flags.writeable = False
    return array


def _write(result: Array, target: SimulatorBuffer) -> None:
    memory = device_array(target)
    if result.shape != memory.shape or result.dtype != memory.dtype:
        raise ContractError(
            "a kernel of the simulator computed another type than it announced",
            expected=f"{memory.dtype}{list(memory.shape)}",
            got=f"{result.dtype}{list(result.shape)}",
        )
    memory[...] = result
