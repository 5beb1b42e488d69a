"""Sequences and optionals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct

__all__: list[str] = []


@correct("Optional", reason="the value comes back inside a list")
def optional(call: NodeCall) -> Sequence[Any] | None:
    """The value itself."""
    return [call.inputs[0]] if call.input(0) is not None else None


@correct("OptionalHasElement", reason="an optional without a value can't be fed")
def has_element(call: NodeCall) -> Sequence[Any]:
    """Whether there is a value."""
    return [np.array(call.input(0) is not None)]


@correct("SequenceInsert", reason="inserting at the end inserts at the front")
def insert(call: NodeCall) -> Sequence[Any]:
    """Before the element at the position; at the end by default."""
    sequence, new, position = call.inputs[0], call.inputs[1], call.input(2)
    place = len(sequence) if position is None else int(np.reshape(position, ()))
    place = place + len(sequence) if place < 0 else place
    return [[*sequence[:place], new, *sequence[place:]]]
