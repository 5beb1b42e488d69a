"""Shape and type inference by onnx, and what of its result, and of the model's claims, to believe.

Every static dimension in `Graph.values` follows from initializers and the main graph's inputs,
which are checked when they are fed. What the model merely claims about other values (value_info,
types of outputs and of body inputs) is taken down to element type and rank, because a wrong
length there would become a wrong buffer size. `Graph.outputs` keep the claims: those of the main
graph for the reader, those of bodies for what a loop without rounds gives.
"""

from __future__ import annotations

import itertools
import uuid
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

import onnx

from ep_core.errors import EpError, InvalidModelError, OptionError, did_you_mean
from ep_core.graph import Graph, Node, ValueInfo
from ep_core.loading.convert import is_constant, value_type
from ep_core.loading.export import tensor_proto, value_proto
from ep_core.loading.limits import quoted
from ep_core.loading.schemas import schema_rules
from ep_core.loading.scopes import bodies
from ep_core.types import (
    DataType,
    Dim,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)

__all__ = ["fix_dimensions", "infer_types"]

_Scope = tuple[Graph, Mapping[str, onnx.ValueInfoProto]]

_GENERATED = "unk__"  # prefix of the symbols that onnx makes up
_ALIAS = f"{uuid.uuid4().hex}_"  # what no model can have in its names
_ROUNDS = 3
_SHORT = 64
_INDEX_TYPES = (DataType.INT32, DataType.INT64)  # what shapes are computed in


def fix_dimensions(graph: Graph, lengths: Mapping[str, int]) -> Graph:
    """Return the graph with open dimensions of its inputs, and of its outputs, set to `lengths`.

    Args:
        lengths: by symbolic name. A dimension of an input that has none is called after input and
            axis, such as `x.2`.

    Raises:
        OptionError: a name that no input has, or an impossible length.
    """
    names: set[str] = set()

    def fix(value: ValueInfo) -> ValueInfo:
        axes = itertools.count()

        def fixed(dim: Dim) -> Dim:
            place = f"{value.name}.{next(axes)}"
            if isinstance(dim, int):
                return dim
            # Some exporters write "?" for every length that they don't know.
            name = place if dim is None or dim == "?" else dim
            names.add(name)
            return lengths.get(name, dim)

        return replace(value, type=_map_dims(value.type, fixed))

    inputs = tuple(map(fix, graph.inputs))
    for name, length in lengths.items():
        if name not in names:
            raise OptionError(
                f"No input has an open dimension {quoted(name)}", fix=did_you_mean(name, names)
            )
        if not isinstance(length, int) or length < 0:
            raise OptionError(
                f"The dimension {quoted(name)} can't have this length",
                expected="an int, 0 or more",
                got=repr(length),
            )
    outputs = tuple(map(fix, graph.outputs))
    values = {**graph.values, **{value.name: value for value in (*outputs, *inputs)}}
    return graph.replace(inputs=inputs, outputs=outputs, values=values)


def _symbols(graph: Graph) -> set[str]:
    """Names of dimensions of the graph's inputs."""
    found: set[Dim] = set()
    for value in graph.inputs:
        _map_dims(value.type, lambda dim: found.add(dim))
    return {dim for dim in found if isinstance(dim, str)}


def infer_types(graph: Graph, model: onnx.ModelProto) -> Graph:
    """Return the graph with the type of every value that can be told.

    Args:
        graph: converted from `model` and valid.
        model: what is left of the model; it is used up.

    Raises:
        InvalidModelError: an output is declared with another element type than it has.
    """
    _prepare(graph, model)
    inferred = _run(model, data_prop=False)
    for _ in range(_ROUNDS):
        if _state_ranks(graph, inferred.graph, ()):
            inferred = _run(inferred, data_prop=False)
    inferred = _follow_contents(graph, inferred)
    return _with_types(graph, inferred.graph, ChainMap())


def _run(model: onnx.ModelProto, *, data_prop: bool) -> onnx.ModelProto:
    import onnx.shape_inference

    try:
        inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
    except Exception:  # noqa: BLE001 - the inference throws whatever C++ throws
        # Running doesn't need it: types then stay as far as they are known.
        return model
    return inferred


# ---------------------------------------------------------------- the way into inference


def _prepare(graph: Graph, model: onnx.ModelProto) -> None:
    model.ir_version = max(model.ir_version, 4)  # initializers needn't be inputs
    del model.training_info[:]
    proto = model.graph
    if graph.overridable:
        # onnx would take a default that a feed may replace for a constant.
        constants = [item for item in proto.initializer if item.name not in graph.overridable]
        del proto.initializer[:]
        proto.initializer.extend(constants)
    _drop_claims(graph, proto, graph.inputs)


