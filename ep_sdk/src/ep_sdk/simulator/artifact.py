"""The simulator's artifacts: a header and the subgraph as an ONNX model, weights included.

A real compiler would put its machine code there. What is imported is run from the artifact alone,
so that a mix-up of artifacts shows in the results.
"""

from __future__ import annotations

import struct

from ep_core.errors import CompileError, EpError
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model

__all__ = ["pack", "unpack"]

_HEADER = struct.Struct("<16sQ")
_MAGIC = b"ep simulator 1\0\0"


def pack(subgraph: Subgraph) -> bytes:
    """Return a subgraph as an artifact.

    Raises:
        CompileError: it doesn't fit into one model.
    """
    try:
        model: bytes = subgraph.to_model().SerializeToString()
    except EpError as error:
        raise CompileError(f"subgraph {subgraph.name!r} can't be exported: {error}") from error
    return _HEADER.pack(_MAGIC, len(model)) + model


def unpack(artifact: bytes, like: Subgraph) -> Subgraph:
    """Return the subgraph of an artifact, under the name of `like`.

    Raises:
        CompileError: it isn't one of the simulator's, isn't whole, or its inputs and outputs
            aren't those of `like`.
    """
    if len(artifact) < _HEADER.size:
        raise CompileError("the artifact is too short", got=f"{len(artifact)} bytes")
    magic, length = _HEADER.unpack_from(artifact)
    if magic != _MAGIC:
        raise CompileError("the artifact isn't one of this simulator's")
    if length != len(artifact) - _HEADER.size:
        expected = f"{_HEADER.size + length} bytes"
        raise CompileError("the artifact isn't whole", expected=expected, got=len(artifact))
    try:
        graph = load_model(artifact[_HEADER.size :]).graph
    except EpError as error:
        raise CompileError(f"the artifact holds no model: {error}") from error
    subgraph = Subgraph.cut(graph, range(len(graph.nodes)), like.name)
    if (subgraph.inputs, subgraph.outputs) != (like.inputs, like.outputs):
        raise CompileError(
            "the artifact is of another subgraph",
            expected=f"{like.inputs} -> {like.outputs}",
            got=f"{subgraph.inputs} -> {subgraph.outputs}",
        )
    return subgraph
