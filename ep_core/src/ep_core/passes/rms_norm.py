"""Makes one RMSNormalization of its formula: `x / sqrt(mean(x^2) + epsilon) * scale`.

Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", arXiv 1910.07467.
"""

from __future__ import annotations

from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._normalization import find_deviation, find_scaled
from ep_core.passes._schema import version_at

__all__ = ["PASS"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    if version_at("RMSNormalization", editor.opsets) is None:
        return
    for _, node in editor.find("Sqrt"):
        found = find_deviation(editor, node)
        scaled = find_scaled(editor, found) if found is not None else None
        if found is None or scaled is None:
            continue
        if not editor.closed({*found.keys, *scaled.all_keys}, scaled.key):
            continue
        old = editor.node(scaled.key)
        attributes = {"axis": -found.axes, "epsilon": found.epsilon}
        fused = editor.make_node(
            "RMSNormalization", (found.operand, scaled.scale), old.outputs, attributes
        )
        editor.replace(scaled.key, fused)
        editor.remove_unused(old.inputs)


PASS = Pass(
    "RMSNormFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
    aliases=("SimplifiedLayerNormFusion",),
)
