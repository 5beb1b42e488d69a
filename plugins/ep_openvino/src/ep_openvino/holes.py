"""Cases in which OpenVINO gives another answer than ONNX asks for, recognised by the node.

Seen with OpenVINO 2026.4 on a CPU, with the compliance kit's cases. What can't be told by
attributes, types or shapes isn't here: it is waived, or the certificate leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ep_core.graph import Graph, Node
from ep_core.types import DataType, TensorType
from ep_openvino.microsoft_holes import microsoft_hole
from ep_openvino.operator_holes import RULES
from ep_openvino.whole_numbers import operators

__all__ = ["hole"]


def hole(graph: Graph, node: Node) -> str:
    """Why OpenVINO would answer wrongly, or nothing."""
    if node.domain:
        return _empty(graph, node) or microsoft_hole(graph, node)
    rule = RULES.get(node.op_type)
    return (
        _empty(graph, node)
        or _REFUSED.get(node.op_type, "")
        or _inexact(graph, node)
        or (rule(graph, node) if rule else "")
    )


_REFUSED: Mapping[str, str] = {
    "BitShift": "OpenVINO shifts through 32-bit floats",
    "DFT": "OpenVINO's DFT is off by up to 1e-5",
    "DynamicQuantizeLinear": "OpenVINO rounds exact halves otherwise, as a saturated Tanh has them",
    "Shrink": "OpenVINO's Shrink rounds integers otherwise, and makes NaN of infinity",
    "SimplifiedLayerNormalization": "OpenVINO's is off by up to 5e-6 of the value",
    "ThresholdedRelu": "OpenVINO's ThresholdedRelu makes NaN of infinity",
}
"""Operators that are never right to the last digits that a kernel should have."""


def _empty(graph: Graph, node: Node) -> str:
    """Reductions of nothing give the wrong limit, and a gathering of nothing kills the process."""
    # What a Resize is told beside its data may be left out as an empty tensor.
    inputs = node.inputs[:1] if node.op_type == "Resize" else node.inputs
    for name in (*inputs, *node.outputs):
        kind = graph.type_of(name) if name else None
        # Empty constants are lists of axes and the like.
        is_constant = graph.constant(name) is not None
        if isinstance(kind, TensorType) and 0 in (kind.shape or ()) and not is_constant:
            return f"{name!r} has no elements, which OpenVINO gets wrong or crashes on"
    return ""


_WRAPPING = operators("Abs Add Div Einsum Mod Mul Neg Pow PRelu Sub Sum")
_COMPARING = operators(
    "Abs Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod PRelu Relu Sign"
)
_IN_FLOATS = operators(
    "Div Einsum Equal Gemm Greater GreaterOrEqual Less LessOrEqual MatMul Mod PRelu Pow "
    "QuantizeLinear ReduceLogSum ReduceLogSumExp Relu ReverseSequence"
)
_BYTES = (DataType.INT8, DataType.UINT8)
_WIDE = (DataType.INT32, DataType.UINT32)


def _inexact(graph: Graph, node: Node) -> str:
    """Integers that OpenVINO computes by other rules than ONNX."""
    kind = graph.type_of(node.inputs[0]) if node.inputs and node.inputs[0] else None
    if not isinstance(kind, TensorType):
        return ""
    if kind.dtype in _BYTES and node.op_type in _WRAPPING:
        return f"arithmetic of {kind.dtype.text} saturates in OpenVINO where it should wrap around"
    if kind.dtype is DataType.UINT32 and node.op_type in _COMPARING:
        return "uint32 is signed in OpenVINO's arithmetic"
    if kind.dtype in _WIDE and node.op_type in _IN_FLOATS:
        return f"{kind.dtype.text} passes through 32-bit floats in OpenVINO's {node.op_type}"
    return ""
