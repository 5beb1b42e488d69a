"""Runs a plan: one flat loop over its steps, and the context a run lives in.

Nothing is looked up here by name. A context (streams and reusable arrays) belongs to one run at a
time and is used again afterwards, so that many threads can run one session at once.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ep_core.contracts import ExecutionProvider, Stream, Value
from ep_core.errors import ContractError, RunCancelledError
from ep_core.memory import copy_value, pinned_array
from ep_core.running.plan import NO_STREAM, Plan, RunState, Scratch, Step, reraise
from ep_core.types import DataType

__all__ = ["ContextPool", "RunContext", "Terminable", "block_sizes", "execute"]


class Terminable(Protocol):
    """The part of `RunOptions` that the executor reads."""

    @property
    def terminate(self) -> bool: ...


def execute(plan: Plan, inputs: Sequence[Value], state: RunState) -> list[Value]:
    """Run a plan.

    Args:
        inputs: host values in the order of `plan.inputs`.
        state: the run's context.

    Returns:
        Host values in the order of the graph's outputs. Those marked in `plan.copied_outputs` may
        be an input, a constant or each other; see `isolate`.
    """
    values = list(plan.template)
    values[: len(inputs)] = inputs
    step: Step | None = None
    try:
        for step in plan.steps:
            state.check()
            step.execute(values, state)
    except BaseException as error:  # noqa: BLE001 - raised again below
        _abandon(plan, values, state)
        reraise(error, step.label if step is not None else "the run")
    return [values[slot] for slot in plan.outputs]


def isolate(plan: Plan, outputs: list[Value]) -> list[Value]:
    """Copy the outputs that may share memory with an input, a constant or another output."""
    return [
        copy_value(value) if shared else value
        for value, shared in zip(outputs, plan.copied_outputs, strict=True)
    ]


def _abandon(plan: Plan, values: list[Any], state: RunState) -> None:
    """After an error: let the queued work end, then give device memory back."""
    state.drain()
    for slot, (allocator, _) in plan.owners.items():
        if values[slot] is not None:
            with contextlib.suppress(Exception):
                allocator.release(values[slot])


class RunContext:
    """Streams and reusable host arrays of one run at a time."""

    __slots__ = ("_providers", "_streams", "options", "scratch")

    def __init__(self, providers: Sequence[ExecutionProvider], scratch: Sequence[Scratch]) -> None:
        self.options: Terminable | None = None
        self._providers = providers
        self._streams: dict[int, Stream] = {}
        try:
            for number, provider in enumerate(providers):
                if provider.features.asynchronous:
                    self._streams[number] = _new_stream(provider)
            self.scratch = _allocate(scratch, providers)
        except BaseException as error:  # noqa: BLE001 - raised again below
            self.close()
            reraise(error, "preparing a run")

    def stream(self, number: int) -> Stream | None:
        """A stream by its number, those for copies made when they are first wanted."""
        if number == NO_STREAM:
            return None
        found = self._streams.get(number)
        if found is None:
            found = _new_stream(self._providers[number % len(self._providers)])
            self._streams[number] = found
        return found

    def drain(self) -> None:
        """Let the queued work end; its errors don't matter any more."""
        for stream in self._streams.values():
            with contextlib.suppress(Exception):
                stream.synchronize()

    def check(self) -> None:
        """Raise RunCancelledError once `terminate` is set on the run's options."""
        if self.options is not None and self.options.terminate:
            raise RunCancelledError(
                "the run was cancelled", fix="RunOptions.terminate is set; clear it to run again."
            )

    def close(self) -> None:
        """Close the streams, when nobody cares for their errors any more."""
        for stream in self._streams.values():
            with contextlib.suppress(Exception):
                stream.close()


def _new_stream(provider: ExecutionProvider) -> Stream:
    stream = provider.create_stream()
    if stream is None:
        raise ContractError(
            f"provider {provider.info.name!r} declares asynchronous and gives no stream",
            fix="Its create_stream() must return one.",
        )
    return stream


def _allocate(
    scratch: Sequence[Scratch], providers: Sequence[ExecutionProvider]
) -> list[np.ndarray[Any, Any]]:
    """One block of memory per block number, and the arrays as views into them."""
    pinners = {item.block: item.pinner for item in scratch}
    blocks: dict[int, np.ndarray[Any, Any]] = {}
    for block, size in block_sizes(scratch).items():
        pinner = pinners[block]
        if pinner is None or size == 0:
            blocks[block] = np.empty(size, np.uint8)
        else:
            blocks[block] = pinned_array(providers[pinner], (size,), DataType.UINT8)
    return [
        blocks[item.block][: item.nbytes].view(item.dtype.numpy).reshape(item.shape)
        for item in scratch
    ]


def block_sizes(scratch: Sequence[Scratch]) -> dict[int, int]:
    """Bytes of each block of reusable arrays."""
    sizes: dict[int, int] = {}
    for item in scratch:
        sizes[item.block] = max(sizes.get(item.block, 0), item.nbytes)
    return sizes


class ContextPool:
    """Hands out contexts; keeps as many as ran at the same time.

    Attributes:
        scratch: the reusable arrays of each context.
    """

    def __init__(self, providers: Sequence[ExecutionProvider], scratch: Sequence[Scratch]) -> None:
        self._providers = providers
        self.scratch = scratch
        self._idle: deque[RunContext] = deque()

    def run(self, plan: Plan, inputs: Sequence[Value], options: Terminable | None) -> list[Value]:
        """Run the main plan in a context of its own; results share memory with nothing."""
        try:
            context = self._idle.pop()
        except IndexError:
            context = RunContext(self._providers, self.scratch)
        context.options = options
        try:
            outputs = isolate(plan, execute(plan, inputs, context))
        except BaseException:
            context.close()  # its streams may hold failed work
            raise
        context.options = None
        self._idle.append(context)
        return outputs

    def close(self) -> None:
        """Close the idle contexts; no run is under way any more."""
        while self._idle:
            self._idle.pop().close()
