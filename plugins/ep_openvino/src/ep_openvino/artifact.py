"""Artifacts: a compiled model of OpenVINO's behind a header and a checksum of our own.

OpenVINO's reader takes what it is given for what it wrote itself. Nothing gets there whose header,
length, checksums, OpenVINO version and names of inputs and outputs don't fit. The checksums are
quick; the core keeps a digest besides.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

from ep_core.cores import map_in_threads
from ep_core.errors import CompileError
from ep_core.graph import Subgraph

__all__ = ["pack", "unpack"]

_HEADER = struct.Struct("<16sQQQ")
_MAGIC = b"ep openvino 2\0\0\0"
_PIECE_BYTES = 2**22


def pack(blob: bytes, subgraph: Subgraph, version: str) -> bytes:
    """Return an artifact.

    Args:
        blob: what OpenVINO's `export_model` gave.
        version: of OpenVINO, with its build.
    """
    label = _label(subgraph, version)
    checksum = _checksum((label, blob))
    return _HEADER.pack(_MAGIC, len(label), len(blob), checksum) + label + blob


def unpack(artifact: bytes | memoryview, subgraph: Subgraph, version: str) -> memoryview:
    """Return what was packed, without copying it.

    Raises:
        CompileError: it isn't an artifact of this provider's, isn't whole, or was made by another
            version of OpenVINO or for another subgraph.
    """
    if len(artifact) < _HEADER.size:
        raise CompileError("the artifact is too short", got=f"{len(artifact)} bytes")
    magic, label_length, length, expected = _HEADER.unpack_from(artifact)
    if magic != _MAGIC:
        raise CompileError("the artifact isn't one of ep-openvino's")
    if label_length + length != len(artifact) - _HEADER.size:
        whole = f"{_HEADER.size + label_length + length} bytes"
        raise CompileError("the artifact isn't whole", expected=whole, got=len(artifact))
    content = memoryview(artifact)[_HEADER.size :]
    if _checksum((content[:label_length], content[label_length:])) != expected:
        raise CompileError("the artifact is damaged: its checksum differs")
    label = _label(subgraph, version)
    if content[:label_length] != label:
        raise CompileError(
            "the artifact was made by another OpenVINO or of another subgraph",
            expected=label.decode(),
            got=bytes(content[:label_length]).decode(errors="replace"),
        )
    return content[label_length:]


def _checksum(parts: Iterable[bytes | memoryview]) -> int:
    """The CRC-32 over the CRC-32 of every 4 MiB of each part, worked out by several processors."""
    views = [memoryview(part) for part in parts]
    pieces = [v[at : at + _PIECE_BYTES] for v in views for at in range(0, len(v), _PIECE_BYTES)]
    return zlib.crc32(b"".join(crc.to_bytes(4) for crc in map_in_threads(zlib.crc32, pieces)))


def _label(subgraph: Subgraph, version: str) -> bytes:
    """What an artifact must have been made for, as far as it can be told without the weights."""
    told: dict[str, Any] = {
        "openvino": version,
        "inputs": [_described(subgraph, name) for name in subgraph.inputs],
        "outputs": [_described(subgraph, name) for name in subgraph.outputs],
    }
    return json.dumps(told).encode()


def _described(subgraph: Subgraph, name: str) -> str:
    kind = subgraph.graph.type_of(name)
    return f"{name}: {kind} {getattr(kind, 'shape', None)}"
