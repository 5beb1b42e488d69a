"""The short way for a partition of one node with one output, where every microsecond shows.

Does what `HostProgram` does, without slots; anything unusual is left to `HostProgram`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any

import numpy as np

from ep_core.contracts import Stream, Value
from ep_core.memory import copy_value
from ep_sdk.host import as_value, shares_memory
from ep_sdk.host_program import HostProgram
from ep_sdk.kernels import Kernel
from ep_sdk.lowering import NOWHERE, Lowered, LoweredStep

__all__ = ["OneNodeProgram", "is_one_node"]


def is_one_node(lowered: Lowered) -> bool:
    """True if `OneNodeProgram` can run it: one node that reads inputs only, and one output."""
    if len(lowered.steps) != 1 or len(lowered.outputs) != 1 or lowered.constants:
        return False
    (step,) = lowered.steps
    asked = [slot for slot in step.outputs if slot != NOWHERE]
    return asked == list(step.outputs[:1]) and step.inputs == lowered.inputs


class OneNodeProgram(HostProgram):
    """A partition of one node whose inputs are the partition's, in the same order."""

    def __init__(self, lowered: Lowered, on_close: Callable[[Any], None]) -> None:
        super().__init__(lowered, on_close)
        (step,) = lowered.steps
        self._kernel = step.kernel
        self._aliases = step.aliases
        # What only passes its input on computes nothing that could raise a warning.
        self._computes = not step.aliases

    def change_kernels(self, change: Callable[[LoweredStep], Kernel]) -> None:
        """As in `HostProgram`."""
        super().change_kernels(change)
        self._kernel = self._lowered.steps[0].kernel

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None = None,
    ) -> None:
        """Compute the output; see `CompiledPartition.run`."""
        if outputs[0] is not None or self._closed:
            super().run(inputs, outputs, stream)
            return
        try:
            if self._computes:
                with np.errstate(all="ignore"):
                    result = self._kernel(*inputs)
            else:
                result = self._kernel(*inputs)
        except Exception as error:
            failure = self._failure(error, 0, inputs)
            if failure is error:
                raise
            raise failure from error
        if type(result) is not np.ndarray:
            result = as_value(result)
        if self._aliases and ((inputs and result is inputs[0]) or shares_memory(result, inputs)):
            result = copy_value(result)
        outputs[0] = result
