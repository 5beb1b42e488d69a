"""Removes nodes, outputs and initializers that nobody uses."""

from __future__ import annotations

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._schema import may_drop_output

__all__ = ["PASS"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in reversed(list(editor.find())):
        if all(editor.unused(name) for name in node.outputs if name):
            editor.remove(key)
            continue
        outputs = _wanted_outputs(editor, node)
        if outputs != node.outputs:
            editor.replace(key, node.replace(outputs=outputs))
    editor.drop_unused_constants()


def _wanted_outputs(editor: GraphEditor, node: Node) -> tuple[str, ...]:
    """The outputs with optional ones that nobody uses left out, and none left out at the end."""
    if not any(name and editor.unused(name) for name in node.outputs):
        return node.outputs
    outputs = [
        "" if name and editor.unused(name) and may_drop_output(node, index) else name
        for index, name in enumerate(node.outputs)
    ]
    while outputs[-1] == "" and may_drop_output(node, len(outputs) - 1):
        outputs.pop()
    return tuple(outputs)


PASS = Pass("DeadCodeElimination", GraphOptimizationLevel.ORT_ENABLE_BASIC, _rewrite)
