"""The graph out again, as an ONNX model: for vendors' compilers and for saving.

The one place that writes protos. Everything here is pure; nothing is read from files except what
initializers map lazily.
"""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ep_core.errors import NotSupportedError, OptionError
from ep_core.graph import AttributeValue, Graph, Node, ValueInfo
from ep_core.loading.schemas import attribute_kind
from ep_core.types import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    Shape,
    SparseTensorType,
    TensorType,
    ValueType,
)

__all__ = ["export_model", "save_model", "tensor_proto", "type_proto", "value_proto"]

_KINDS: Any = onnx.AttributeProto
_PROTOBUF_LIMIT = 2**31 - 2**20  # 2 GiB less some room for everything that isn't a weight
_OLDEST_IR = 8
# IR versions in which element types came.
_TYPE_IR = {
    DataType.FLOAT8E4M3FN: 9,
    DataType.FLOAT8E4M3FNUZ: 9,
    DataType.FLOAT8E5M2: 9,
    DataType.FLOAT8E5M2FNUZ: 9,
    DataType.UINT4: 10,
    DataType.INT4: 10,
    DataType.FLOAT4E2M1: 11,
    DataType.FLOAT8E8M0: 12,
    DataType.UINT2: 13,
    DataType.INT2: 13,
    DataType.FLOAT6E2M3: 14,
    DataType.FLOAT6E3M2: 14,
}


def export_model(graph: Graph) -> onnx.ModelProto:
    """Return `graph` as a model of its own, with weights inside.

    Inputs and outputs keep their names. Values that a body takes from outside become inputs
    after its own. The IR version is the oldest that fits.

    Raises:
        NotSupportedError: the weights exceed the 2 GiB that protobuf can hold.
    """
    total = sum(_weights(graph))
    if total > _PROTOBUF_LIMIT:
        raise NotSupportedError(
            f"Graph {graph.name!r} can't become one model proto",
            expected=f"weights of at most {_PROTOBUF_LIMIT} bytes",
            got=f"{total} bytes",
            fix="Cut a smaller part of the graph.",
        )
    captured = (graph.values.get(name, ValueInfo(name)) for name in graph.captures)
    whole = graph.replace(inputs=(*graph.inputs, *captured))
    opsets = [onnx.helper.make_opsetid(domain, v) for domain, v in _opsets(graph).items()]
    model: onnx.ModelProto = onnx.helper.make_model(
        _graph_proto(whole), opset_imports=opsets, producer_name="ep-core"
    )
    needed = onnx.helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    newest_type = max((_TYPE_IR.get(dtype, 1) for dtype in _dtypes(graph)), default=1)
    model.ir_version = max(_OLDEST_IR, needed, newest_type)
    return model


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for body in node.bodies.values():
            yield from _all_nodes(body)


def _all_graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in _all_nodes(graph):
        yield from node.bodies.values()


def _weights(graph: Graph) -> Iterator[int]:
    for part in _all_graphs(graph):
        yield from (initializer.nbytes for initializer in part.initializers.values())
    for node in _all_nodes(graph):
        for value in node.attributes.values():
            if isinstance(value, np.ndarray):
                yield value.nbytes


def _dtypes(graph: Graph) -> Iterator[DataType]:
    for part in _all_graphs(graph):
        yield from (initializer.dtype for initializer in part.initializers.values())
        for value in (*part.inputs, *part.values.values()):
            if isinstance(value.type, TensorType):
                yield value.type.dtype


def _opsets(graph: Graph) -> dict[str, int]:
    """The graph's imports, and those of domains that passes brought in."""
    opsets = dict(graph.opsets)
    for node in _all_nodes(graph):
        opsets.setdefault(node.domain, node.since_version)
    return opsets


