"""Removes Identity, and Dropout where it only passes its input on."""

from __future__ import annotations

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor

__all__ = ["PASS"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("Dropout", "Identity"):
        if node.op_type == "Identity" or _inert(editor, node):
            editor.forward(key, node.inputs[0])


def _inert(editor: GraphEditor, node: Node) -> bool:
    """True if the Dropout surely drops nothing and nobody uses its mask."""
    if any(name and not editor.unused(name) for name in node.outputs[1:]):
        return False
    if node.since_version < 7:
        return bool(node.attributes.get("is_test", 0))
    if node.since_version < 12 or len(node.inputs) < 3 or not node.inputs[2]:
        return True
    training = editor.constant(node.inputs[2])
    return training is not None and training.shape == () and not training.numpy()


PASS = Pass(
    "IdentityElimination",
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    _rewrite,
    aliases=("EliminateIdentity", "EliminateDropout"),
)
