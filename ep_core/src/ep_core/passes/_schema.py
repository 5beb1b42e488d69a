"""What the passes ask of operator schemas: versions, determinism, optional outputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import onnx.defs

from ep_core.graph import Node

__all__ = ["may_drop_output", "repeatable", "version_at"]

_DRAWING_RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_STANDARD_DOMAINS = frozenset({"", "ai.onnx.ml"})


def repeatable(node: Node) -> bool:
    """True if equal inputs surely give equal outputs: a standard operator that draws no numbers.

    Nodes with bodies count as not repeatable, since a body may draw numbers. Operators of other
    domains may keep state, so nothing is assumed of them.
    """
    return (
        node.domain in _STANDARD_DOMAINS
        and node.op_type not in _DRAWING_RANDOM
        and not node.bodies
        and _has_schema(node.op_type, node.domain)
    )


@cache
def _has_schema(op_type: str, domain: str) -> bool:
    return bool(onnx.defs.has(op_type, domain))


@cache
def _version(op_type: str, opset: int) -> int | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else int(schema.since_version)


def version_at(op_type: str, opsets: Mapping[str, int]) -> int | None:
    """The schema version of a standard operator in force, None where the opset has none."""
    opset = opsets.get("", 0)
    return _version(op_type, opset) if opset > 0 else None


@cache
def _optional_outputs(op_type: str, domain: str, since_version: int) -> frozenset[int]:
    try:
        schema = onnx.defs.get_schema(op_type, since_version, domain)
    except onnx.defs.SchemaError:
        return frozenset()
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return frozenset(i for i, output in enumerate(schema.outputs) if output.option == optional)


def may_drop_output(node: Node, index: int) -> bool:
    """True if the output may be left out without changing what the others are.

    Before version 14 the number of outputs put BatchNormalization into training mode.
    """
    if node.op_type == "BatchNormalization" and node.since_version < 14:
        return False
    return index in _optional_outputs(node.op_type, node.domain, node.since_version)
