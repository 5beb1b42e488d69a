"""Lets a Transpose and the Squeeze or Unsqueeze behind it change places.

The number of transposes stays; behind the Squeeze they meet others and `transpose_pushing` can
remove them. A Reshape that only drops axes of length one counts as a Squeeze.
"""

from __future__ import annotations

import numpy as np

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._constants import integers_at, shape_of
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._layout import Permutation, invert, permutation, permuted_type
from ep_core.types import TensorType

__all__ = ["PASS"]

_AXES_ARE_INPUT_SINCE = 13


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("Reshape", "Squeeze", "Unsqueeze"):
        transpose = editor.made_by(node.inputs[0], "Transpose")
        order = permutation(editor, transpose) if transpose is not None else None
        if transpose is None or order is None or not editor.used_once(node.inputs[0]):
            continue
        if node.op_type == "Unsqueeze":
            _swap_unsqueeze(editor, key, transpose.inputs[0], order)
        else:
            _swap_squeeze(editor, key, transpose.inputs[0], order)


def _swap_squeeze(editor: GraphEditor, key: int, source: str, order: Permutation) -> None:
    node = editor.node(key)
    dropped = _dropped_axes(editor, node, len(order))
    if dropped is None:
        return
    kept = [order[axis] for axis in range(len(order)) if axis not in dropped]
    ranking = {axis: position for position, axis in enumerate(sorted(kept))}
    _swap(
        editor,
        key,
        ("Squeeze", source, sorted(order[axis] for axis in dropped)),
        tuple(ranking[axis] for axis in kept),
    )


def _swap_unsqueeze(editor: GraphEditor, key: int, source: str, order: Permutation) -> None:
    node = editor.node(key)
    axes = integers_at(editor, node, "axes", 1)
    rank = len(order) + len(axes or ())
    if not axes or not all(-rank <= axis < rank for axis in axes):
        return
    added = {axis % rank for axis in axes}
    others = [axis for axis in range(rank) if axis not in added]
    moved = list(range(rank))
    for position, axis in zip(others, order, strict=True):
        moved[position] = others[axis]
    _swap(editor, key, ("Unsqueeze", source, sorted(added)), tuple(moved))


def _dropped_axes(editor: GraphEditor, node: Node, rank: int) -> set[int] | None:
    if node.op_type == "Squeeze":
        axes = integers_at(editor, node, "axes", 1)
        if not axes or not all(-rank <= axis < rank for axis in axes):
            return None
        return {axis % rank for axis in axes}
    shape = shape_of(editor, node.inputs[0])
    target = integers_at(editor, node, "shape", 1)
    if shape is None or target is None or 0 in target:
        return None
    ones = {axis for axis, length in enumerate(shape) if length == 1}
    kept = [length for axis, length in enumerate(shape) if axis not in ones]
    # With one length left to be worked out, and the others equal and not zero, it has one answer.
    if len(target) != len(kept) or 0 in kept or not ones:
        return None
    unlike = [wanted for wanted, length in zip(target, kept, strict=True) if wanted != length]
    return ones if unlike in ([], [-1]) else None


def _swap(
    editor: GraphEditor, key: int, first: tuple[str, str, list[int]], order: Permutation
) -> None:
    """Make of node and Transpose the node `first` (operator, operand, axes) and a Transpose."""
    node = editor.node(key)
    op_type, source, axes = first
    between = editor.names.fresh(node.outputs[0])
    if editor.opsets.get("", 0) < _AXES_ARE_INPUT_SINCE:
        moved = editor.make_node(op_type, (source,), (between,), {"axes": tuple(axes)})
    else:
        constant = editor.add_constant(f"{node.name}_axes", np.array(axes, np.int64))
        moved = editor.make_node(op_type, (source, constant), (between,))
    transpose = editor.make_node("Transpose", (between,), node.outputs, {"perm": order})
    editor.replace(key, transpose)
    editor.add(moved)
    kind = editor.type_of(node.outputs[0])
    if isinstance(kind, TensorType) and kind.shape is not None:
        editor.set_type(between, permuted_type(kind, invert(order)))
    editor.remove_unused([node.inputs[0]])


PASS = Pass("TransposeSinking", GraphOptimizationLevel.ORT_ENABLE_LAYOUT, _rewrite)
