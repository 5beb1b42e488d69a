"""Operator schemas: which version is in force, and whether a node obeys it.

The rules come from `onnx.defs`, custom domains included where a plugin has registered schemas.
Operators of other domains have none and pass through.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ep_core.errors import InvalidModelError, NotSupportedError
from ep_core.graph import AttributeValue, Graph, Node
from ep_core.loading.limits import quoted, suggestion
from ep_core.loading.tensors import data_type
from ep_core.types import (
    DataType,
    MapType,
    OpSet,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
)

__all__ = ["SchemaRules", "attribute_kind", "check_node", "check_opset", "schema_rules"]

_KINDS: Any = onnx.AttributeProto
_VALUE_TYPES = (TensorType, SparseTensorType, SequenceType, OptionalType, MapType)
_SCALARS: dict[int, type | tuple[type, ...]] = {
    _KINDS.FLOAT: float,
    _KINDS.INT: int,
    _KINDS.STRING: (str, bytes),
    _KINDS.TENSOR: np.ndarray,
    _KINDS.GRAPH: Graph,
    _KINDS.SPARSE_TENSOR: np.ndarray,
    _KINDS.TYPE_PROTO: _VALUE_TYPES,
}
_LISTS: dict[int, type | tuple[type, ...]] = {
    _KINDS.FLOATS: float,
    _KINDS.INTS: int,
    _KINDS.STRINGS: (str, bytes),
    _KINDS.TENSORS: np.ndarray,
    _KINDS.GRAPHS: Graph,
    _KINDS.TYPE_PROTOS: _VALUE_TYPES,
}
# Attributes of standard operators that hold the number of an element type.
_TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_dtype", "precision", "softmax_precision", "stash_type"}
)
_COUNT = (1, 2**31 - 1)
_RANGES = {
    "axis": (-64, 63),
    "axes": (-64, 63),
    "batch_dims": (0, 63),
    "blocksize": _COUNT,
    "dilations": _COUNT,
    "group": _COUNT,
    "kernel_shape": _COUNT,
    "strides": _COUNT,
}
_TERM = r"[A-Za-z\s.]*"
_EQUATION = re.compile(rf"{_TERM}(?:,{_TERM})*(?:->{_TERM})?")
# Graph optimisers write these into the default domain, and ONNX Runtime takes them: an operator
# before the version that it came with, and one that never became standard.
_EARLY_OPERATORS = {"LayerNormalization": 17}
_TOLERATED_OPERATORS = frozenset({"SimplifiedLayerNormalization"})


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """The part of an `onnx.defs.OpSchema` that can be checked on a node alone.

    `attributes` maps to the number of the attribute's type and whether it is required;
    `required_inputs` are the positions that may not be left out; `propagates_data` says that
    onnx can follow the contents of small integer tensors through the operator.
    """

    since_version: int
    deprecated: bool
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    required_inputs: tuple[int, ...]
    attributes: Mapping[str, tuple[int, bool]]
    propagates_data: bool


@functools.lru_cache(maxsize=4096)
def _registered(op_type: str, version: int, domain: str) -> SchemaRules:
    schema = onnx.defs.get_schema(op_type, version, domain)
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return SchemaRules(
        since_version=schema.since_version,
        deprecated=schema.deprecated,
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        required_inputs=tuple(i for i, p in enumerate(schema.inputs) if p.option == single),
        attributes={
            name: (_number(attribute.type), attribute.required)
            for name, attribute in schema.attributes.items()
        },
        propagates_data=schema.has_data_propagation_function,
    )


def _number(kind: Any) -> int:
    return int(kind.value)


@functools.cache
def _newest_by_domain() -> Mapping[str, int]:
    """The newest version of each domain that onnx itself defines."""
    found = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": onnx.defs.onnx_ml_opset_version()}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain.startswith("ai.onnx."):
            found[schema.domain] = max(found.get(schema.domain, 1), schema.since_version)
    return found


def check_opset(domain: str, version: int) -> None:
    """Raise where a model imports a version that can't be or that onnx doesn't know yet."""
    if not 1 <= version < 2**31:
        raise InvalidModelError(
            f"The model imports domain {quoted(domain)} in an impossible version",
            expected="1 or more, in 32 bits",
            got=version,
        )
    newest = _newest_by_domain().get(domain)
    if newest is not None and version > newest:
        raise NotSupportedError(
            f"The model needs opset {version} of domain {quoted(domain or 'ai.onnx')}",
            expected=f"at most {newest}, the newest that onnx {onnx.__version__} knows",
            fix="Upgrade the onnx package, or export the model with an older opset.",
        )


def schema_rules(op_type: str, domain: str, opsets: OpSet) -> SchemaRules | None:
    """Return the rules in force, None for an operator without a registered schema.

    Raises:
        InvalidModelError: the domain isn't imported, or is onnx's own and lacks the operator.
    """
    version = opsets.get(domain)
    if version is None:
        raise InvalidModelError(
            f"Operator {quoted(op_type)} belongs to domain {quoted(domain or 'ai.onnx')}, "
            "which the model doesn't import",
            expected="one of " + ", ".join(quoted(known or "ai.onnx") for known in opsets),
            fix="Add the domain to the model's opset_import.",
        )
    if domain == "":
        version = max(version, _EARLY_OPERATORS.get(op_type, 1))
    try:
        return _registered(op_type, version, domain)
    except onnx.defs.SchemaError:
        if domain not in _newest_by_domain():
            return None
    if domain == "" and op_type in _TOLERATED_OPERATORS:
        return None
    raise _unknown_operator(op_type, domain, version)


def attribute_kind(node: Node, name: str) -> int | None:
    """The number of an attribute's type by the node's schema, None where that says nothing."""
    try:
        rules = _registered(node.op_type, node.since_version, node.domain)
    except onnx.defs.SchemaError:
        return None
    kind, _ = rules.attributes.get(name, (None, False))
    return kind


def _unknown_operator(op_type: str, domain: str, version: int) -> InvalidModelError:
    history = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain]
    versions = [s.since_version for s in history if s.name == op_type]
    place = f"opset {version} of {domain or 'ai.onnx'}"
    if versions:
        return InvalidModelError(
            f"Operator {op_type} doesn't exist in {place}",
            expected=f"opset {min(versions)} or newer",
            fix="Correct the model's opset_import.",
        )
    names = {s.name for s in history if s.since_version <= version}
    return InvalidModelError(
        f"Operator {quoted(op_type)} doesn't exist in {place}", fix=suggestion(op_type, names)
    )


def check_node(node: Node, rules: SchemaRules) -> None:
    """Raise InvalidModelError where the node's arity or attributes break its schema."""
    what = f"Node {quoted(node.name)} ({node.key})"
    if rules.deprecated:
        raise InvalidModelError(
            f"{what} is deprecated since opset {rules.since_version} of {node.domain or 'ai.onnx'}",
            fix=f"Export with an opset below {rules.since_version}, or with the operator that "
            "replaced it.",
        )
    _check_arity(what, "inputs", node.inputs, rules.inputs)
    _check_arity(what, "outputs", node.outputs, rules.outputs)
    for position in rules.required_inputs:
        if position < len(node.inputs) and not node.inputs[position]:
            raise InvalidModelError(f"{what} leaves out input {position}, which is required")
    for name, value in node.attributes.items():
        # Names with two underscores are private notes of the tool that wrote the model.
        if name not in rules.attributes:
            if name.startswith("__"):
                continue
            raise InvalidModelError(
                f"{what} has no attribute {quoted(name)}",
                fix=suggestion(name, rules.attributes)
                or f"Known: {', '.join(sorted(rules.attributes)) or 'none'}.",
            )
        _check_attribute(what, name, value, rules.attributes[name][0])
        if name in _TYPE_ATTRIBUTES and (value != 0 or name == "to"):
            _check_element_type(value, f"Attribute {name!r} of {what}")
    for name, (_, required) in rules.attributes.items():
        if required and name not in node.attributes:
            raise InvalidModelError(f"{what} lacks the required attribute {name!r}")
    if not node.domain:
        _check_bounds(what, node)


