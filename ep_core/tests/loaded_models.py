"""Small models, made node by node, and the graphs that come of loading them."""

from __future__ import annotations

from onnx import TensorProto, helper

from ep_core.graph import Graph
from ep_core.loading.load import load_model

FLOAT, INT64, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)
info = helper.make_tensor_value_info
node = helper.make_node


def model(nodes, inputs=None, outputs=None, initializers=(), *, opset=17, ir=8, **graph):
    inputs = [info("x", FLOAT, ["N", 2])] if inputs is None else inputs
    outputs = [info("y", FLOAT, None)] if outputs is None else outputs
    body = helper.make_graph(nodes, "g", inputs, outputs, list(initializers), **graph)
    imports = opset if isinstance(opset, list) else [helper.make_opsetid("", opset)]
    return helper.make_model(body, opset_imports=imports, ir_version=ir)


def graph_of(proto, **options) -> Graph:
    return load_model(proto, **options).graph


def body(nodes, outputs, inputs=(), initializers=()):
    values = [helper.make_empty_tensor_value_info(name) for name in outputs]
    fed = [helper.make_empty_tensor_value_info(name) for name in inputs]
    return helper.make_graph(nodes, "body", fed, values, list(initializers))


def if_model(then_branch, else_branch, *before, **more):
    nodes = [*before, node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch)]
    inputs = [info("x", FLOAT, [2]), info("c", BOOL, [])]
    return model(nodes, inputs, **more)


RELU = [node("Relu", ["x"], ["y"])]
