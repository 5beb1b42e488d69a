"""Which nodes the provider takes, and why not the others.

Asked in this order, so that the reason is the simplest one that holds: the node's form, kinds of
values, element types that OpenVINO doesn't compute in, cases in which it is known to be wrong, and
then OpenVINO itself.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from ep_core.contracts import Support
from ep_core.errors import EpError
from ep_core.graph import Graph, Node
from ep_core.loading.schemas import check_node, schema_rules
from ep_core.types import DataType, TensorType
from ep_openvino.answers import Answers
from ep_openvino.configuration import Configuration
from ep_openvino.convert import ELEMENT_TYPES
from ep_openvino.holes import hole
from ep_openvino.signature import NodeSignature, signature_of
from ep_openvino.whole_numbers import Sizes

__all__ = ["Claims"]

_DOMAINS = ("", "com.microsoft")


class Claims:
    """Answers of an open device.

    Args:
        core: `openvino.Core`.
        configuration: of the device.
    """

    def __init__(self, core: Any, configuration: Configuration) -> None:
        self._answers = Answers(core, configuration.target)
        self._dynamic_shapes = configuration.dynamic_shapes
        # A session asks several times about the same graph while it optimises and places it.
        self._answered: WeakKeyDictionary[Graph, tuple[Support, ...]] = WeakKeyDictionary()

    def answers(self, graph: Graph) -> tuple[Support, ...]:
        """Return yes or no with a reason for every node of a graph, in order."""
        known = self._answered.get(graph)
        if known is None:
            known = self._answered[graph] = self._answer(graph)
        return known

    def _answer(self, graph: Graph) -> tuple[Support, ...]:
        sizes = Sizes(graph)
        reasons = [self._refusal(graph, node, sizes) for node in graph.nodes]
        asked: dict[int, NodeSignature] = {
            place: signature_of(graph, node)
            for place, node in enumerate(graph.nodes)
            if not reasons[place]
        }
        refusals = self._answers.refusals(asked.values())
        for place, signature in asked.items():
            reasons[place] = refusals[signature.key]
        return tuple(Support(not reason, reason) for reason in reasons)

    def _refusal(self, graph: Graph, node: Node, sizes: Sizes) -> str:
        """Why a node isn't even asked about, or nothing."""
        return (
            _malformed(graph, node)
            or _kinds_refusal(graph, node, self._dynamic_shapes)
            or sizes.refusal(node)
            or hole(graph, node)
        )


def _malformed(graph: Graph, node: Node) -> str:
    """Why a node isn't what its operator's schema asks for; OpenVINO's reader may crash on it."""
    if node.domain not in _DOMAINS:
        return f"OpenVINO has no operators of domain {node.domain!r}"
    if node.bodies:
        return "has bodies, which are placed node by node"
    try:
        rules = schema_rules(node.op_type, node.domain, graph.opsets)
        if rules is None:
            return f"no schema of {node.key} is registered to check the node by"
        check_node(node, rules)
    except EpError as error:
        return str(error)
    return ""


def _kinds_refusal(graph: Graph, node: Node, dynamic_shapes: bool) -> str:
    """Why the values of a node are of no kind that OpenVINO takes, or nothing."""
    for name in (*node.inputs, *node.outputs):
        if not name:
            continue
        kind = graph.type_of(name)
        if kind is None:
            return f"the type of {name!r} isn't known"
        if not isinstance(kind, TensorType):
            return f"{name!r} is {kind}, and OpenVINO takes tensors only"
        if kind.dtype is DataType.DOUBLE:
            return f"{name!r} is double, which OpenVINO computes in 32 bits"
        if kind.dtype is DataType.UINT64:
            return f"{name!r} is uint64, which OpenVINO computes in 32 bits"
        if kind.dtype not in ELEMENT_TYPES:
            return f"{name!r} is {kind}, which OpenVINO doesn't take here"
        if kind.shape is None and name in node.inputs:
            return f"the rank of {name!r} isn't known"
        if not dynamic_shapes and kind.static_shape is None:
            return f"the shape of {name!r} isn't known, and dynamic_shapes is off"
    return ""
