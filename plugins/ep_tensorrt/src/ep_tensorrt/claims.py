"""Which nodes the provider takes, and why not the others.

Asked in this order, so that the reason is the simplest one that holds: the node's form, kinds of
values, the parser's answer about the node alone, the parser's answer about the nodes together, and
the size of what is left.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import onnx

from ep_core.contracts import Support
from ep_core.errors import EpError
from ep_core.graph import Graph, Node, Subgraph
from ep_core.loading.schemas import check_node, schema_rules
from ep_core.types import DataType, TensorType
from ep_tensorrt.elements import ELEMENT_TYPES
from ep_tensorrt.library import Library, said
from ep_tensorrt.questions import node_alone

__all__ = ["Claims", "regions"]

_MOST_BYTES = 2**29
"""Of constants; the parser isn't asked beforehand about nodes together with more."""

_known: dict[bytes, str] = {}
_asking = threading.Lock()


class Claims:
    """Answers for one library.

    Args:
        library: that parses.
        least: connected nodes that are worth an engine.
    """

    def __init__(self, library: Library, least: int) -> None:
        self._library = library
        self._least = least
        # A session asks several times about the same graph while it optimises and places it.
        self._answered: WeakKeyDictionary[Graph, tuple[Support, ...]] = WeakKeyDictionary()

    def answers(self, graph: Graph) -> tuple[Support, ...]:
        """Return yes or no with a reason for every node of a graph, in order."""
        known = self._answered.get(graph)
        if known is None:
            known = self._answered[graph] = self._answer(graph)
        return known

    def _answer(self, graph: Graph) -> tuple[Support, ...]:
        reasons = [self._refusal(graph, place) for place in range(len(graph.nodes))]
        for region in regions(graph, [p for p, reason in enumerate(reasons) if not reason]):
            self._ask_together(graph, region, reasons)
        left = [place for place, reason in enumerate(reasons) if not reason]
        least = min(self._least, len(graph.nodes))
        for region in regions(graph, left):
            if len(region) < least:
                for place in region:
                    reasons[place] = (
                        f"stands with {len(region)} connected nodes, and an engine is made of "
                        f"{self._least} or more (trt_min_subgraph_size)"
                    )
        return tuple(Support(not reason, reason) for reason in reasons)

    def _refusal(self, graph: Graph, place: int) -> str:
        node = graph.nodes[place]
        return _malformed(graph, node) or _kinds_refusal(graph, node) or self._alone(graph, place)

    def _alone(self, graph: Graph, place: int) -> str:
        """Why the parser doesn't take a node by itself, or nothing; asked once in a process."""
        model = node_alone(graph, place)
        content = model.SerializeToString(deterministic=True)
        key = hashlib.blake2b(content, digest_size=16).digest()
        with _asking:
            if key not in _known:
                _known[key] = self._parse(model, content)
            return _known[key]

    def _parse(self, model: onnx.ModelProto, content: bytes) -> str:
        library = self._library
        with library.listening() as told:
            network = library.trt.Builder(library.log).create_network(library.network_flags())
            parser = library.trt.OnnxParser(network, library.log)
            if not parser.parse(content):
                return f"{library.name} can't parse it: {parser_errors(parser) or said(told)}"
        found = {output.name: output for output in map(network.get_output, _range(network))}
        for info in model.graph.output:
            output = found.get(info.name)
            wanted = ELEMENT_TYPES[DataType(info.type.tensor_type.elem_type)]
            if output is None:
                return f"{library.name} leaves an output out"
            if output.dtype.name != wanted:
                return f"{library.name} makes {output.dtype.name} of an output, not {wanted}"
            is_ranked = info.type.tensor_type.HasField("shape")
            rank = len(info.type.tensor_type.shape.dim)
            if is_ranked and len(output.shape) != rank:
                return f"{library.name} makes an output of rank {len(output.shape)}, not {rank}"
        for number in range(network.num_inputs):
            if network.get_input(number).is_shape_tensor:
                return f"{library.name} has to know an input that gives a shape"
        return ""

    def _ask_together(self, graph: Graph, region: Collection[int], reasons: list[str]) -> None:
        """Refuse what the parser doesn't take of connected nodes, until it takes the rest."""
        left = list(region)
        while len(left) > 1:
            subgraph = Subgraph.cut(graph, left, "region")
            if sum(item.nbytes for item in subgraph.constants.values()) > _MOST_BYTES:
                return
            content = subgraph.to_model().SerializeToString()
            blamed = self._blamed(content)
            if blamed is None or not 0 <= blamed[0] < len(left):
                return
            place = left.pop(blamed[0])
            reasons[place] = f"{self._library.name} can't parse it in this place: {blamed[1]}"

    def _blamed(self, content: bytes) -> tuple[int, str] | None:
        """The position of the first node that the parser stumbles over, and its words."""
        library = self._library
        with library.listening():
            network = library.trt.Builder(library.log).create_network(library.network_flags())
            parser = library.trt.OnnxParser(network, library.log)
            if parser.supports_model_v2(content) or not parser.num_errors:
                return None
            error = parser.get_error(0)
            return int(error.node()), _short(error.desc())


def parser_errors(parser: Any) -> str:
    """What a parser says of its errors, in one line."""
    errors = [parser.get_error(number) for number in range(parser.num_errors)]
    return said([_short(error.desc()) for error in errors])


def regions(graph: Graph, places: Collection[int]) -> Iterator[list[int]]:
    """Split nodes into connected ones, each in ascending order."""
    left = set(places)
    for start in sorted(places):
        if start not in left:
            continue
        found, edge = [], [start]
        left.discard(start)
        while edge:
            place = edge.pop()
            found.append(place)
            near = _neighbours(graph, place) & left
            left -= near
            edge.extend(near)
        yield sorted(found)


def _neighbours(graph: Graph, place: int) -> set[int]:
    node = graph.nodes[place]
    before = {graph.producers[name] for name in node.inputs if name in graph.producers}
    after = {user for name in node.outputs for user in graph.consumers.get(name, ()) if name}
    return before | after


def _range(network: Any) -> range:
    return range(network.num_outputs)


def _short(text: str) -> str:
    """An error of the parser's without its C++."""
    return text.partition("Assertion failed: ")[2] or text


def _malformed(graph: Graph, node: Node) -> str:
    """Why a node isn't what its operator's schema asks for; a parser in C++ may crash on it."""
    if node.domain:
        return f"TensorRT has no operators of domain {node.domain!r}"
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


def _kinds_refusal(graph: Graph, node: Node) -> str:
    """Why the values of a node are of no kind that TensorRT takes, or nothing."""
    for name in filter(None, (*node.inputs, *node.outputs)):
        kind = graph.type_of(name)
        if kind is None:
            return f"the type of {name!r} isn't known"
        if not isinstance(kind, TensorType):
            return f"{name!r} is {kind}, and TensorRT takes tensors only"
        if kind.dtype not in ELEMENT_TYPES:
            return f"{name!r} is {kind}, which TensorRT doesn't compute as ONNX says"
        if kind.shape is None:
            return f"the rank of {name!r} isn't known"
        if 0 in kind.shape:
            return f"{name!r} has no elements"
    return ""
