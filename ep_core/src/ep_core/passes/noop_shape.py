"""Removes nodes that only move data and, as the types prove, move nothing.

A dimension counts as known only when it is a number: equal symbols are the exporter's promise about
other inputs, not a proof.
"""

from __future__ import annotations

from collections.abc import Callable

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._constants import broadcasts_into, integers, integers_at, shape_of
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.types import TensorType

__all__ = ["PASS"]

_TO_THE_END = 2**31 - 1
"""Slice ends from here on mean the end of the axis, however long it is."""


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find(*_FINDERS):
        source = _FINDERS[node.op_type](editor, node)
        if source:
            editor.forward(key, source)


def _only_input(editor: GraphEditor, node: Node) -> str | None:
    """Concat, Max or Min of one operand. Not Sum and Mean, which may add it to +0.0."""
    return node.inputs[0] if len(node.inputs) == 1 else None


def _same_static_shape(editor: GraphEditor, node: Node) -> bool:
    before = editor.type_of(node.inputs[0])
    after = editor.type_of(node.outputs[0])
    return (
        isinstance(before, TensorType)
        and isinstance(after, TensorType)
        and before.static_shape is not None
        and before.static_shape == after.static_shape
    )


def _reshape(editor: GraphEditor, node: Node) -> str | None:
    source = node.inputs[0]
    if _same_static_shape(editor, node) or _reshape_keeps(editor, node):
        return source
    return None


def _reshape_keeps(editor: GraphEditor, node: Node) -> bool:
    """True if a constant target repeats every dimension; one may be left to be worked out."""
    shape = shape_of(editor, node.inputs[0])
    target = integers_at(editor, node, "shape", 1)
    if shape is None or target is None or len(target) != len(shape):
        return False
    copies_zero = not node.attributes.get("allowzero", 0)
    moved = [
        wanted
        for wanted, length in zip(target, shape, strict=True)
        if wanted != length and not (wanted == 0 and copies_zero)
    ]
    return not moved or moved == [-1]


def _flatten(editor: GraphEditor, node: Node) -> str | None:
    shape = shape_of(editor, node.inputs[0])
    axis = node.attributes.get("axis", 1)
    return node.inputs[0] if shape is not None and len(shape) == 2 and axis in (1, -1) else None


def _expand(editor: GraphEditor, node: Node) -> str | None:
    target = integers(editor, node.inputs[1])
    grows_nothing = target is not None and broadcasts_into(target, shape_of(editor, node.inputs[0]))
    return node.inputs[0] if grows_nothing or _same_static_shape(editor, node) else None


def _tile(editor: GraphEditor, node: Node) -> str | None:
    repeats = integers(editor, node.inputs[1]) if len(node.inputs) == 2 else None
    return node.inputs[0] if repeats is not None and all(n == 1 for n in repeats) else None


def _pad(editor: GraphEditor, node: Node) -> str | None:
    attribute = "paddings" if node.since_version == 1 else "pads"
    pads = integers_at(editor, node, attribute, 1)
    return node.inputs[0] if pads is not None and not any(pads) else None


def _slice(editor: GraphEditor, node: Node) -> str | None:
    has_steps = node.since_version >= 10 and len(node.inputs) > 4 and bool(node.inputs[4])
    steps = integers(editor, node.inputs[4]) if has_steps else ()
    if steps is None or any(step != 1 for step in steps):
        return None
    if _same_static_shape(editor, node):
        return node.inputs[0]
    starts = integers_at(editor, node, "starts", 1)
    ends = integers_at(editor, node, "ends", 2)
    if starts is None or ends is None or any(starts):
        return None
    return node.inputs[0] if all(end >= _TO_THE_END for end in ends) else None


def _squeeze(editor: GraphEditor, node: Node) -> str | None:
    """Squeeze of Unsqueeze along the same axes; both count them in the tensor between."""
    inner = editor.made_by(node.inputs[0], "Unsqueeze")
    if inner is None:
        return None
    rank = _rank(editor, node.inputs[0])
    added = _axes(editor, inner, rank)
    return inner.inputs[0] if added and added == _axes(editor, node, rank) else None


def _unsqueeze(editor: GraphEditor, node: Node) -> str | None:
    """Unsqueeze of Squeeze along the same axes, if these surely have length one."""
    inner = editor.made_by(node.inputs[0], "Squeeze")
    shape = shape_of(editor, inner.inputs[0]) if inner is not None else None
    if inner is None or shape is None:
        return None
    removed = _axes(editor, inner, len(shape))
    if not removed or removed != _axes(editor, node, len(shape)):
        return None
    in_range = all(-len(shape) <= axis < len(shape) for axis in removed)
    return inner.inputs[0] if in_range and all(shape[axis] == 1 for axis in removed) else None


def _rank(editor: GraphEditor, name: str) -> int | None:
    shape = shape_of(editor, name)
    return len(shape) if shape is not None else None


def _axes(editor: GraphEditor, node: Node, rank: int | None) -> frozenset[int] | None:
    axes = integers_at(editor, node, "axes", 1)
    if axes is None or rank is None:
        return frozenset(axes) if axes is not None else None
    return frozenset(axis + rank if axis < 0 else axis for axis in axes)


_FINDERS: dict[str, Callable[[GraphEditor, Node], str | None]] = {
    "Concat": _only_input,
    "Expand": _expand,
    "Flatten": _flatten,
    "Max": _only_input,
    "Min": _only_input,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Unsqueeze": _unsqueeze,
}
"""By operator: the function that returns the input which the node only passes on, or None."""


PASS = Pass(
    "ShapeNoopElimination",
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    _rewrite,
    aliases=("EliminateSlice", "ExpandElimination", "UnsqueezeElimination"),
)
