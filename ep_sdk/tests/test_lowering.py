"""Lowered subgraphs with other steps: lifetimes follow the steps that are there."""

from __future__ import annotations

from dataclasses import replace

from onnx import parser

from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_sdk.kernels import KernelTable
from ep_sdk.lookup import describe_node, find_row
from ep_sdk.lowering import lower

CHAIN = """<ir_version: 9, opset_import: ["" : 20]>
g (float[4] x, float[4] z) => (float[4] y) {
    a = Neg (x)
    b = Add (a, z)
    y = Abs (b)
}"""

TABLE = KernelTable({"": 28})
for _name in ("Neg", "Add", "Abs"):
    TABLE.kernel(_name)(lambda node: lambda *inputs: inputs[0])


def lowered_chain():
    graph = load_model(parser.parse_model(CHAIN).SerializeToString()).graph
    subgraph = Subgraph.cut(graph, range(len(graph.nodes)))

    def find(node):
        kernel_node = describe_node(graph, node)
        return kernel_node, find_row(TABLE, kernel_node)

    return lower(subgraph, find)


def test_joined_steps_move_the_ends_of_what_they_read():
    lowered = lowered_chain()
    slot = {name: number for number, name in enumerate(lowered.names)}
    neg, add, last = lowered.steps
    joined = replace(add, inputs=(slot["x"], slot["z"]))
    shorter = lowered.with_steps((joined, last))
    assert len(lowered.steps) == 3
    assert [step.node.op_type for step in shorter.steps] == ["Add", "Abs"]
    assert shorter.last_use[slot["x"]] == 0
    assert shorter.last_use[slot["b"]] == 1
    assert shorter.last_use[slot["y"]] == 2
    assert neg not in shorter.steps
