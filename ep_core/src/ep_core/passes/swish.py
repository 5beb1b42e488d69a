"""Makes one Swish of `x * Sigmoid(x)`."""

from __future__ import annotations

from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._schema import version_at

__all__ = ["PASS"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    if version_at("Swish", editor.opsets) is None:
        return
    for key, node in editor.find("Mul"):
        for source, gate in (node.inputs, node.inputs[::-1]):
            sigmoid = editor.made_by(gate, "Sigmoid")
            if sigmoid is not None and sigmoid.inputs[0] == source and editor.used_once(gate):
                editor.replace(key, editor.make_node("Swish", (source,), node.outputs))
                editor.remove_unused([gate])
                break


PASS = Pass("SwishFusion", GraphOptimizationLevel.ORT_ENABLE_EXTENDED, _rewrite)
