"""Runs models and single operators on the CPU provider, without a session."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from ep_core.discovery.registry import registry
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_core.types import TensorType


def open_provider():
    """By the registry, which also registers the schemas of com.microsoft."""
    factory = registry().factory("cpu")
    return factory.create(factory.devices()[0], {})


PROVIDER = open_provider()


class UnsupportedError(Exception):
    """The provider doesn't claim a node."""


def run_model(model: onnx.ModelProto, feeds):
    """Run all nodes as one partition; `feeds` are values in the order of the graph's inputs.

    Checks what holds for every run: arrays come out, those of com.microsoft of the types that its
    schemas tell, and none shares memory with a feed.
    """
    graph = load_model(model).graph
    capability = PROVIDER.get_capability(graph)
    for node, support in zip(graph.nodes, capability.nodes, strict=True):
        if not support.supported:
            raise UnsupportedError(f"{node.key}: {support.reason}")
    subgraph = Subgraph.cut(graph, range(len(graph.nodes)))
    program = PROVIDER.compile(subgraph)
    constants = {name: value.numpy() for name, value in graph.initializers.items()}
    by_name = {**constants, **dict(zip(graph.input_names, feeds, strict=False))}
    inputs = [by_name[name] for name in subgraph.inputs]
    outputs = [None] * len(subgraph.outputs)
    program.run(inputs, outputs, None)
    found = dict(zip(subgraph.outputs, outputs, strict=True))
    for node in graph.nodes:
        if node.domain == "com.microsoft":
            for name in node.outputs:
                check_type(graph.type_of(name), found.get(name))
    for value in outputs:
        assert value is None or isinstance(value, np.ndarray | list | dict), type(value)
        for feed in inputs:
            if isinstance(value, np.ndarray) and isinstance(feed, np.ndarray):
                assert not np.may_share_memory(value, feed)
    program.close()
    return [found[name] if name in found else by_name[name] for name in graph.output_names]


def check_type(kind, value):
    if not isinstance(kind, TensorType) or not isinstance(value, np.ndarray):
        return
    assert value.dtype == kind.dtype.numpy
    if kind.shape is not None:
        assert len(kind.shape) == value.ndim, (kind.shape, value.shape)
        for known, length in zip(kind.shape, value.shape, strict=True):
            assert not isinstance(known, int) or known == length, (kind.shape, value.shape)


def run_op(
    op_type, inputs, opset, *, outputs=1, domain="", domain_version=1, shapes=True, **attributes
):
    """Run one operator on arrays (None for an input left out); returns a list of outputs.

    With `shapes=False` the model doesn't declare any, so that only a run can find them wrong.
    """
    names = [f"in{i}" if value is not None else "" for i, value in enumerate(inputs)]
    present = [(n, v) for n, v in zip(names, inputs, strict=True) if v is not None]
    results = [f"out{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    infos = [_value_info(name, value, shapes) for name, value in present]
    out_infos = [onnx.ValueInfoProto(name=name) for name in results]
    graph = helper.make_graph([node], "one", infos, out_infos)
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, domain_version))
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 8 if opset < 21 else 10
    return run_model(model, [value for _, value in present])


def _value_info(name, value, shapes):
    if isinstance(value, dict):
        return helper.make_value_info(name, _map_type(value))
    if isinstance(value, list):
        element = helper.make_tensor_type_proto(_elem_type(value[0]) if value else 1, None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(element))
    return helper.make_tensor_value_info(name, _elem_type(value), value.shape if shapes else None)


def _map_type(pairs):
    kinds = {int: onnx.TensorProto.INT64, str: onnx.TensorProto.STRING, float: 1}
    key, value = next(iter(pairs.items()))
    kind = onnx.TypeProto()
    kind.map_type.key_type = kinds[type(key)]
    kind.map_type.value_type.tensor_type.elem_type = kinds[type(value)]
    return kind


def _elem_type(value):
    if value.dtype == object:
        return onnx.TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(value.dtype)
