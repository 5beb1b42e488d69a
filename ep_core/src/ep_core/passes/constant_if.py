"""Puts the chosen branch of an If in its place when the condition is constant."""

from __future__ import annotations

from ep_core.graph import Graph, Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._scope import rename_values

__all__ = ["PASS", "put_in_place"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("If"):
        branch = _chosen_branch(editor, node)
        if branch is not None and len(branch.outputs) == len(node.outputs):
            editor.remove(key)
            put_in_place(editor, node, branch)


def _chosen_branch(editor: GraphEditor, node: Node) -> Graph | None:
    condition = editor.constant(node.inputs[0])
    if condition is None or len(condition.numpy().reshape(-1)) != 1:
        return None
    chosen = node.attributes["then_branch" if condition.numpy().item() else "else_branch"]
    assert isinstance(chosen, Graph)
    return chosen


def put_in_place(editor: GraphEditor, node: Node, branch: Graph) -> None:
    """Add a graph's nodes and constants in place of a node that was removed.

    Names become new ones, since both branches of an If may use equal names. An output of `branch`
    whose counterpart in `node.outputs` is empty isn't needed.
    """
    local = [*branch.initializers, *branch.producers]
    outputs = {
        inner: outer
        for inner, outer in zip(branch.output_names, node.outputs, strict=True)
        if outer and inner in branch.producers
    }
    mapping = {name: outputs.get(name) or editor.names.fresh(name) for name in local}
    inlined = rename_values(branch, mapping)
    for initializer in inlined.initializers.values():
        editor.set_constant(initializer)
    for item in inlined.nodes:
        editor.add(item.replace(name=editor.names.fresh(item.name)))
    for name, info in inlined.values.items():
        editor.set_type(name, info.type)
    # Constants, outer values and values that the branch returns twice have no name to give away.
    for source, target in zip(inlined.output_names, node.outputs, strict=True):
        if target and source != target:
            editor.add(editor.make_node("Identity", (source,), (target,)))


PASS = Pass("ConstantIfElimination", GraphOptimizationLevel.ORT_ENABLE_BASIC, _rewrite)
