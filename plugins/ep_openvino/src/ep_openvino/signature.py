"""What a node is to OpenVINO: its signature, and a model of that node alone.

Two nodes of equal signature get equal answers, in whatever graph they stand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ep_core.contracts import HostArray
from ep_core.graph import Graph, Initializer, Node, ValueInfo
from ep_core.types import OpSet, TensorType, ValueType

__all__ = ["NodeSignature", "signature_of"]

_SMALL_BYTES = 2**12
"""Constants up to here are part of the question, as many operators need to know axes or shapes."""


_kept: WeakKeyDictionary[Node, tuple[object, NodeSignature]] = WeakKeyDictionary()
"""By node, with what was around it: nodes pass through many graphs while a model is optimised."""


@dataclass(frozen=True)
class NodeSignature:
    """A node with its surroundings forgotten.

    Attributes:
        key: equal for equal questions, and for no others.
        graph: the node alone; its inputs are called `i0`, `i1`, ..., its outputs `o0`, `o1`, ...
    """

    key: bytes
    graph: Graph


def signature_of(graph: Graph, node: Node) -> NodeSignature:
    """Return the signature of a node without bodies whose inputs are tensors of known types."""
    surroundings = (
        graph.opsets.get(node.domain),
        [(graph.type_of(value), graph.constant(value)) for value in node.inputs],
        [graph.type_of(value) for value in node.outputs],
    )
    kept = _kept.get(node)
    if kept is not None and kept[0] == surroundings:
        return kept[1]
    signature = _signature(graph, node)
    _kept[node] = (surroundings, signature)
    return signature


def _signature(graph: Graph, node: Node) -> NodeSignature:
    inputs: list[ValueInfo] = []
    constants: dict[str, Initializer] = {}
    names: dict[str, str] = {"": ""}
    for value in node.inputs:
        if value in names:
            continue
        name = names[value] = f"i{len(names) - 1}"
        constant = graph.constant(value)
        if constant is not None and constant.nbytes <= _SMALL_BYTES:
            constants[name] = constant.renamed(name)
        else:
            inputs.append(ValueInfo(name, _unnamed(graph.type_of(value))))
    outputs = {value: f"o{place}" for place, value in enumerate(node.outputs) if value}
    alone = node.replace(
        name="node",
        inputs=tuple(names[value] for value in node.inputs),
        outputs=tuple(outputs.get(value, "") for value in node.outputs),
    )
    opsets = OpSet({node.domain: graph.opsets.get(node.domain, node.since_version)})
    results = [ValueInfo(name, _unnamed(graph.type_of(value))) for value, name in outputs.items()]
    whole = Graph(
        name="node",
        inputs=tuple(inputs),
        outputs=tuple(results),
        nodes=(alone,),
        initializers=constants,
        opsets=opsets,
        values={info.name: info for info in (*inputs, *results)},
    )
    return NodeSignature(_key(whole, alone, opsets), whole)


def _unnamed(kind: ValueType | None) -> ValueType | None:
    """The type with symbolic lengths unnamed."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    shape = tuple(dim if isinstance(dim, int) else None for dim in kind.shape)
    return TensorType(kind.dtype, shape)


def _key(graph: Graph, node: Node, opsets: OpSet) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    told = (
        node.key,
        node.since_version,
        sorted(opsets.items()),
        node.inputs,
        node.outputs,
        [(info.name, repr(info.type)) for info in (*graph.inputs, *graph.outputs)],
        _attributes(node.attributes),
    )
    digest.update(repr(told).encode())
    for name, constant in graph.initializers.items():
        digest.update(f"{name} {constant!r}".encode())
        digest.update(_content(constant.numpy()))
    return digest.digest()


def _attributes(attributes: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [
        (name, (value.dtype.str, value.shape, _content(value)))
        if isinstance(value, np.ndarray)
        else (name, value)
        for name, value in sorted(attributes.items())
    ]


def _content(array: HostArray) -> bytes:
    if array.dtype == object:
        return repr(array.tolist()).encode()
    return np.ascontiguousarray(array).tobytes()
