"""Which nodes have native operations: asks the table that the files of operators fill."""

from __future__ import annotations

# Importing these fills the table.
from ep_cpu.native import (
    elementwise,
    moving,
    packed_weights,
    products,
    quantising,
    recurrent,
    rows,
    typed,
    windows,
)
from ep_cpu.native.table import TABLE, Answer, is_handled
from ep_sdk.kernels import KernelNode

__all__ = ["translate"]

_FILLED = (
    elementwise,
    moving,
    packed_weights,
    products,
    quantising,
    recurrent,
    rows,
    typed,
    windows,
)


def translate(node: KernelNode) -> Answer:
    """The native step for a node, or why there is none."""
    found = TABLE.get((node.node.domain, node.node.op_type))
    if found is None:
        return "no native operation"
    for kind in (*node.input_types, *node.output_types):
        if kind is not None and not is_handled(kind):
            return f"type {kind}"
    return found(node)
