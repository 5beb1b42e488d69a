"""Lets a Reshape read past the reshapes before it."""

from __future__ import annotations

from ep_core.graph import Node
from ep_core.passes._constants import integers_at
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes.levels import GraphOptimizationLevel

__all__ = ["PASS"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("Reshape"):
        source = node.inputs[0]
        inner = editor.made_by(source, "Flatten", "Reshape", "Squeeze", "Unsqueeze")
        if inner is not None and _is_absolute(editor, node):
            editor.replace(key, node.replace(inputs=(inner.inputs[0], *node.inputs[1:])))
            editor.remove_unused([source])


def _is_absolute(editor: GraphEditor, node: Node) -> bool:
    """True if the target shape doesn't refer to the dimensions of what is reshaped."""
    target = integers_at(editor, node, "shape", 1)
    return target is not None and (0 not in target or bool(node.attributes.get("allowzero", 0)))


PASS = Pass(
    "ReshapeFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
)
