"""How the values of a graph relate: defined once, defined before use, known to somebody.

Works on a converted `Graph`, whose parts are sound by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ep_core.errors import InvalidModelError
from ep_core.graph import Graph, Node
from ep_core.loading.limits import quoted, suggestion

__all__ = ["check_graph"]


@dataclass
class _Scope:
    """The values of one graph that are defined so far, inside the scopes around it."""

    graph: Graph
    defined: set[str]
    outer: _Scope | None

    def chain(self) -> Iterator[_Scope]:
        scope: _Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def sees(self, name: str) -> bool:
        return any(name in scope.defined for scope in self.chain())


def check_graph(graph: Graph) -> None:
    """Raise InvalidModelError where a model's main graph, or a body in it, is malformed."""
    if not graph.outputs:
        raise InvalidModelError("The model's graph has no outputs")
    for value in graph.inputs:
        if value.type is None:
            raise InvalidModelError(f"Graph input {quoted(value.name)} has no type")
    _check(graph, None)


def _check(graph: Graph, outer: _Scope | None) -> None:
    scope = _Scope(graph, set(), outer)
    for name in graph.input_names:
        _define(scope, name, "a graph input")
    scope.defined.update(graph.initializers)
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in scope.defined and not scope.sees(name):
                raise _undefined(scope, name, f"node {quoted(node.name)} ({node.key})")
        if node.bodies:
            _check_signatures(node)
            for body in node.bodies.values():
                _check(body, scope)
        for name in node.outputs:
            if name:
                _define(scope, name, f"an output of node {quoted(node.name)} ({node.key})")
    for name in graph.output_names:
        if not name or not scope.sees(name):
            raise _undefined(scope, name, f"the outputs of graph {quoted(graph.name)}")


def _define(scope: _Scope, name: str, role: str) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidModelError(
            f"There is {role} without a usable name",
            expected="a name in UTF-8",
            got=quoted(name),
        )
    if name in scope.defined:
        raise InvalidModelError(
            f"The value {quoted(name)} is defined twice, the second time as {role}",
            expected="every value to be defined once (static single assignment)",
        )
    scope.defined.add(name)


# ---------------------------------------------------------------- names that aren't there


def _undefined(scope: _Scope, name: str, user: str) -> InvalidModelError:
    for level in scope.chain():
        producer = level.graph.producers.get(name)
        if producer is not None:
            return _unsorted(level.graph, level.graph.nodes[producer], name, user)
    known = (known for level in scope.chain() for known in _names(level.graph))
    return InvalidModelError(
        f"The value {quoted(name)}, used by {user}, is defined nowhere",
        fix=suggestion(str(name), known),
    )


def _names(graph: Graph) -> Iterator[str]:
    yield from graph.input_names
    yield from graph.initializers
    yield from graph.producers


def _unsorted(graph: Graph, producer: Node, name: str, user: str) -> InvalidModelError:
    cycle = _find_cycle(graph)
    if cycle:
        path = " -> ".join(quoted(node.name) for node in [*cycle, cycle[0]])
        return InvalidModelError(f"The graph has a cycle: {path}")
    return InvalidModelError(
        f"The nodes are not in topological order: {quoted(name)} is used by {user} before node "
        f"{quoted(producer.name)} ({producer.key}) produces it",
        fix="Sort the nodes so that every value is produced before it is used.",
    )


def _find_cycle(graph: Graph) -> list[Node]:
    """Nodes that each feed the next, and the last the first; empty if there are none."""
    finished: set[int] = set()
    for start in range(len(graph.nodes)):
        if start in finished:
            continue
        path = [start]
        on_path = {start: 0}
        pending = [(start, iter(_predecessors(graph, start)))]
        while pending:
            index, rest = pending[-1]
            following = next((i for i in rest if i not in finished), None)
            if following is None:
                pending.pop()
                path.pop()
                del on_path[index]
                finished.add(index)
            elif following in on_path:
                return [graph.nodes[i] for i in reversed(path[on_path[following] :])]
            else:
                on_path[following] = len(path)
                path.append(following)
                pending.append((following, iter(_predecessors(graph, following))))
    return []


def _predecessors(graph: Graph, index: int) -> list[int]:
    found = (graph.producers.get(name) for name in graph.nodes[index].reads)
    return [producer for producer in found if producer is not None]


# ---------------------------------------------------------------- bodies of control flow


def _check_signatures(node: Node) -> None:
    """Bodies of If, Loop and Scan take and give what the node hands in and out."""
    if node.domain:
        return
    given, wanted = len(node.inputs), len(node.outputs)
    if node.op_type == "If":
        inputs, outputs = 0, wanted
    elif node.op_type == "Loop":
        inputs, outputs = max(given, 2), wanted + 1
    elif node.op_type == "Scan":
        inputs, outputs = given - (node.since_version < 9), wanted
        if not 0 < node.attributes["num_scan_inputs"] <= inputs:
            raise InvalidModelError(
                f"Node {quoted(node.name)} (Scan) has a wrong num_scan_inputs",
                expected=f"1 to {inputs}",
                got=node.attributes["num_scan_inputs"],
            )
    else:
        return
    for name, body in node.bodies.items():
        if (len(body.inputs), len(body.outputs)) != (inputs, outputs):
            raise InvalidModelError(
                f"The {name} of node {quoted(node.name)} ({node.key}) doesn't fit the node",
                expected=f"{inputs} inputs and {outputs} outputs",
                got=f"{len(body.inputs)} and {len(body.outputs)}",
            )
