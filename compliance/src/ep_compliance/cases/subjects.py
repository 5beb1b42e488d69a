"""What a one-node model is about: operator, schema version, element types by type parameter."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import onnx

from ep_compliance.cases.case import Subject
from ep_compliance.cases.recorded.operators import OPERATORS
from ep_compliance.cases.signatures import ONNX_DOMAINS
from ep_core.types import DataType

__all__ = [
    "element_in",
    "element_type",
    "schemas_of",
    "subject_of",
    "type_parameters",
    "uninferred_outputs",
]


def subject_of(model: onnx.ModelProto, node: onnx.NodeProto) -> Subject | None:
    """The subject of a model's node; None for operators that onnx doesn't define.

    Types come from what the graph states of its values, so it serves one-node models, and others
    after inference.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in ONNX_DOMAINS or not onnx.defs.has(node.op_type, domain):
        return None
    versions = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    schema = onnx.defs.get_schema(node.op_type, versions[domain], domain)
    graph = model.graph
    types = {info.name: info.type for info in (*graph.input, *graph.output, *graph.value_info)}
    kinds = {name: element_type(kind) for name, kind in types.items()}
    kinds |= {t.name: DataType(t.data_type) for t in graph.initializer}
    found: dict[str, DataType] = {}
    for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for name, parameter in zip(names, type_parameters(formals, len(names)), strict=True):
            kind = kinds.get(name)
            if kind is not None:
                found.setdefault(parameter, kind)
    return Subject(domain, node.op_type, schema.since_version, found)


def uninferred_outputs(model: onnx.ModelProto) -> frozenset[int]:
    """Positions of a one-node model's outputs whose types onnx doesn't infer.

    None of an operator that onnx doesn't define counts as inferred, whatever schema a plugin has
    registered: another process may lack it.
    """
    node = model.graph.node[0]
    if node.domain not in ONNX_DOMAINS or (node.domain, node.op_type) in OPERATORS:
        return frozenset(range(len(node.output)))
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for info in bare.graph.output:
        info.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(bare)
    except Exception:  # noqa: BLE001 - it throws whatever C++ throws
        return frozenset(range(len(node.output)))
    known = {info.name for info in inferred.graph.output if info.type.WhichOneof("value")}
    return frozenset(place for place, name in enumerate(node.output) if name not in known)


def type_parameters(formals: Sequence[onnx.defs.OpSchema.FormalParameter], count: int) -> list[str]:
    """Type strings of `count` actual arguments; the last formal one repeats if it is variadic."""
    last = len(formals) - 1
    return [formals[min(index, last)].type_str for index in range(count)]


def element_type(kind: onnx.TypeProto) -> DataType | None:
    """The element type inside a tensor, sequence or optional; None where there is none."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        number = getattr(kind, which).elem_type
        return DataType(number) if number else None
    if which in ("sequence_type", "optional_type"):
        return element_type(getattr(kind, which).elem_type)
    if which == "map_type":
        return element_type(kind.map_type.value_type)
    return None


def schemas_of(domain: str, op_type: str) -> Sequence[onnx.defs.OpSchema]:
    """Every version of an operator of onnx's that isn't deprecated, oldest first."""
    return _schemas().get((domain, op_type), ())


@functools.cache
def _schemas() -> Mapping[tuple[str, str], Sequence[onnx.defs.OpSchema]]:
    found: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        # Plugins may have registered others, which would make the cases depend on them.
        if schema.domain in ONNX_DOMAINS and not schema.deprecated:
            found.setdefault((schema.domain, schema.name), []).append(schema)
    return {key: sorted(v, key=lambda s: int(s.since_version)) for key, v in found.items()}


def element_in(kind: str) -> DataType:
    """The element type in a type string such as `seq(tensor(float))`; that of a map's values."""
    inner = kind.rstrip(")").rsplit("(", 1)[-1].rsplit(", ", 1)[-1]
    return DataType[inner.upper()]