def _check_element_type(value: int | str, what: str) -> None:
    """Cast-1 to Cast-5 name the type, everything later has its number."""
    if not isinstance(value, str):
        data_type(value, what)
    elif value.upper() not in DataType.__members__:
        raise InvalidModelError(
            f"{what} has an undefined element type",
            got=repr(value),
            fix=suggestion(value.upper(), DataType.__members__),
        )


def _check_bounds(what: str, node: Node) -> None:
    """Hold attributes of standard operators to what every model keeps to, and schemas don't say.

    onnx's shape inference counts on these and crashes or hangs without them.
    """
    for name, (least, most) in _RANGES.items():
        value = node.attributes.get(name, ())
        for item in value if isinstance(value, tuple) else (value,):
            if not least <= item <= most:
                raise InvalidModelError(
                    f"Attribute {name!r} of {what} is out of range",
                    expected=f"{least} to {most}",
                    got=item,
                )
    parts = node.attributes.get("num_outputs")
    if node.op_type == "Split" and parts is not None and parts != len(node.outputs):
        raise InvalidModelError(
            f"{what} has a wrong num_outputs", expected=len(node.outputs), got=parts
        )
    if node.op_type == "Einsum" and not _EQUATION.fullmatch(str(node.attributes["equation"])):
        raise InvalidModelError(
            f"{what} has a malformed equation",
            expected="terms of letters and '...', as in 'ij,jk->ik'",
            got=quoted(node.attributes["equation"]),
        )


def _check_arity(what: str, side: str, names: tuple[str, ...], bounds: tuple[int, int]) -> None:
    least, most = bounds
    if not least <= len(names) <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        if most >= 2**31 - 1:
            expected = f"at least {least}"
        raise InvalidModelError(
            f"{what} has a wrong number of {side}", expected=expected, got=len(names)
        )


def _check_attribute(what: str, name: str, value: AttributeValue, kind: int) -> None:
    if kind in _LISTS:
        fits = isinstance(value, tuple) and all(isinstance(v, _LISTS[kind]) for v in value)
    else:
        fits = isinstance(value, _SCALARS[kind])
    if not fits:
        raise InvalidModelError(
            f"Attribute {name!r} of {what} has a wrong type",
            expected=_KINDS.AttributeType.Name(kind),
            got=type(value).__name__,
        )
