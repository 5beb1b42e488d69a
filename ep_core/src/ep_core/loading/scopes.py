"""Bodies inside protos: finding them, and making names unique across nested graphs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, MutableSequence

import onnx

__all__ = ["bodies", "rename_shadowing"]


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def rename_shadowing(graph: onnx.GraphProto) -> None:
    """Give every value of a body that hides one of an outer graph a new name, in place.

    Afterwards a name means the same wherever it is visible. Shape inference needs that (it mixes
    the two up), and nobody after it has to think of shadowing.
    """
    if any(True for node in graph.node for _ in bodies(node)):
        taken: set[str] = set()
        _collect(graph, taken)
        fresh = (name for n in itertools.count() if (name := f"hidden__{n}") not in taken)
        _visit(graph, (), {}, fresh)


def _defined(graph: onnx.GraphProto) -> set[str]:
    names = {value.name for value in graph.input}
    names.update(tensor.name for tensor in graph.initializer)
    names.update(sparse.values.name for sparse in graph.sparse_initializer)
    names.update(output for node in graph.node for output in node.output)
    names.discard("")
    return names


def _collect(graph: onnx.GraphProto, names: set[str]) -> None:
    names |= _defined(graph)
    for node in graph.node:
        for body in bodies(node):
            _collect(body, names)


def _visit(
    graph: onnx.GraphProto,
    outer: tuple[set[str], ...],
    renamed: dict[str, str],
    fresh: Iterator[str],
) -> None:
    own = _defined(graph)
    renamed = {old: new for old, new in renamed.items() if old not in own}
    for name in own:
        if any(name in names for names in outer):
            renamed[name] = next(fresh)
    if renamed:
        _apply(graph, renamed)
    for node in graph.node:
        for body in bodies(node):
            _visit(body, (*outer, own), renamed, fresh)


def _apply(graph: onnx.GraphProto, renamed: dict[str, str]) -> None:
    for values in (graph.input, graph.output, graph.value_info):
        for value in values:
            value.name = renamed.get(value.name, value.name)
    for tensor in graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = renamed.get(sparse.values.name, sparse.values.name)
    for node in graph.node:
        _replace(node.input, renamed)
        _replace(node.output, renamed)


def _replace(names: MutableSequence[str], renamed: dict[str, str]) -> None:
    for position, name in enumerate(names):
        if name in renamed:
            names[position] = renamed[name]
