"""Artifacts: a serialized engine behind a header and a digest of our own.

TensorRT takes what it is given for what it wrote itself, and ends the process on anything else.
Nothing gets there whose header, length, digest, library, target and boundary don't fit.
"""

from __future__ import annotations

import hashlib
import json
import struct

from ep_core.errors import CompileError
from ep_core.graph import Subgraph
from ep_tensorrt.profiles import Range, Ranges

__all__ = ["pack", "unpack"]

_HEADER = struct.Struct("<16sQQ32s")
_MAGIC = b"ep tensorrt 1\0\0\0"


def pack(engine: bytes, ranges: Ranges, subgraph: Subgraph, made_by: str) -> bytes:
    """Return an artifact.

    Args:
        engine: serialized.
        ranges: that it was built for.
        made_by: what it runs on, as `DeviceInfo.fingerprint` tells.
    """
    shapes = {name: (r.least, r.best, r.most) for name, r in ranges.items()}
    label = json.dumps([_boundary(subgraph, made_by), shapes]).encode()
    return _HEADER.pack(_MAGIC, len(label), len(engine), _digest(label, engine)) + label + engine


def unpack(artifact: bytes, subgraph: Subgraph, made_by: str) -> tuple[bytes, Ranges]:
    """Return what was packed: the engine and its ranges.

    Raises:
        CompileError: it isn't an artifact of this provider's, isn't whole, or was made for another
            device, by another library, or of another subgraph.
    """
    artifact = bytes(artifact)
    if len(artifact) < _HEADER.size:
        raise CompileError("the artifact is too short", got=f"{len(artifact)} bytes")
    magic, label_length, length, digest = _HEADER.unpack_from(artifact)
    if magic != _MAGIC:
        raise CompileError("the artifact isn't one of ep-tensorrt's")
    if label_length + length != len(artifact) - _HEADER.size:
        whole = f"{_HEADER.size + label_length + length} bytes"
        raise CompileError("the artifact isn't whole", expected=whole, got=len(artifact))
    label = artifact[_HEADER.size : _HEADER.size + label_length]
    engine = artifact[_HEADER.size + label_length :]
    if _digest(label, engine) != digest:
        raise CompileError("the artifact is damaged: its digest differs")
    boundary, shapes = json.loads(label)
    if boundary != _boundary(subgraph, made_by):
        raise CompileError(
            "the artifact was made for another device or library, or of another subgraph",
            expected=_boundary(subgraph, made_by),
            got=boundary,
        )
    return engine, {name: Range(*map(tuple, lengths)) for name, lengths in shapes.items()}


def _digest(label: bytes, engine: bytes) -> bytes:
    return hashlib.sha256(label + engine).digest()


def _boundary(subgraph: Subgraph, made_by: str) -> list[str]:
    """What an artifact must have been made for, as far as it can be told without the weights."""
    graph = subgraph.graph
    values = [*subgraph.inputs, "to", *subgraph.outputs]
    kinds = [graph.type_of(name) for name in values]
    return [made_by, *(f"{name}: {kind!r}" for name, kind in zip(values, kinds, strict=True))]
