"""The table of operators with native operations, and what the files that fill it share.

A function of the table gives the step for a node, or the reason why there is none. What a step
computes is what the kernel of the same node in `ep_cpu.kernels` computes, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.types import DataType, TensorType, ValueType
from ep_cpu.native.steps import NativeStep
from ep_sdk.kernels import KernelNode

__all__ = [
    "MOVED",
    "NOT_FLOAT",
    "OLD_VERSION",
    "TABLE",
    "Answer",
    "Translate",
    "all_floats",
    "integers",
    "is_handled",
    "native_step",
    "operator",
    "rank_of",
]

Answer = NativeStep | str
Translate = Callable[[KernelNode], Answer]

TABLE: dict[tuple[str, str], Translate] = {}

_MOST_RANK = 8
MOVED = frozenset(
    {
        DataType.FLOAT,
        DataType.UINT8,
        DataType.INT8,
        DataType.UINT16,
        DataType.INT16,
        DataType.INT32,
        DataType.INT64,
        DataType.BOOL,
        DataType.FLOAT16,
        DataType.DOUBLE,
        DataType.UINT32,
        DataType.UINT64,
    }
)
"""What can be moved about; only float32 is computed with."""


def is_handled(kind: ValueType) -> bool:
    """True for a tensor that can be moved about."""
    if not isinstance(kind, TensorType) or kind.dtype not in MOVED:
        return False
    return kind.shape is None or len(kind.shape) <= _MOST_RANK


def operator(*names: str, domain: str = "") -> Callable[[Translate], Translate]:
    """Add a function to the table, for operators of these names."""

    def add(function: Translate) -> Translate:
        for name in names:
            TABLE[(domain, name)] = function
        return function

    return add


def native_step(
    node: KernelNode, operation: str, /, *, inputs: tuple[str, ...] | None = None, **attributes: Any
) -> NativeStep:
    """A step with the inputs and outputs of the node."""
    own = node.node
    given_inputs = own.inputs if inputs is None else inputs
    return NativeStep(operation, tuple(given_inputs), own.outputs, attributes, (own,))


def all_floats(node: KernelNode) -> bool:
    """True if all inputs that are there are float32."""
    kinds = [node.input_dtype(i) for i in range(len(node.node.inputs)) if node.has_input(i)]
    return all(kind is DataType.FLOAT for kind in kinds)


NOT_FLOAT = "only float32 is computed"
OLD_VERSION = "an old version"


def rank_of(node: KernelNode, index: int) -> int | None:
    """The declared rank of an input, None where it isn't known."""
    kind = node.input_types[index]
    return len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None


def integers(value: np.ndarray[Any, Any]) -> list[int]:
    """The elements of a constant."""
    return [int(item) for item in value.reshape(-1).tolist()]
