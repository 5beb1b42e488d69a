"""Lets a Reshape read past the reshapes before it."""

from __future__ import annotations

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._constants import integers_at
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor

__all__ = ["PASS"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("Reshape"):
        if not _is_absolute(editor, node):
            continue
        passed = [node.inputs[0]]
        while inner := editor.made_by(passed[-1], "Flatten", "Reshape", "Squeeze", "Unsqueeze"):
            passed.append(inner.inputs[0])
        if len(passed) > 1:
            editor.replace(key, node.replace(inputs=(passed[-1], *node.inputs[1:])))
            editor.remove_unused(passed[:1])


def _is_absolute(editor: GraphEditor, node: Node) -> bool:
    """True if the target shape doesn't refer to the dimensions of what is reshaped."""
    target = integers_at(editor, node, "shape", 1)
    return target is not None and (0 not in target or bool(node.attributes.get("allowzero", 0)))


PASS = Pass(
    "ReshapeFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
)