def save_model(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write a model to a file.

    Raises:
        OptionError: the file can't be written.
    """
    try:
        Path(path).write_bytes(model.SerializeToString())
    except (OSError, ValueError) as error:
        raise OptionError(f"The model can't be saved to {os.fspath(path)!r} ({error})") from error


# ---------------------------------------------------------------- graphs and nodes


def _graph_proto(graph: Graph) -> onnx.GraphProto:
    proto = onnx.GraphProto(name=graph.name or "graph", doc_string=graph.doc)
    proto.node.extend(map(_node_proto, graph.nodes))
    proto.initializer.extend(
        tensor_proto(item.numpy(), name) for name, item in graph.initializers.items()
    )
    proto.input.extend(map(value_proto, graph.inputs))
    proto.output.extend(map(value_proto, graph.outputs))
    stated = {*graph.input_names, *graph.output_names, *graph.initializers}
    produced = graph.producers
    proto.value_info.extend(
        value_proto(value)
        for name, value in graph.values.items()
        if name in produced and name not in stated and value.type is not None
    )
    return proto


def _node_proto(node: Node) -> onnx.NodeProto:
    proto = onnx.NodeProto(
        name=node.name,
        op_type=node.op_type,
        domain=node.domain,
        input=node.inputs,
        output=node.outputs,
    )
    for name, value in node.attributes.items():
        _set_attribute(proto.attribute.add(name=name), value, attribute_kind(node, name))
    return proto


def _set_attribute(proto: Any, value: AttributeValue, kind: int | None) -> None:
    """Write a value; `kind` is what the operator's schema says of it, if there is one."""
    if kind is None or kind not in _FIELDS:
        kind = _guess_kind(value)
    proto.type = kind
    field, encode, many = _FIELDS[kind]
    if many:
        getattr(proto, field).extend(map(encode, value))
    elif kind in (_KINDS.INT, _KINDS.FLOAT, _KINDS.STRING):
        setattr(proto, field, encode(value))
    else:
        getattr(proto, field).CopyFrom(encode(value))


def _guess_kind(value: AttributeValue) -> int:
    if isinstance(value, tuple):
        kinds = {_guess_kind(item) for item in value} or {int(_KINDS.INT)}
        if kinds == {_KINDS.INT, _KINDS.FLOAT}:
            return int(_KINDS.FLOATS)
        return _LIST_KINDS[kinds.pop()]
    for kind, types in _SCALAR_TYPES:
        if isinstance(value, types):
            return kind
    raise NotSupportedError(f"A value of type {type(value).__name__} can't be an attribute")


def _encoded(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


# ---------------------------------------------------------------- tensors and types


def tensor_proto(array: np.ndarray[Any, Any], name: str = "") -> onnx.TensorProto:
    """Return an array as a tensor; narrow integers are packed, strings encoded as UTF-8."""
    dtype = DataType.from_numpy(array.dtype)
    proto = onnx.TensorProto(name=name, dims=array.shape, data_type=dtype)
    if dtype is DataType.STRING:
        proto.string_data.extend(_encoded(item) for item in array.reshape(-1))
        return proto
    flat = np.ascontiguousarray(array, dtype.numpy).reshape(-1)
    proto.raw_data = flat.tobytes() if dtype.bits >= 8 else _packed(flat, dtype.bits)
    return proto


def _packed(flat: np.ndarray[Any, Any], bits: int) -> bytes:
    """Join elements of 2, 4 or 6 bits into bytes, the first element in the lowest bits."""
    if 8 % bits:
        stream = np.unpackbits(flat.view(np.uint8)[:, None], axis=1, bitorder="little")
        return np.packbits(stream[:, :bits], bitorder="little").tobytes()
    per_byte = 8 // bits
    codes = np.zeros(-(-flat.size // per_byte) * per_byte, np.uint8)
    codes[: flat.size] = flat.view(np.uint8) & ((1 << bits) - 1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    joined = np.bitwise_or.reduce(codes.reshape(-1, per_byte) << shifts, axis=1)
    return bytes(joined.astype(np.uint8))


def value_proto(value: ValueInfo) -> onnx.ValueInfoProto:
    """Return a named value; one of unknown type has no type in it."""
    proto = onnx.ValueInfoProto(name=value.name, doc_string=value.doc)
    if value.type is not None:
        proto.type.CopyFrom(type_proto(value.type))
    return proto


def type_proto(kind: ValueType | None) -> onnx.TypeProto:
    """Return a type; None gives the empty proto."""
    proto = onnx.TypeProto()
    if isinstance(kind, TensorType):
        proto.tensor_type.elem_type = kind.dtype
        _set_shape(proto.tensor_type, kind.shape)
    elif isinstance(kind, SparseTensorType):
        proto.sparse_tensor_type.elem_type = kind.dtype
        _set_shape(proto.sparse_tensor_type, kind.shape)
    elif isinstance(kind, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_proto(kind.element))
    elif isinstance(kind, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_proto(kind.element))
    elif isinstance(kind, MapType):
        proto.map_type.key_type = kind.key
        proto.map_type.value_type.CopyFrom(type_proto(kind.value))
    return proto


def _set_shape(proto: Any, shape: Shape | None) -> None:
    if shape is None:
        return
    proto.shape.SetInParent()
    for dim in shape:
        if isinstance(dim, int):
            proto.shape.dim.add(dim_value=dim)
        else:
            proto.shape.dim.add(dim_param=dim)


_SCALAR_TYPES: tuple[tuple[int, Any], ...] = (
    (_KINDS.INT, numbers.Integral),
    (_KINDS.FLOAT, numbers.Real),
    (_KINDS.STRING, str | bytes),
    (_KINDS.TENSOR, np.ndarray),
    (_KINDS.GRAPH, Graph),
    (_KINDS.TYPE_PROTO, ValueType),
)
_LIST_KINDS: Mapping[int, int] = {
    _KINDS.INT: _KINDS.INTS,
    _KINDS.FLOAT: _KINDS.FLOATS,
    _KINDS.STRING: _KINDS.STRINGS,
    _KINDS.TENSOR: _KINDS.TENSORS,
    _KINDS.GRAPH: _KINDS.GRAPHS,
    _KINDS.TYPE_PROTO: _KINDS.TYPE_PROTOS,
}
# By kind: the proto's field, what makes its content, and whether it is a list.
_FIELDS: Mapping[int, tuple[str, Callable[[Any], Any], bool]] = {
    _KINDS.INT: ("i", operator.index, False),
    _KINDS.FLOAT: ("f", float, False),
    _KINDS.STRING: ("s", _encoded, False),
    _KINDS.TENSOR: ("t", tensor_proto, False),
    _KINDS.GRAPH: ("g", _graph_proto, False),
    _KINDS.TYPE_PROTO: ("tp", type_proto, False),
    _KINDS.INTS: ("ints", operator.index, True),
    _KINDS.FLOATS: ("floats", float, True),
    _KINDS.STRINGS: ("strings", _encoded, True),
    _KINDS.TENSORS: ("tensors", tensor_proto, True),
    _KINDS.GRAPHS: ("graphs", _graph_proto, True),
    _KINDS.TYPE_PROTOS: ("type_protos", type_proto, True),
}