def _drop_claims(graph: Graph, proto: onnx.GraphProto, inputs: tuple[ValueInfo, ...]) -> None:
    del proto.input[:]
    proto.input.extend(value_proto(value) for value in inputs)
    for output in proto.output:
        output.ClearField("type")
    for sparse in proto.sparse_initializer:
        dense = proto.initializer.add(name=sparse.values.name, dims=sparse.dims)
        dense.data_type = sparse.values.data_type
        dense.data_location = onnx.TensorProto.EXTERNAL
    del proto.sparse_initializer[:]
    del proto.value_info[:]
    for node in graph.nodes:
        rules = schema_rules(node.op_type, node.domain, graph.opsets)
        if rules is None or rules.since_version > graph.opsets[node.domain]:
            proto.value_info.extend(
                value_proto(_claim(graph.values[name]))
                for name in node.outputs
                if name in graph.values
            )
    for node, node_proto in _pairs(graph, proto):
        for _, body, body_proto in _body_pairs(node, node_proto):
            _drop_claims(body, body_proto, tuple(map(_claim, body.inputs)))
            _lend_constants(graph, body, body_proto)


def _lend_constants(graph: Graph, body: Graph, proto: onnx.GraphProto) -> None:
    """Give a body the axes and shapes that stand outside of it, where onnx doesn't read them."""
    for name in set(body.captures).intersection(graph.initializers).difference(graph.overridable):
        constant = graph.initializers[name]
        if constant.dtype in _INDEX_TYPES and _surely_small(constant.type):
            proto.initializer.append(tensor_proto(constant.numpy(), name))


def _pairs(graph: Graph, proto: onnx.GraphProto) -> Iterator[tuple[Node, onnx.NodeProto]]:
    protos = (item for item in proto.node if not is_constant(item))
    return zip(graph.nodes, protos, strict=True)


def _body_pairs(node: Node, proto: onnx.NodeProto) -> Iterator[tuple[str, Graph, onnx.GraphProto]]:
    """The node's bodies with their protos, under the attribute's name."""
    for attribute in proto.attribute if node.bodies else ():
        value = node.attributes[attribute.name]
        if isinstance(value, Graph):
            yield attribute.name, value, attribute.g
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            for body, body_proto in zip(value, attribute.graphs, strict=True):
                yield attribute.name, body, body_proto


# ---------------------------------------------------------------- contents of small tensors


def _state_ranks(graph: Graph, proto: onnx.GraphProto, outer: tuple[_Scope, ...]) -> bool:
    """State ranks that onnx leaves open: of what Reshape gives, by the length of its shape."""
    scopes = (_scope(graph, proto), *outer)
    found = False
    for node, node_proto in _pairs(graph, proto):
        if (node.domain, node.op_type) == ("", "Reshape") and len(node.inputs) == 2:
            name = node.outputs[0]
            rank, result = _short_length(_type_in(scopes, node.inputs[1])), _type_in(scopes, name)
            if rank is not None and isinstance(result, TensorType) and result.shape is None:
                ranked = ValueInfo(name, TensorType(result.dtype, (None,) * rank))
                scopes[0][1][name].CopyFrom(value_proto(ranked))
                found = True
        for _, body, body_proto in _body_pairs(node, node_proto):
            found |= _state_ranks(body, body_proto, scopes)
    return found


