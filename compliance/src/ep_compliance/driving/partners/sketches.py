"""Models whose nodes say who is meant to run them.

A sketch is a graph in onnx's text format, e.g. `{ a = T(x, x)  b = P(a, x)  y = D(b, x) }`. `T` is
for the provider under test and stands for an operator that it claims; `P` is for the partner on the
host and `D` for the one with a device, both stand for an addition. Operators of onnx may be used
too, and are for the host. Types are written as `float` and become the type that `T` takes; lengths
are written as `N` and `M`, and become numbers for a provider that must know them beforehand.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import helper, parser

from ep_compliance.driving.bench import OPSET, Bench, claimed_chain, claims_all, one_node
from ep_core.types import DataType, TensorType

__all__ = ["CONTROL_FLOW", "DEVICE", "HOST", "SIDE", "TESTED", "Verb", "sketch", "verb_of"]

TESTED = "t"
HOST = "p"
DEVICE = "d"
CONTROL_FLOW = "c"
"""How names of nodes begin, by who is meant to run them; control flow is the core's."""

SIDE = 4
"""Length of dimensions that have to be fixed."""

_SUM = "Add"
_OPERATORS = {"T": TESTED, "P": HOST, "D": DEVICE}
_BODIED = ("If", "Loop", "Scan")


@dataclass(frozen=True, slots=True)
class Verb:
    """What the provider under test is good for.

    Attributes:
        arity: how many inputs the operator takes, 1 or 2.
        symbolic: it is claimed where lengths aren't known beforehand.
    """

    op_type: str
    arity: int
    dtype: DataType
    symbolic: bool


def verb_of(bench: Bench) -> Verb:
    """An operator and type that the provider claims.

    Raises:
        NotClaimed: it claims no common operator.
    """
    with bench.open() as provider:
        graph = claimed_chain(provider, length=1).subgraph.graph
        (node,) = graph.nodes
        kind = graph.type_of(node.inputs[0])
        assert isinstance(kind, TensorType)
        arity = len(node.inputs)
        open_ended = one_node(node.op_type, arity, kind.dtype, [["N", "N"]] * arity)
        return Verb(node.op_type, arity, kind.dtype, claims_all(provider, open_ended))


def sketch(text: str, verb: Verb, *, whole: bool = False) -> onnx.ModelProto:
    """Make the model of a sketch.

    Args:
        text: one graph in onnx's text format, without a header.
        whole: control flow is meant for the provider under test, bodies and all.
    """
    head = f'<ir_version: 8, opset_import: ["" : {OPSET}]>\n'
    typed = re.sub(r"\bfloat\b", verb.dtype.text, text)
    if not verb.symbolic:
        typed = re.sub(r"\b[MN]\b", str(SIDE), typed)
    model = parser.parse_model(head + typed)
    _cast(model.graph, verb, TESTED if whole else CONTROL_FLOW, itertools.count())
    return model


def _cast(graph: onnx.GraphProto, verb: Verb, control_flow: str, numbers: Iterator[int]) -> None:
    """Give every node its operator and its name, in bodies too."""
    for node in graph.node:
        if node.op_type in _BODIED:
            node.name = f"{control_flow}{next(numbers)}"
        else:
            node.name = f"{_OPERATORS.get(node.op_type, HOST)}{next(numbers)}"
        if node.op_type == "T":
            node.op_type = verb.op_type
            del node.input[verb.arity :]
        elif node.op_type in _OPERATORS:
            node.op_type = _SUM
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _cast(helper.get_attribute_value(attribute), verb, control_flow, numbers)
