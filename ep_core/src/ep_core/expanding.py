"""Replaces operators that no provider runs by the function body that their schema has.

ONNX defines many operators as functions of simpler ones (`SequenceMap` is a `Loop`), so a provider
need not have a kernel for each. Nodes that some provider takes stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from ep_core.errors import EpError
from ep_core.fusing import placement_ranks
from ep_core.graph import Graph, Node, ValueInfo
from ep_core.levels import GraphOptimizationLevel
from ep_core.loading.load import load_model
from ep_core.partition import CONTROL_FLOW, Candidate
from ep_core.passes import Pass
from ep_core.passes._driver import PassContext, run_pass
from ep_core.passes._editor import GraphEditor
from ep_core.passes._scope import Names
from ep_core.passes.constant_if import put_in_place

__all__ = ["expand_functions"]

_MOST_ROUNDS = 8
"""Functions may be made of functions; real ones are two or three deep."""


def expand_functions(graph: Graph, candidates: Sequence[Candidate]) -> Graph:
    """Return `graph` with every node expanded that nobody takes and that has a function body.

    If that doesn't make all of it run, `graph` itself comes back, so that the error is about
    operators that stand in the model.
    """
    original = graph
    for _ in range(_MOST_ROUNDS):
        ranks = placement_ranks(graph, candidates)
        nobodys = {node for node, rank in ranks.items() if rank == len(candidates)}
        orphans = {node for node in nobodys if _is_function(node)}
        if not orphans:
            return original if nobodys else graph

        def rewrite(
            editor: GraphEditor, context: PassContext, orphans: set[Node] = orphans
        ) -> None:
            for key, node in editor.find():
                body = _expansion(editor, node, context.names) if node in orphans else None
                if body is not None:
                    editor.remove(key)
                    put_in_place(editor, node, body)

        step = Pass("FunctionExpansion", GraphOptimizationLevel.ORT_DISABLE_ALL, rewrite)
        context = PassContext(lambda graph, node, inputs: None, Names(graph))
        expanded = run_pass(step, graph, context)
        if expanded is graph:
            break
        graph = expanded
    return original


def _is_function(node: Node) -> bool:
    if not node.domain and node.op_type in CONTROL_FLOW:
        return False
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, node.since_version, node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _expansion(editor: GraphEditor, node: Node, names: Names) -> Graph | None:
    """The function body as a graph over the node's inputs and outputs; None if there is none."""
    from onnx import inliner

    reads = tuple(ValueInfo(name, editor.type_of(name)) for name in dict.fromkeys(node.reads))
    outputs = tuple(ValueInfo(name, editor.type_of(name)) for name in node.outputs if name)
    alone = Graph(
        name=node.name,
        inputs=reads,
        outputs=outputs,
        nodes=(node,),
        initializers={},
        opsets=editor.graph.opsets,
    )
    try:
        model = inliner.inline_selected_functions(
            alone.to_model(), [(node.domain, node.op_type)], inline_schema_functions=True
        )
    except (EpError, RuntimeError):
        return None  # an input's type is unknown, or the function has no body for these types
    if any(
        item.op_type == node.op_type and item.domain == node.domain for item in model.graph.node
    ):
        return None
    kept = {info.name for info in (*reads, *outputs)}
    _prefix_names(model.graph, names.fresh(node.name), kept)
    body = load_model(model).graph
    # Outputs nobody asked for are not in `alone`; `put_in_place` wants one per output.
    return body.replace(
        outputs=tuple(
            next((info for info in body.outputs if info.name == name), ValueInfo(""))
            for name in node.outputs
        )
    )


def _prefix_names(graph: onnx.GraphProto, prefix: str, kept: set[str]) -> None:
    """Rename every value of a graph and its bodies but `kept`, so that none meets an outer one."""

    def renamed(name: str) -> str:
        return f"{prefix}/{name}" if name and name not in kept else name

    for group in (graph.input, graph.output, graph.value_info, graph.initializer):
        for item in group:
            item.name = renamed(item.name)
    for node in graph.node:
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                _prefix_names(body, prefix, kept)