def _follow_contents(graph: Graph, model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer further types from the contents of small integer tensors, if the graph computes any.

    onnx represents a vector of n unknown numbers by n objects, however large n is and whether or
    not anybody asks for them. Therefore operators that propagate data get another name for each
    input that isn't surely small, declared without its length. Their own types are known from the
    inference without propagation, and stay. What turns out small is followed in the next round.
    """
    hidden = -1
    for attempt in range(_ROUNDS):
        aliases: list[onnx.ValueInfoProto] = []
        prefix = f"{_ALIAS}{attempt}_"
        useful = _hide_vectors(graph, model.graph, (), aliases, prefix)
        if not useful or len(aliases) == hidden:
            break
        hidden = len(aliases)
        model.graph.value_info.extend(aliases)
        _forget_symbols(model.graph, _symbols(graph))
        model = _run(model, data_prop=True)
        if not hidden:
            break
    return model


def _forget_symbols(proto: onnx.GraphProto, known: Collection[str]) -> None:
    """Clear dimensions whose names onnx made up; it would keep them where it now knows better."""
    for value in (*proto.value_info, *proto.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param") and dim.dim_param not in known:
                dim.ClearField("dim_param")
    for node in proto.node:
        for body in bodies(node):
            _forget_symbols(body, known)


def _hide_vectors(
    graph: Graph,
    proto: onnx.GraphProto,
    outer: tuple[_Scope, ...],
    aliases: list[onnx.ValueInfoProto],
    prefix: str,
) -> bool:
    scopes = (_scope(graph, proto), *outer)
    useful = False
    for node, node_proto in _pairs(graph, proto):
        rules = schema_rules(node.op_type, node.domain, graph.opsets)
        if rules is not None and rules.propagates_data:
            result = _type_in(scopes, node.outputs[0])
            useful |= isinstance(result, TensorType) and result.dtype in _INDEX_TYPES
            for position, name in enumerate(node.inputs):
                kind = _type_in(scopes, name)
                # onnx reads initializers as they are.
                if not name or name in graph.initializers or _surely_small(kind):
                    node_proto.input[position] = name
                else:
                    alias = f"{prefix}{len(aliases)}"
                    aliases.append(value_proto(_claim(ValueInfo(alias, kind))))
                    node_proto.input[position] = alias
        for _, body, body_proto in _body_pairs(node, node_proto):
            useful |= _hide_vectors(body, body_proto, scopes, aliases, prefix)
    return useful


def _scope(graph: Graph, proto: onnx.GraphProto) -> _Scope:
    stated = (*proto.value_info, *proto.output, *proto.input)
    return graph, {value.name: value for value in stated}


def _type_in(scopes: tuple[_Scope, ...], name: str) -> ValueType | None:
    for graph, stated in scopes:
        if name in graph.initializers:
            return graph.initializers[name].type
        if name in stated:
            return _result(stated[name])
    return None


def _surely_small(kind: ValueType | None) -> bool:
    if not isinstance(kind, TensorType) or kind.shape is None:
        return False
    return len(kind.shape) != 1 or _short_length(kind) is not None


def _short_length(kind: ValueType | None) -> int | None:
    """The length of a vector that is known to be short, else None."""
    if not isinstance(kind, TensorType) or kind.shape is None or len(kind.shape) != 1:
        return None
    length = kind.shape[0]
    return length if isinstance(length, int) and length <= _SHORT else None


# ---------------------------------------------------------------- the way back


def _with_types(graph: Graph, proto: onnx.GraphProto, outer: ChainMap[str, ValueInfo]) -> Graph:
    stated = (*proto.value_info, *proto.output, *proto.input)
    found: dict[str, ValueType | None] = {value.name: _result(value) for value in stated}
    found.update({name: item.type for name, item in graph.initializers.items()})
    values: dict[str, ValueInfo] = {}
    for name in (*graph.initializers, *graph.producers, *graph.input_names):
        declared = graph.values.get(name, ValueInfo(name))
        values[name] = ValueInfo(name, found.get(name) or _claim(declared).type, declared.doc)
    visible = outer.new_child(values)
    nodes = tuple(_typed_node(node, item, visible) for node, item in _pairs(graph, proto))
    captures = {name: visible[name] for name in graph.captures}
    inferred = (replace(value, type=visible[value.name].type) for value in graph.outputs)
    outputs = tuple(map(_merged, graph.outputs, inferred))
    return graph.replace(nodes=nodes, values={**captures, **values}, outputs=outputs)


def _typed_node(node: Node, proto: onnx.NodeProto, visible: ChainMap[str, ValueInfo]) -> Node:
    if not node.bodies:
        return node
    attributes = dict(node.attributes)
    typed: dict[str, list[Graph]] = {}
    for name, body, body_proto in _body_pairs(node, proto):
        typed.setdefault(name, []).append(_with_types(body, body_proto, visible))
    for name, graphs in typed.items():
        attributes[name] = tuple(graphs) if isinstance(attributes[name], tuple) else graphs[0]
    return node.replace(attributes=attributes)


def _result(proto: onnx.ValueInfoProto) -> ValueType | None:
    """The type that inference wrote; it leaves gaps where it gave up half-way."""
    try:
        return value_type(proto.type, "an inferred type")
    except EpError:
        return None


def _claim(value: ValueInfo) -> ValueInfo:
    """What the model says of a value, without the lengths."""
    return replace(value, type=_map_dims(value.type, lambda _: None))


def _map_dims(kind: ValueType | None, change: Callable[[Dim], Dim]) -> ValueType | None:
    if isinstance(kind, TensorType | SparseTensorType):
        shape = None if kind.shape is None else tuple(map(change, kind.shape))
        return replace(kind, shape=shape)
    if isinstance(kind, SequenceType | OptionalType):
        return replace(kind, element=_map_dims(kind.element, change))
    return kind


def _merged(declared: ValueInfo, inferred: ValueInfo) -> ValueInfo:
    """What is said of a graph's output; inference wins over the model's own words."""
    left, right = declared.type, inferred.type
    if left is None or right is None:
        return replace(declared, type=left or right)
    if isinstance(left, OptionalType) != isinstance(right, OptionalType):
        return inferred
    if str(left) != str(right) and "None" not in str(left) + str(right):
        raise InvalidModelError(
            f"Graph output {quoted(declared.name)} is declared with another type than it has",
            expected=f"{right}, which follows from the nodes",
            got=str(left),
        )
    if not isinstance(left, TensorType) or not isinstance(right, TensorType):
        return inferred
    if left.shape is None or right.shape is None:
        return replace(declared, type=right if left.shape is None else left)
    if len(left.shape) != len(right.shape):
        return inferred
    dims = tuple(map(_merged_dim, left.shape, right.shape))
    return replace(declared, type=TensorType(right.dtype, dims))


def _merged_dim(declared: Dim, inferred: Dim) -> Dim:
    if inferred is None or (isinstance(inferred, str) and inferred.startswith(_GENERATED)):
        return declared
    return inferred
