"""Many small graphs read as one model, which takes OpenVINO little longer than one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ep_core.errors import CompileError
from ep_core.graph import Graph, Initializer, Node, ValueInfo
from ep_openvino.convert import read_graph

__all__ = ["read_apart"]


def read_apart(core: Any, graphs: Sequence[Graph]) -> list[Any]:
    """Return an `openvino.Model` of each graph; they have nothing in common.

    Args:
        core: `openvino.Core`.
        graphs: of the same operator sets.

    Raises:
        RuntimeError: OpenVINO can't read one of them.
        CompileError: what it reads can't be told apart.
    """
    import openvino

    if len(graphs) == 1:
        return [read_graph(core, graphs[0])]
    parts = [_renamed(graph, _mark(place)) for place, graph in enumerate(graphs)]
    model = read_graph(core, _together(parts))
    results = model.get_results()
    if len(results) != sum(len(part.outputs) for part in parts):
        raise CompileError("OpenVINO reads graphs that lie side by side with other outputs")
    parameters: dict[str, list[Any]] = {}
    for parameter in model.get_parameters():
        parameters.setdefault(_mark_of(parameter), []).append(parameter)
    found = []
    at = 0
    for place, part in enumerate(parts):
        own = results[at : at + len(part.outputs)]
        at += len(part.outputs)
        found.append(openvino.Model(own, parameters.get(_mark(place), []), part.name))
    return found


def _mark(place: int) -> str:
    return f"{place}:"


def _mark_of(parameter: Any) -> str:
    """What the names of a parameter begin with, which are those of one graph."""
    names: set[str] = parameter.output(0).get_names()
    marks = {name.partition(":")[0] + ":" for name in names}
    if len(marks) != 1:
        raise CompileError(f"OpenVINO reads an input called {sorted(marks)}")
    return marks.pop()


def _renamed(graph: Graph, mark: str) -> Graph:
    """A graph without bodies whose names begin with a mark."""

    def value(info: ValueInfo) -> ValueInfo:
        return ValueInfo(mark + info.name, info.type)

    def names(of: Sequence[str]) -> tuple[str, ...]:
        return tuple(mark + name if name else "" for name in of)

    def node(one: Node) -> Node:
        return one.replace(
            name=mark + one.name, inputs=names(one.inputs), outputs=names(one.outputs)
        )

    constants: dict[str, Initializer] = {
        mark + name: item.renamed(mark + name) for name, item in graph.initializers.items()
    }
    return graph.replace(
        inputs=tuple(map(value, graph.inputs)),
        outputs=tuple(map(value, graph.outputs)),
        nodes=tuple(map(node, graph.nodes)),
        initializers=constants,
        values={mark + name: value(info) for name, info in graph.values.items()},
    )


def _together(parts: Sequence[Graph]) -> Graph:
    return parts[0].replace(
        name="side by side",
        inputs=tuple(info for part in parts for info in part.inputs),
        outputs=tuple(info for part in parts for info in part.outputs),
        nodes=tuple(node for part in parts for node in part.nodes),
        initializers={name: item for part in parts for name, item in part.initializers.items()},
        values={name: info for part in parts for name, info in part.values.items()},
    )
