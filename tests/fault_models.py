"""Small models for the tests of known faults, run at both ends of the optimisation levels."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ep_core import GraphOptimizationLevel, InferenceSession, SessionOptions

LEVELS = (GraphOptimizationLevel.ORT_DISABLE_ALL, GraphOptimizationLevel.ORT_ENABLE_ALL)
HALVES = (np.float16, ml_dtypes.bfloat16)
FLOATS = (np.float32, np.float64, *HALVES)


def element_type(array):
    if array.dtype == object:
        return TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def make_model(nodes, feeds, outputs, opset, constants=(), *, shapes=None, functions=()):
    """A model; `shapes` overrides the declared shape of an input."""
    infos = [
        helper.make_tensor_value_info(
            name, element_type(value), (shapes or {}).get(name, value.shape)
        )
        for name, value in feeds.items()
    ]
    initializers = [
        numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "fault", infos, results, initializers)
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(function.domain, 1) for function in functions]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def run(nodes, feeds, outputs, opset, constants=(), **options):
    """Run at both ends of the optimisation levels; the results must agree to the bit."""
    model = make_model(nodes, feeds, outputs, opset, constants, **options).SerializeToString()
    found = []
    for level in LEVELS:
        settings = SessionOptions()
        settings.graph_optimization_level = level
        found.append(InferenceSession(model, settings).run(None, feeds))
    for plain, optimised in zip(*found, strict=True):
        if isinstance(plain, np.ndarray):
            assert plain.dtype == optimised.dtype
            assert plain.tobytes() == optimised.tobytes() or plain.tolist() == optimised.tolist()
    return found[0]


def one(op_type, inputs, opset, constants=(), **attributes):
    """Run one operator; `inputs` are arrays by name, constants are initializers after them."""
    names = [*inputs, *dict(constants)]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    return run([node], inputs, ["y"], opset, constants)[0]


def f32(*values):
    return np.array(values, np.float32)


def i64(*values):
    return np.array(values, np.int64)
