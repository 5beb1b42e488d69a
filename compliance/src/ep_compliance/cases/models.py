"""Small models: one operator around given values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ep_compliance.cases.subjects import type_parameters
from ep_core.types import DataType

__all__ = ["finished", "one_node", "type_of_value"]

_OLDEST_IR_VERSION = 8
"""Initializers need not be inputs, and optional types exist."""


def one_node(
    schema: onnx.defs.OpSchema,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    outputs: int = 1,
    constants: Sequence[int] = (),
    symbolic: bool = False,
    types: Mapping[int, onnx.TypeProto] | None = None,
) -> tuple[onnx.ModelProto, list[str]]:
    """Return a model with one node of the schema's version, and the names of the inputs.

    Args:
        inputs: values; None leaves an input out, unless `types` says what it would be.
        constants: positions of inputs that become initializers.
        symbolic: declare shapes by names instead of lengths.
        types: declared types where values don't tell.
    """
    known = dict(types or {})
    names = [
        f"x{place}" if value is not None or place in known else ""
        for place, value in enumerate(inputs)
    ]
    infos, initializers = [], []
    for place, (name, value) in enumerate(zip(names, inputs, strict=True)):
        if not name:
            continue
        if place in constants:
            initializers.append(_initializer(value, name))
            continue
        kind = known.get(place) or type_of_value(value, name if symbolic else None)
        infos.append(helper.make_value_info(name, kind))
    results = [f"y{place}" for place in range(outputs)]
    domain = str(schema.domain)
    node = helper.make_node(schema.name, names, results, domain=domain, **attributes)
    opsets = {domain: int(schema.since_version)}
    graph = helper.make_graph([node], str(schema.name), infos, [], initializers)
    return finished(graph, results, opsets), names


def finished(
    graph: onnx.GraphProto, outputs: Sequence[str], opsets: Mapping[str, int]
) -> onnx.ModelProto:
    """A model of a graph without outputs: those named, with the types that inference finds."""
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    model = helper.make_model(graph, opset_imports=imports, producer_name="ep-compliance")
    model.ir_version = max(_OLDEST_IR_VERSION, helper.find_min_ir_version_for(imports, True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    known = {info.name: info for info in inferred.graph.output}
    for info in model.graph.output:
        info.CopyFrom(known[info.name])
        if not info.type.WhichOneof("value"):
            info.type.CopyFrom(_type_by_schema(model, info.name))
    return model


def _type_by_schema(model: onnx.ModelProto, name: str) -> onnx.TypeProto:
    """The type of an output that inference doesn't know: fixed, or tied to an input's."""
    node = next(node for node in model.graph.node if name in node.output)
    version = next(o.version for o in model.opset_import if o.domain == node.domain)
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    place = list(node.output).index(name)
    wanted = type_parameters(schema.outputs, len(node.output))[place]
    kinds = {info.name: info.type for info in model.graph.input}
    tied = zip(node.input, type_parameters(schema.inputs, len(node.input)), strict=True)
    for argument, parameter in tied:
        if parameter == wanted and argument in kinds:
            return _without_shape(kinds[argument])
    if node.op_type == "Cast":
        # Version 1 names the type by a string.
        target = DataType[helper.get_attribute_value(node.attribute[0]).decode()]
        return helper.make_tensor_type_proto(int(target), None)
    if wanted.startswith("tensor("):
        element = DataType[wanted[len("tensor(") : -1].upper()]
        return helper.make_tensor_type_proto(int(element), None)
    return onnx.TypeProto()


def _without_shape(kind: onnx.TypeProto) -> onnx.TypeProto:
    bare = onnx.TypeProto()
    bare.CopyFrom(kind)
    if bare.HasField("tensor_type"):
        bare.tensor_type.ClearField("shape")
    return bare


def type_of_value(value: Any, symbol: str | None = None) -> onnx.TypeProto:
    """The type of a host value; dimensions named after `symbol` where that is given."""
    if isinstance(value, list):
        element = type_of_value(value[0])
        return helper.make_sequence_type_proto(_without_shape(element))
    array = np.asarray(value)
    dims: list[Any] = list(array.shape)
    if symbol is not None:
        dims = [f"{symbol}_{axis}" for axis in range(array.ndim)]
    return helper.make_tensor_type_proto(int(DataType.from_numpy(array.dtype)), dims)


def _initializer(value: Any, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
