"""Control flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_core.types import DataType

__all__: list[str] = []


@correct("Loop", reason="scan outputs of a loop that makes no trip are lost")
def loop_without_trips(call: NodeCall) -> Sequence[Any] | None:
    """No trip: states are the initial ones, scan outputs have length 0."""
    trips, condition = call.input(0), call.input(1)
    runs = (trips is None or int(trips.reshape(-1)[0]) > 0) and (
        condition is None or bool(condition.reshape(-1)[0])
    )
    if runs:
        return None
    states = list(call.inputs[2:])
    bodies = call.attr("body").output[1 + len(states) :]
    return [*states, *(_no_rows(info) for info in bodies)]


def _no_rows(info: onnx.ValueInfoProto) -> Any:
    kind = info.type.tensor_type
    lengths = [dim.dim_value for dim in kind.shape.dim]
    return np.zeros([0, *lengths], DataType(kind.elem_type).numpy)
