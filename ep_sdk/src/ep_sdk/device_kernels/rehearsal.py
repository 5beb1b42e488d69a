"""Going through the work once without doing it, when a partition is compiled.

Kernels are called with buffers that have no memory, on a stream on which nothing runs. So their
programs are built, errors of building show before the first run, and the memory that they take
beside their outputs is counted. What depends on values that only a run knows is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from ep_core.contracts import Stream
from ep_core.errors import CompileError, EpError
from ep_core.graph import Initializer
from ep_core.types import DataType, TensorType, ValueType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceMemory
from ep_sdk.device_kernels.known_values import MOST_KNOWN
from ep_sdk.failures import node_error
from ep_sdk.lowering import NOWHERE, Lowered, LoweredStep

__all__ = ["Rehearsal", "rehearse"]


class Rehearsal:
    """What kernels ask of a `DeviceStream`, and nothing runs; gives out imagined memory.

    Attributes:
        rehearses: True, so that launches do nothing.
        most: bytes that were taken at one time.
    """

    rehearses: ClassVar[bool] = True

    def __init__(self, pool: DeviceMemory) -> None:
        self.name = "a rehearsal"
        self.most = 0
        self._taken = 0
        self._pool = pool

    def fault_word(self) -> Any:
        """None: nothing is written."""
        return None

    def copy_bytes(
        self, source: Any, source_start: int, target: Any, target_start: int, nbytes: int
    ) -> None:
        """Nothing."""

    def allocate(
        self, shape: tuple[int, ...], dtype: DataType, stream: Stream | None = None
    ) -> DeviceBuffer:
        """A buffer without memory."""
        buffer = self._pool.imagine(shape, dtype)
        self._taken += buffer.nbytes
        self.most = max(self.most, self._taken)
        return buffer

    def release(self, buffer: DeviceBuffer, stream: Stream | None = None) -> None:
        """Count it off."""
        self._taken -= buffer.nbytes


def rehearse(lowered: Lowered, pool: DeviceMemory) -> Lowered:
    """Go through all steps.

    Returns:
        The same steps, with what their kernels take for themselves where that is known.

    Raises:
        CompileError: the kernel of a step can't be built.
    """
    values: dict[int, DeviceBuffer | None] = {0: None}
    for slot, constant in lowered.constants.items():
        values[slot] = _known(pool, constant)
    for slot in lowered.inputs:
        _imagine(values, (slot,), lowered.types, pool)
    steps = [_rehearse_step(step, values, lowered.types, pool) for step in lowered.steps]
    return lowered.with_steps(steps)


def _rehearse_step(
    step: LoweredStep,
    values: dict[int, DeviceBuffer | None],
    types: tuple[ValueType | None, ...],
    pool: DeviceMemory,
) -> LoweredStep:
    outputs = [slot for slot in step.outputs if slot != NOWHERE]
    workspace = None
    if all(slot in values for slot in step.inputs):
        stream = Rehearsal(pool)
        inputs = [values[slot] for slot in step.inputs]
        try:
            made = step.kernel(stream, *inputs)
        except CompileError as error:
            raise node_error(error, step.node, inputs) from error
        except EpError:
            # It depends on values, or it fails; a run will tell.
            made = ()
        else:
            made = made if isinstance(made, tuple) else (made,)
            new = [] if step.aliases else [item for item in made if item is not None]
            workspace = max(0, stream.most - sum(item.nbytes for item in new))
        values.update(
            (slot, item)
            for slot, item in zip(step.outputs, made, strict=False)
            if slot != NOWHERE and item is not None
        )
    _imagine(values, outputs, types, pool)
    return replace(step, workspace=workspace)


def _imagine(
    values: dict[int, DeviceBuffer | None],
    slots: Iterable[int],
    types: tuple[ValueType | None, ...],
    pool: DeviceMemory,
) -> None:
    """Buffers for slots that have none, where their types say enough."""
    for slot in slots:
        kind = types[slot]
        shape = kind.static_shape if isinstance(kind, TensorType) else None
        if slot in values or shape is None or not isinstance(kind, TensorType):
            continue
        if kind.dtype is not DataType.STRING:
            values[slot] = pool.imagine(shape, kind.dtype)


def _known(pool: DeviceMemory, constant: Initializer) -> DeviceBuffer | None:
    if constant.dtype is DataType.STRING:
        return None
    buffer = pool.imagine(tuple(constant.shape), constant.dtype)
    array = constant.numpy()
    if array.size <= MOST_KNOWN:
        buffer.remember_values(array)
    return buffer
