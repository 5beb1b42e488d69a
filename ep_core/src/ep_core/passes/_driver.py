"""Runs one pass over a graph and its bodies, and checks what came out.

The postconditions of all passes are checked here, in one place: a pass can't forget to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ep_core.errors import EpError
from ep_core.graph import Graph, Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._editor import GraphEditor
from ep_core.passes._scope import Names, Scope, map_bodies

__all__ = ["Evaluate", "Pass", "PassContext", "PassError", "run_pass"]

Evaluate = Callable[
    [Graph, Node, Sequence[np.ndarray[Any, Any] | None]], Sequence[np.ndarray[Any, Any]] | None
]
"""Computes one node on constants: `evaluate(graph, node, inputs)`, None for inputs left out.

`graph` holds that node alone, with its inputs as initializers. Returns an array per output that has
a name, or None if no provider can compute the node.
"""

_MOST_SWEEPS = 8
"""A pass does all it can in one sweep, except that news travels one body deep per sweep."""


class PassError(EpError):
    """A pass of the optimiser made a graph that breaks the rules; always a defect of the pass."""


@dataclass
class PassContext:
    """What the passes of one `optimize` call share.

    Attributes:
        evaluate: computes a node on constants.
        names: every name in use.
        refused: nodes that could not be computed; asked only once.
        unchanged: of the main graph, after a pass that had nothing to do; good for the next one.
    """

    evaluate: Evaluate
    names: Names
    refused: set[Node] = field(default_factory=set)
    unchanged: GraphEditor | None = None


@dataclass(frozen=True)
class Pass:
    """A rewrite of graphs into equal ones.

    Attributes:
        name: as in `disabled_optimizers`.
        level: the lowest level that runs it.
        rewrite: changes one graph; bodies have been rewritten before it is called. Idempotent.
        aliases: ONNX Runtime's names of optimizers whose work it does.
    """

    name: str
    level: GraphOptimizationLevel
    rewrite: Callable[[GraphEditor, PassContext], None]
    aliases: tuple[str, ...] = ()


def run_pass(step: Pass, graph: Graph, context: PassContext) -> Graph:
    """Return `graph` rewritten by one pass; `graph` itself if there was nothing to do.

    Raises:
        PassError: the result has other inputs or outputs, undefined values or a wrong order.
    """
    for _ in range(_MOST_SWEEPS):
        result = _rewrite(step, graph, context, None)
        if result is graph:
            break
        _check_signature(step, graph, result)
        _check_names(step, result, [])
        graph = result
        if not any(node.bodies for node in graph.nodes):
            break
    return graph


def _rewrite(step: Pass, graph: Graph, context: PassContext, outer: Scope | None) -> Graph:
    editor = context.unchanged if outer is None else None
    if editor is None or editor.graph is not graph:
        editor = GraphEditor(graph, context.names, outer)
    scope = Scope(graph, outer)

    def body(inner: Graph) -> Graph:
        result = _rewrite(step, inner, context, scope)
        _check_signature(step, inner, result)
        return result

    for key, node in editor.find():
        if node.bodies:
            rewritten = map_bodies(node, body)
            if rewritten is not node:
                editor.replace(key, rewritten)
    step.rewrite(editor, context)
    result = editor.finish()
    if outer is None:
        context.unchanged = editor if result is graph else None
    return result


def _check_signature(step: Pass, before: Graph, after: Graph) -> None:
    for what in ("input_names", "output_names", "overridable"):
        if getattr(before, what) != getattr(after, what):
            raise PassError(
                f"the pass {step.name} changed {what} of graph {before.name!r}",
                expected=getattr(before, what),
                got=getattr(after, what),
                fix=_fix(step),
            )


def _check_names(step: Pass, graph: Graph, visible: list[set[str]]) -> None:
    defined = {*graph.input_names, *graph.initializers}
    scopes = [*visible, defined]
    node_names: set[str] = set()

    def problem(node: Node, text: str) -> PassError:
        return PassError(f"after the pass {step.name}, node {node.name!r} {text}", fix=_fix(step))

    for node in graph.nodes:
        if node.name in node_names:
            raise problem(node, "shares its name with another node")
        node_names.add(node.name)
        for name in node.inputs:
            if name and not any(name in scope for scope in scopes):
                raise problem(node, f"reads {name!r} before anything produces it")
        for inner in node.bodies.values():
            _check_names(step, inner, scopes)
        for name in node.outputs:
            if name and any(name in scope for scope in scopes):
                raise problem(node, f"produces {name!r}, which exists already")
            defined.add(name)
    for name in graph.output_names:
        if not any(name in scope for scope in scopes):
            raise PassError(
                f"after the pass {step.name}, nothing produces output {name!r}", fix=_fix(step)
            )


def _fix(step: Pass) -> str:
    return f"Report it; until it is mended, run with disabled_optimizers=[{step.name!r}]."
