"""Removes arithmetic that returns its operand bit by bit: x * 1, x / 1, x + 0, x - 0.

Mind the sign of zero: -0.0 + 0.0 is 0.0, so adding zero to a float is a no-op only for -0.0, and
subtracting only for +0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._constants import broadcasts_into, filled_with, shape_of
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.types import DataType, TensorType

__all__ = ["PASS"]

_ALIGNED_BROADCAST_SINCE = 7
"""Before this version Add and the like had an `axis` attribute to line operands up."""


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find(*_NEUTRAL):
        for kept, constant in _operands(node):
            if _is_neutral(editor, node.op_type, kept, constant) and editor.forward(key, kept):
                break


def _operands(node: Node) -> Iterator[tuple[str, str]]:
    """Pairs of the operand that may stay and the one that may be neutral."""
    if node.since_version < _ALIGNED_BROADCAST_SINCE:
        return
    left, right = node.inputs
    yield left, right
    if node.op_type in ("Add", "Mul"):
        yield right, left


def _is_neutral(editor: GraphEditor, op_type: str, kept: str, other: str) -> bool:
    constant = editor.constant(other)
    kind = editor.type_of(kept)
    if constant is None or not (constant.dtype.is_float or constant.dtype.is_integer):
        return False
    if kind is not None and not (isinstance(kind, TensorType) and kind.dtype is constant.dtype):
        return False
    return broadcasts_into(constant.shape, shape_of(editor, kept)) and filled_with(
        editor, other, _NEUTRAL[op_type](constant.dtype)
    )


_NEUTRAL: dict[str, Callable[[DataType], float]] = {
    "Mul": lambda dtype: 1,
    "Div": lambda dtype: 1,
    "Add": lambda dtype: -0.0 if dtype.is_float else 0,
    "Sub": lambda dtype: 0,
}


PASS = Pass(
    "NoopElimination",
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    _rewrite,
)
