"""Protos into the read-only graph: nodes, attributes, types, constants.

Checked here is what a single proto shows (types, sizes, UTF-8, duplicates that a mapping would
hide); how values relate is the business of `validate.py`, and types are inferred in `infer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from ep_core.errors import InvalidModelError, NotSupportedError
from ep_core.graph import AttributeValue, Graph, Initializer, Node, ValueInfo
from ep_core.loading.limits import LoadLimits, plain_domain, quoted, text
from ep_core.loading.schemas import check_node, schema_rules
from ep_core.loading.tensors import TensorReader, data_type
from ep_core.types import (
    MapType,
    OpSet,
    OptionalType,
    SequenceType,
    Shape,
    SparseTensorType,
    TensorType,
    ValueType,
)

__all__ = ["Converter", "is_constant", "value_type"]

_KINDS: Any = onnx.AttributeProto
_CONSTANT_DTYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def is_constant(proto: onnx.NodeProto) -> bool:
    """True for a `Constant` node, which becomes an initializer."""
    return proto.op_type == "Constant" and not plain_domain(proto.domain)


def value_type(proto: onnx.TypeProto, what: str) -> ValueType | None:
    """Return the type, None where the proto says nothing."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    if kind == "tensor_type":
        dtype = data_type(proto.tensor_type.elem_type, what)
        return TensorType(dtype, _shape(proto.tensor_type, what))
    if kind == "sequence_type":
        return SequenceType(value_type(proto.sequence_type.elem_type, what))
    if kind == "optional_type":
        return OptionalType(value_type(proto.optional_type.elem_type, what))
    if kind == "map_type":
        key = data_type(proto.map_type.key_type, what)
        return MapType(key, value_type(proto.map_type.value_type, what))
    if kind == "sparse_tensor_type":
        dtype = data_type(proto.sparse_tensor_type.elem_type, what)
        return SparseTensorType(dtype, _shape(proto.sparse_tensor_type, what))
    raise NotSupportedError(f"{what} has a type of kind {kind}, which nothing here handles")


def _shape(proto: Any, what: str) -> Shape | None:
    if not proto.HasField("shape"):
        return None
    dims: list[int | str | None] = []
    for dim in proto.shape.dim:
        kind = dim.WhichOneof("value")
        if kind == "dim_value":
            # Exporters write -1 for a length they don't know.
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)
        elif kind == "dim_param" and dim.dim_param:
            dims.append(text(dim.dim_param, f"A dimension of {what}"))
        else:
            dims.append(None)
    return tuple(dims)


