"""The identity of a subgraph: a digest over all that a compiler may look at, weights included.

Names of values and nodes count, since a compiled partition binds by them. Names of graphs and
partitions and doc strings don't.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ep_core.cores import map_in_threads
from ep_core.errors import NotSupportedError
from ep_core.graph import Graph, Initializer, Node, Subgraph
from ep_core.types import ValueType

__all__ = ["Digest", "add_subgraph"]

_WEIGHTS: WeakKeyDictionary[Initializer, bytes] = WeakKeyDictionary()
"""Digests of constants, which are large and belong to several subgraphs while a claim is tried."""

_LARGE_BYTES = 2**16


class Digest:
    """A running SHA-256; parts carry their kind and length, so that no two sequences look alike."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, kind: str, data: bytes | memoryview) -> None:
        """Add one part."""
        self._hash.update(f"{kind} {len(data)}\0".encode())
        self._hash.update(data)

    def add_text(self, *texts: str) -> None:
        """Add texts, each a part of its own."""
        for text in texts:
            self.add("text", text.encode("utf-8", "surrogatepass"))

    def result(self) -> bytes:
        """The digest so far, 32 bytes."""
        return self._hash.digest()


def add_subgraph(digest: Digest, subgraph: Subgraph) -> None:
    """Add nodes, attributes, constants, boundary, operator sets, and what is known of types.

    Raises:
        NotSupportedError: an attribute holds something that isn't an `AttributeValue`.
    """
    graph = subgraph.graph
    digest.add_text("subgraph", *_counted(subgraph.inputs), *_counted(subgraph.outputs))
    _add_opsets(digest, graph)
    names = {n for node in subgraph.nodes for n in (*node.reads, *node.outputs)}
    names.update(subgraph.inputs, subgraph.outputs)
    _add_types(digest, graph, names)
    _add_initializers(digest, subgraph.constants)
    _add_nodes(digest, subgraph.nodes)


def _add_graph(digest: Digest, graph: Graph) -> None:
    digest.add_text("graph", *_counted(graph.input_names), *_counted(graph.output_names))
    digest.add_text(*_counted(sorted(graph.overridable)))
    _add_opsets(digest, graph)
    _add_types(digest, graph, graph.values)
    _add_initializers(digest, graph.initializers)
    _add_nodes(digest, graph.nodes)


def _counted(texts: Iterable[str]) -> list[str]:
    found = list(texts)
    return [str(len(found)), *found]


def _add_opsets(digest: Digest, graph: Graph) -> None:
    digest.add_text(repr(sorted(graph.opsets.items())))


def _add_types(digest: Digest, graph: Graph, names: Iterable[str]) -> None:
    known = {name: graph.type_of(name) for name in names}
    for name, kind in sorted(known.items()):
        digest.add_text(name, repr(kind))


def _add_initializers(digest: Digest, initializers: Mapping[str, Initializer]) -> None:
    large = {id(item): item for item in initializers.values() if item.nbytes >= _LARGE_BYTES}
    # The largest first, so that the last one that somebody waits for is small.
    map_in_threads(_weights, sorted(large.values(), key=lambda item: -item.nbytes))
    digest.add_text(str(len(initializers)))
    for name, initializer in sorted(initializers.items()):
        digest.add_text(name)
        digest.add("weights", _weights(initializer))


def _weights(initializer: Initializer) -> bytes:
    """The digest of a constant's type, shape and elements, worked out once in its life."""
    found = _WEIGHTS.get(initializer)
    if found is None:
        digest = Digest()
        _add_array(digest, initializer.numpy())
        found = _WEIGHTS[initializer] = digest.result()
    return found


def _add_nodes(digest: Digest, nodes: Iterable[Node]) -> None:
    for node in nodes:
        digest.add_text("node", node.name, node.domain, node.op_type, str(node.since_version))
        digest.add_text(*_counted(node.inputs), *_counted(node.outputs))
        for name, value in sorted(node.attributes.items()):
            digest.add_text(name)
            _add_value(digest, value)


def _add_value(digest: Digest, value: Any) -> None:
    """Add the value of an attribute."""
    if isinstance(value, Graph):
        _add_graph(digest, value)
    elif isinstance(value, np.ndarray):
        _add_array(digest, value)
    elif isinstance(value, tuple | list):
        digest.add_text("list", str(len(value)))
        for item in value:
            _add_value(digest, item)
    elif isinstance(value, bytes):
        digest.add("bytes", value)
    elif isinstance(value, str):
        digest.add("str", value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, numbers.Integral):
        digest.add_text("int", str(int(value)))
    elif isinstance(value, numbers.Real):
        digest.add_text("float", float(value).hex())
    elif isinstance(value, ValueType):
        digest.add_text("type", repr(value))
    else:
        raise NotSupportedError(f"a value of type {type(value).__name__} has no digest")


def _add_array(digest: Digest, array: np.ndarray[Any, Any]) -> None:
    digest.add_text("array", str(array.dtype), repr(array.shape))
    if array.dtype.hasobject:
        for item in array.reshape(-1):
            _add_value(digest, item)
        return
    flat = np.ascontiguousarray(array).reshape(-1)
    digest.add("elements", flat.view(np.uint8).data)
