"""What the parser is asked about: a node alone.

It stands under names of its own, so that equal nodes share an answer in whatever graph they are.
"""

from __future__ import annotations

import numpy as np
import onnx

from ep_core.graph import Graph, Initializer, Subgraph

__all__ = ["node_alone"]

_SMALL_BYTES = 2**12
"""Constants up to here keep their values, as many operators need to know axes or shapes."""


def node_alone(graph: Graph, place: int) -> onnx.ModelProto:
    """Return a model of one node without bodies; large constants are zeros."""
    alone = Subgraph.cut(graph, [place], "node").as_graph()
    constants = {name: _emptied(name, item) for name, item in alone.initializers.items()}
    model = alone.replace(initializers=constants).to_model()
    _rename(model.graph)
    return model


def _emptied(name: str, item: Initializer) -> Initializer:
    if item.nbytes <= _SMALL_BYTES:
        return item
    return Initializer.from_array(name, np.zeros(item.shape, item.dtype.numpy))


def _rename(graph: onnx.GraphProto) -> None:
    (node,) = graph.node
    names: dict[str, str] = {"": ""}
    for value in (*node.input, *node.output):
        names.setdefault(value, f"v{len(names)}")
    node.name = "node"
    node.doc_string = ""
    node.input[:] = [names[value] for value in node.input]
    node.output[:] = [names[value] for value in node.output]
    for info in (*graph.input, *graph.output, *graph.initializer):
        info.name = names[info.name]
    del graph.value_info[:]
