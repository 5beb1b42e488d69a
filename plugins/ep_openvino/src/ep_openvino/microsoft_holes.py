"""Operators of com.microsoft, which optimised models have: those that OpenVINO gets right.

OpenVINO reads more of them than it computes as ONNX Runtime does. What isn't listed is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ep_core.graph import Graph, Node
from ep_core.types import TensorType
from ep_openvino.whole_numbers import operators

__all__ = ["microsoft_hole"]

_RIGHT = operators(
    "BiasAdd BiasGelu EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul "
    "GatherBlockQuantized GroupNorm MatMulIntegerToFloat MatMulNBits MultiHeadAttention "
    "QLinearReduceMean QLinearWhere QuickGelu SkipLayerNormalization "
    "SkipSimplifiedLayerNormalization"
)


def microsoft_hole(graph: Graph, node: Node) -> str:
    """Why OpenVINO would answer otherwise than ONNX Runtime, or nothing."""
    if node.op_type not in _RIGHT:
        return f"OpenVINO's {node.op_type} isn't ONNX Runtime's"
    rule = _RULES.get(node.op_type)
    return rule(graph, node) if rule else ""


def _fused_gemm(_: Graph, node: Node) -> str:
    activation = node.attributes.get("activation", "")
    if activation in ("LeakyRelu", "Relu"):
        return ""
    return f"OpenVINO doesn't apply activation {activation!r}"


def _fused_matmul(_: Graph, node: Node) -> str:
    turned = any(node.attributes.get(name, 0) for name in ("transBatchA", "transBatchB"))
    return "OpenVINO leaves batches unturned" if turned else ""


def _multi_head_attention(graph: Graph, node: Node) -> str:
    if len(node.outputs) > 3:
        return "OpenVINO gives products before the mask, where ONNX Runtime gives them behind it"
    if _has(node, 3) and _rank(graph, node, 1) == 4:
        return "OpenVINO adds the bias to keys that have theirs"
    if _has(node, 4) and _rank(graph, node, 4) != 2:
        return "it isn't known whether OpenVINO reads such a mask"
    return ""


def _has(node: Node, place: int) -> bool:
    return place < len(node.inputs) and bool(node.inputs[place])


def _rank(graph: Graph, node: Node, place: int) -> int | None:
    """The rank of an input; None where it is left out or not known."""
    kind = graph.type_of(node.inputs[place]) if _has(node, place) else None
    return len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None


_RULES: Mapping[str, Callable[[Graph, Node], str]] = {
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "MultiHeadAttention": _multi_head_attention,
}
