"""Host values as the messages that onnx's backend tests keep them in.

As `onnx.numpy_helper` does it, which takes no maps with keys of text and none that are empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["proto_of"]

Proto = onnx.TensorProto | onnx.SequenceProto | onnx.MapProto | onnx.OptionalProto


def proto_of(value: Any, name: str) -> Proto:
    """The message of a tensor, a sequence (list), a map (dict) or an empty optional (None)."""
    if value is None:
        return onnx.OptionalProto(name=name)
    if isinstance(value, Mapping):
        return _map(value, name)
    if isinstance(value, list | tuple):
        return _sequence(list(value), name)
    array = np.asarray(value)
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _sequence(values: list[Any], name: str = "") -> onnx.SequenceProto:
    kinds = onnx.SequenceProto
    proto = onnx.SequenceProto(name=name, elem_type=kinds.TENSOR)
    if values and isinstance(values[0], Mapping):
        proto.elem_type = kinds.MAP
        proto.map_values.extend(_map(value) for value in values)
    elif values and isinstance(values[0], list | tuple):
        proto.elem_type = kinds.SEQUENCE
        proto.sequence_values.extend(_sequence(list(value)) for value in values)
    else:
        proto.tensor_values.extend(proto_of(value, "") for value in values)
    return proto


def _map(value: Mapping[Any, Any], name: str = "") -> onnx.MapProto:
    keys = list(value)
    proto = onnx.MapProto(name=name)
    if keys and isinstance(keys[0], str):
        proto.key_type = onnx.TensorProto.STRING
        proto.string_keys.extend(key.encode() for key in keys)
    else:
        proto.key_type = onnx.TensorProto.INT64
        proto.keys.extend(int(key) for key in keys)
    proto.values.CopyFrom(_sequence(list(value.values())))
    return proto
