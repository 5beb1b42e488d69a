"""Nodes made ready for evaluation: defaults written out, types widened, what bodies capture.

Only rewrites protos; evaluates nothing.
"""

from __future__ import annotations

import onnx

from ep_compliance.oracle.corrections import defaults_of

__all__ = ["captured", "widened_node", "with_defaults"]

_TYPE_ATTRIBUTES = ("output_datatype", "output_dtype", "softmax_precision", "stash_type")
"""Attributes that name the type of a computation or of a float output."""

_IMPLIED = {("RoiAlign", 10): {"coordinate_transformation_mode": "output_half_pixel"}}
"""What an old version means without an attribute that only later ones have."""

_RENAMED = {b"bilinear": b"linear", b"bicubic": b"cubic"}
"""Interpolations of GridSample before version 20."""


def with_defaults(node: onnx.NodeProto, version: int, domain: str) -> onnx.NodeProto:
    """The node with its version's defaults written out; implementations have the newest one's."""
    full = onnx.NodeProto()
    full.CopyFrom(node)
    given = {attribute.name for attribute in node.attribute}
    full.attribute.extend(
        default
        for default in defaults_of(node.op_type, version, domain)
        if default.name not in given
    )
    for name, value in _IMPLIED.get((node.op_type, version), {}).items():
        full.attribute.append(onnx.helper.make_attribute(name, value))
    for attribute in full.attribute:
        if node.op_type == "GridSample" and attribute.name == "mode":
            attribute.s = _RENAMED.get(attribute.s, attribute.s)
    return full


def widened_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """The node with attributes that name float types changed to double."""
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    for attribute in wide.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i:
            attribute.i = onnx.TensorProto.DOUBLE
    return wide


def captured(node: onnx.NodeProto) -> set[str]:
    """Every name that the bodies of a node read; the evaluator ignores what isn't needed."""
    names: set[str] = set()
    for attribute in node.attribute:
        for body in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            names.update(info.name for info in body.output)
            for inner in body.node:
                names.update(inner.input)
                names |= captured(inner)
    return names