class Converter:
    """Turns the graphs of one model into `Graph`s, and counts what they hold.

    Args:
        opsets: the model's imports.
        constant_initializers: initializers that are listed as inputs are constants all the same,
            and no inputs; so it was before IR version 4.
    """

    def __init__(
        self,
        opsets: OpSet,
        tensors: TensorReader,
        limits: LoadLimits,
        *,
        constant_initializers: bool,
    ) -> None:
        self._opsets = opsets
        self._tensors = tensors
        self._limits = limits
        self._constant_initializers = constant_initializers
        self._node_count = 0
        self._initializer_count = 0

    def convert(self, proto: onnx.GraphProto, depth: int = 0) -> Graph:
        """Return the graph; `values` holds what the model declares."""
        self._limits.check("max_nesting_depth", depth, "The nesting of graphs")
        initializers = self._initializers(proto)
        nodes = self._nodes(proto, initializers, depth)
        inputs = tuple(self._value(value, "input") for value in proto.input)
        outputs = tuple(self._value(value, "output") for value in proto.output)
        overridable = frozenset(v.name for v in inputs if v.name in initializers)
        if self._constant_initializers:
            inputs = tuple(value for value in inputs if value.name not in overridable)
            overridable = frozenset()
        declared = (self._value(value, "value") for value in proto.value_info)
        return Graph(
            name=text(proto.name, "The name of a graph"),
            inputs=inputs,
            outputs=outputs,
            nodes=nodes,
            initializers=initializers,
            opsets=self._opsets,
            values={value.name: value for value in (*declared, *outputs, *inputs)},
            overridable=overridable,
            doc=text(proto.doc_string, "The documentation of a graph"),
        )

    def _value(self, proto: onnx.ValueInfoProto, role: str) -> ValueInfo:
        name = text(proto.name, f"The name of an {role}")
        doc = text(proto.doc_string, f"The documentation of {quoted(name)}")
        return ValueInfo(name, value_type(proto.type, f"Graph {role} {quoted(name)}"), doc)

    # ------------------------------------------------------------ constants

    def _initializers(self, proto: onnx.GraphProto) -> dict[str, Initializer]:
        found: dict[str, Initializer] = {}
        for tensor in proto.initializer:
            name = text(tensor.name, "The name of an initializer")
            self._add(found, self._tensors.read(tensor, f"initializer {quoted(name)}", name))
        for sparse in proto.sparse_initializer:
            name = text(sparse.values.name, "The name of a sparse initializer")
            what = f"sparse initializer {quoted(name)}"
            self._add(found, self._tensors.read_sparse(sparse, what, name))
        return found

    def _add(self, found: dict[str, Initializer], initializer: Initializer) -> None:
        name = initializer.name
        if not name:
            raise InvalidModelError("An initializer has no name")
        if name in found:
            raise InvalidModelError(
                f"The name {quoted(name)} is defined twice, by initializers or Constant nodes",
                expected="every value to be defined once",
            )
        self._initializer_count += 1
        self._limits.check(
            "max_initializers", self._initializer_count, "The number of initializers"
        )
        found[name] = initializer

    def _constant(self, node: Node) -> Initializer:
        what = f"Constant {quoted(node.outputs[0])}"
        if len(node.attributes) != 1:
            raise InvalidModelError(
                f"{what} has no single value",
                expected="one attribute",
                got=", ".join(node.attributes) or "none",
            )
        ((key, value),) = node.attributes.items()
        if isinstance(value, np.ndarray):
            return Initializer.from_array(node.outputs[0], value)
        dtype = _CONSTANT_DTYPES.get(key)
        if dtype is None or (dtype is object and not _all_text(value)):
            raise InvalidModelError(f"{what} holds a wrong {quoted(key)}")
        return Initializer.from_array(node.outputs[0], np.array(value, dtype))

    # ------------------------------------------------------------ nodes

    def _nodes(
        self, proto: onnx.GraphProto, initializers: dict[str, Initializer], depth: int
    ) -> tuple[Node, ...]:
        self._node_count += len(proto.node)
        self._limits.check("max_nodes", self._node_count, "The number of nodes")
        nodes: list[Node] = []
        names = _UniqueNames()
        for index, item in enumerate(proto.node):
            node = self._node(item, index, names, depth)
            if not is_constant(item):
                nodes.append(node)
            elif node.outputs[0]:
                self._add(initializers, self._constant(node))
        return tuple(nodes)

    def _node(self, proto: onnx.NodeProto, index: int, names: _UniqueNames, depth: int) -> Node:
        op_type = text(proto.op_type, "The operator of a node")
        domain = plain_domain(text(proto.domain, "The domain of a node"))
        name = names.take(text(proto.name, "The name of a node") or f"{op_type}_{index}")
        rules = schema_rules(op_type, domain, self._opsets)
        attributes: dict[str, AttributeValue] = {}
        for attribute in proto.attribute:
            key = text(attribute.name, "The name of an attribute")
            if key in attributes:
                raise InvalidModelError(
                    f"Attribute {quoted(key)} of node {quoted(name)} is set twice"
                )
            attributes[key] = self._attribute(attribute, name, depth)
        node = Node(
            name=name,
            op_type=op_type,
            domain=domain,
            since_version=rules.since_version if rules is not None else self._opsets[domain],
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes=attributes,
        )
        if rules is not None:
            check_node(node, rules)
        return node

    def _attribute(self, proto: onnx.AttributeProto, node: str, depth: int) -> AttributeValue:
        if proto.ref_attr_name:
            raise InvalidModelError(
                f"Attribute {quoted(proto.name)} of node {quoted(node)} refers to an attribute "
                "of a function, outside of any function"
            )
        kind = proto.type or _guess_kind(proto)
        plain = _PLAIN_ATTRIBUTES.get(kind)
        if plain is not None:
            return plain(proto)
        what = f"attribute {quoted(proto.name)} of node {quoted(node)}"
        if kind == _KINDS.TENSOR:
            return self._tensors.read(proto.t, what).numpy()
        if kind == _KINDS.GRAPH:
            return self.convert(proto.g, depth + 1)
        if kind == _KINDS.SPARSE_TENSOR:
            return self._tensors.read_sparse(proto.sparse_tensor, what).numpy()
        if kind == _KINDS.TYPE_PROTO:
            return value_type(proto.tp, what)
        if kind == _KINDS.TENSORS:
            return tuple(self._tensors.read(tensor, what).numpy() for tensor in proto.tensors)
        if kind == _KINDS.GRAPHS:
            return tuple(self.convert(graph, depth + 1) for graph in proto.graphs)
        if kind == _KINDS.TYPE_PROTOS:
            return tuple(value_type(item, what) for item in proto.type_protos)
        if kind == _KINDS.SPARSE_TENSORS:
            items = proto.sparse_tensors
            return tuple(self._tensors.read_sparse(item, what).numpy() for item in items)
        raise InvalidModelError(f"The {what} has neither a type nor a value")


def _string(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


_PLAIN_ATTRIBUTES: Mapping[int, Callable[[onnx.AttributeProto], AttributeValue]] = {
    _KINDS.FLOAT: lambda proto: proto.f,
    _KINDS.INT: lambda proto: proto.i,
    _KINDS.STRING: lambda proto: _string(proto.s),
    _KINDS.FLOATS: lambda proto: tuple(proto.floats),
    _KINDS.INTS: lambda proto: tuple(proto.ints),
    _KINDS.STRINGS: lambda proto: tuple(_string(item) for item in proto.strings),
}


def _guess_kind(proto: onnx.AttributeProto) -> int:
    """The kind of an attribute from before IR version 2, which didn't state it."""
    for field, kind in (("f", "FLOAT"), ("i", "INT"), ("s", "STRING"), ("t", "TENSOR")):
        if proto.HasField(field):
            return int(getattr(_KINDS, kind))
    for field in ("floats", "ints", "strings"):
        if getattr(proto, field):
            return int(getattr(_KINDS, field.upper()))
    return 0


def _all_text(value: AttributeValue) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, str) for item in items)


class _UniqueNames:
    """Hands out each name once; a repeated one gets a number."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def take(self, name: str) -> str:
        if name not in self._taken:
            self._taken[name] = 0
            return name
        number = self._taken[name]
        candidate = name
        while candidate in self._taken:
            number += 1
            candidate = f"{name}_{number}"
        self._taken[name] = number
        self._taken[candidate] = 0
        return candidate
