"""Removes transposes that move nothing, and makes one of two in a row."""

from __future__ import annotations

from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._layout import compose, is_identity, permutation

__all__ = ["PASS", "shorten"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, _ in editor.find("Transpose"):
        shorten(editor, key)


def shorten(editor: GraphEditor, key: int) -> None:
    """Let a Transpose read past the one before it, and remove it if it moves nothing."""
    node = editor.node(key)
    order = permutation(editor, node)
    if order is None:
        return
    source = node.inputs[0]
    inner = editor.made_by(source, "Transpose")
    inner_order = permutation(editor, inner) if inner is not None else None
    if inner is not None and inner_order is not None and len(inner_order) == len(order):
        order = compose(inner_order, order)
        attributes = {**node.attributes, "perm": order}
        editor.replace(key, node.replace(inputs=(inner.inputs[0],), attributes=attributes))
        editor.remove_unused([source])
        source = inner.inputs[0]
    if is_identity(order):
        editor.forward(key, source)


PASS = Pass("TransposeElimination", GraphOptimizationLevel.ORT_ENABLE_BASIC, _rewrite)
