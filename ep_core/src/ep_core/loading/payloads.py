"""Weights inside a model file, taken out before protobuf sees it.

Protobuf would copy each of them twice. What is left for it says, by a word that no model can know
beforehand, where a tensor's data is. A file with anything unusual goes to protobuf as it is, which
says what is wrong with it. Nothing here knows graphs or types of elements.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from mmap import mmap

import numpy as np

from ep_core.cores import map_in_threads

__all__ = ["LEAST_FILE_BYTES", "Payloads", "lift_payloads"]

LEAST_FILE_BYTES = 2**20
"""Smaller models are parsed as quickly as they are looked through."""

_LEAST_BYTES = 2**14
_PIECE_BYTES = 2**22

# Numbers of fields in onnx.proto.
_GRAPH = 7  # of a model
_INITIALIZER = 5  # of a graph
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14  # of a tensor
_KEY, _VALUE = 1, 2  # of an entry of external_data

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_EXTERNAL = 1


Payloads = Mapping[str, memoryview]
"""What was taken out, by the `location` that a tensor's `external_data` tells."""


class _UnusualError(Exception):
    """The file isn't one that can be looked through here."""


@dataclass(frozen=True)
class _Field:
    number: int
    kind: int
    begin: int  # of the tag
    content: int  # of what follows the tag and, where there is one, the length
    end: int


def lift_payloads(data: bytes | mmap) -> tuple[bytes, Payloads]:
    """Split a serialized model into a small one and the weights that it had inside.

    Returns:
        All of `data` and nothing where there is nothing to gain.
    """
    if len(data) < LEAST_FILE_BYTES:
        return bytes(data), {}
    try:
        found = list(_payloads(data))
    except (_UnusualError, IndexError):
        return bytes(data), {}
    if not found:
        return bytes(data), {}
    (graph,) = {item.graph for item in found}
    word = secrets.token_hex(16)
    names = [f"{word}/{place}" for place in range(len(found))]
    pieces: list[bytes] = []
    at = graph.content
    for item, name in zip(found, names, strict=True):
        rest = data[item.tensor.content : item.raw.begin] + data[item.raw.end : item.tensor.end]
        pieces += (data[at : item.tensor.begin], _tensor(rest, name))
        at = item.tensor.end
    pieces.append(data[at : graph.end])
    small = data[: graph.begin] + _delimited(_GRAPH, b"".join(pieces)) + data[graph.end :]
    arrays = _copies(data, [(item.raw.content, item.raw.end) for item in found])
    return small, dict(zip(names, arrays, strict=True))


@dataclass(frozen=True)
class _Payload:
    graph: _Field
    tensor: _Field
    raw: _Field


def _payloads(data: bytes | mmap) -> Iterator[_Payload]:
    graphs = [part for part in _fields(data, 0, len(data)) if part.number == _GRAPH]
    if len(graphs) != 1 or graphs[0].kind != _LENGTH:
        raise _UnusualError
    for tensor in _fields(data, graphs[0].content, graphs[0].end):
        if tensor.number == _INITIALIZER and tensor.end - tensor.begin >= _LEAST_BYTES:
            if tensor.kind != _LENGTH:
                raise _UnusualError
            fields = list(_fields(data, tensor.content, tensor.end))
            raw = [part for part in fields if part.number == _RAW_DATA and part.kind == _LENGTH]
            elsewhere = any(part.number in (_EXTERNAL_DATA, _DATA_LOCATION) for part in fields)
            if len(raw) == 1 and not elsewhere and raw[0].end - raw[0].content >= _LEAST_BYTES:
                yield _Payload(graphs[0], tensor, raw[0])


def _fields(data: bytes | mmap, begin: int, end: int) -> Iterator[_Field]:
    """The fields of the message that lies between two places."""
    at = begin
    while at < end:
        tag, content = _number(data, at)
        kind = tag & 7
        if kind == _LENGTH:
            length, content = _number(data, content)
            after = content + length
        elif kind == _VARINT:
            _, after = _number(data, content)
        elif kind in _FIXED_BYTES:
            after = content + _FIXED_BYTES[kind]
        else:
            raise _UnusualError
        if after > end or tag < 8:
            raise _UnusualError
        yield _Field(tag >> 3, kind, at, content, after)
        at = after


def _number(data: bytes | mmap, at: int) -> tuple[int, int]:
    """The number at a place, seven bits a byte with the lowest first, and the place after it."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for place in range(1, 10):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise _UnusualError


def _tensor(rest: bytes, location: str) -> bytes:
    """A tensor whose data lies elsewhere, of what is left of one that had it inside."""
    entry = _delimited(_KEY, b"location") + _delimited(_VALUE, location.encode())
    told = _written(_DATA_LOCATION << 3 | _VARINT) + _written(_EXTERNAL)
    return _delimited(_INITIALIZER, rest + _delimited(_EXTERNAL_DATA, entry) + told)


def _delimited(number: int, content: bytes) -> bytes:
    return _written(number << 3 | _LENGTH) + _written(len(content)) + content


def _written(value: int) -> bytes:
    """The opposite of `_number`."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _copies(data: bytes | mmap, places: list[tuple[int, int]]) -> list[memoryview]:
    """Aligned copies of parts of a file, each of which is freed by itself."""
    source = np.frombuffer(data, np.uint8)
    found = [np.empty(end - begin, np.uint8) for begin, end in places]

    def copy(job: tuple[int, int]) -> None:
        place, at = job
        part = found[place][at : at + _PIECE_BYTES]
        begin = places[place][0] + at
        part[:] = source[begin : begin + part.size]

    jobs = [(n, at) for n, item in enumerate(found) for at in range(0, item.size, _PIECE_BYTES)]
    map_in_threads(copy, jobs)
    return [item.data.toreadonly() for item in found]
