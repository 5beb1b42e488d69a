"""Types of values: what is inferred, what the model claims, and which of the two is believed."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ep_core.errors import InvalidModelError
from ep_core.loading.load import load_model
from ep_core.types import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
)

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info
node = helper.make_node
untyped = helper.make_empty_tensor_value_info


def graph_of(nodes, inputs, outputs, initializers=(), *, opset=17, **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers), **more)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return load_model(model).graph


def tensor(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def test_a_length_without_a_name_has_none_in_the_result():
    x, y = info("x", FLOAT, ["N", None]), info("y", FLOAT, [None, None])
    graph = graph_of([node("Softmax", ["x"], ["y"])], [x], [y])
    assert graph.outputs[0].type == TensorType(DataType.FLOAT, ("N", None))


def test_shapes_computed_by_the_graph_are_followed():
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axis"], ["first"]),
        node("Concat", ["first", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    initializers = [tensor("zero", 0), tensor("axis", [0]), tensor("rest", [4, 8])]
    graph = graph_of(nodes, [info("x", FLOAT, ["N", 32])], [untyped("y")], initializers)
    assert graph.type_of("y") == TensorType(DataType.FLOAT, ("N", 4, 8))
    assert graph.type_of("target") == TensorType(DataType.INT64, (3,))
    assert graph.values["rest"].type == TensorType(DataType.INT64, (2,))
    assert graph.outputs[0].type == graph.type_of("y")


def test_a_reshape_has_as_many_axes_as_its_shape_has_elements():
    # What is in the shape is fed, so that onnx says nothing of the result.
    nodes = [
        node("Reshape", ["x", "target"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Shape", ["b"], ["again"]),
        node("Reshape", ["x", "again"], ["y"]),
    ]
    feeds = [info("x", FLOAT, ["N"]), info("target", INT64, [3])]
    graph = graph_of(nodes, feeds, [untyped("y")])
    assert len(graph.type_of("b").shape) == len(graph.type_of("y").shape) == 3
    assert not any(isinstance(dim, int) for dim in graph.type_of("y").shape)


def test_bodies_read_axes_that_stand_outside():
    body = helper.make_graph(
        [
            node("Unsqueeze", ["x", "axes"], ["u"]),
            node("Reshape", ["u", "shape"], ["r"]),
        ],
        "body",
        [],
        [untyped("r")],
    )
    nodes = [node("If", ["yes"], ["y"], then_branch=body, else_branch=body)]
    feeds = [info("x", FLOAT, [2, 6]), info("yes", BOOL, [])]
    shapes = [tensor("axes", [0]), tensor("shape", [3, 4])]
    graph = graph_of(nodes, feeds, [untyped("y")], shapes)
    inside = graph.nodes[0].attributes["then_branch"]
    assert inside.type_of("u") == TensorType(DataType.FLOAT, (1, 2, 6))
    assert inside.type_of("r") == graph.type_of("y") == TensorType(DataType.FLOAT, (3, 4))
    # A default that a feed may replace says nothing.
    graph = graph_of(nodes, [*feeds, info("axes", INT64, [1])], [untyped("y")], shapes)
    assert graph.nodes[0].attributes["then_branch"].type_of("u").shape is None


def test_long_vectors_cost_nothing():
    # onnx's data propagation would make an object per element of each of these vectors.
    nodes = [
        node("Cast", ["x"], ["a"], to=INT64),
        node("Slice", ["a", "starts", "ends"], ["b"]),
        node("ConstantOfShape", ["huge"], ["c"]),
        node("Unsqueeze", ["c", "starts"], ["d"]),
        node("Shape", ["d"], ["e"]),
        node("Reshape", ["image", "flat"], ["f"]),
        node("Mul", ["f", "f"], ["y"]),
    ]
    initializers = [tensor("starts", [0]), tensor("ends", [10]), tensor("huge", [2**40])]
    initializers.append(tensor("flat", [-1]))
    inputs = [info("x", FLOAT, [2**31 - 1]), info("image", FLOAT, [4096, 4096, 64])]
    started = time.perf_counter()
    graph = graph_of(nodes, inputs, [untyped("y"), untyped("b"), untyped("e")], initializers)
    assert time.perf_counter() - started < 1
    assert graph.type_of("y") == TensorType(DataType.FLOAT, (2**30,))
    assert graph.type_of("a") == TensorType(DataType.INT64, (2**31 - 1,))
    assert graph.type_of("d") == TensorType(DataType.FLOAT, (1, 2**40))


def test_claims_about_inner_values_are_not_believed():
    claims = [info("h", FLOAT, [9, 9]), info("i", INT64, [1])]
    nodes = [node("Neg", ["x"], ["h"]), node("Abs", ["h"], ["i"]), node("Neg", ["i"], ["y"])]
    graph = graph_of(nodes, [info("x", FLOAT, [2])], [info("y", FLOAT, [7])], value_info=claims)
    for name in ("h", "i", "y"):
        assert graph.type_of(name) == TensorType(DataType.FLOAT, (2,))


def test_claims_about_unknown_operators_give_element_type_and_rank():
    claims = [info("h", FLOAT, [9, "N"])]
    nodes = [node("Op", ["x"], ["h"], domain="mine"), node("Neg", ["h"], ["y"])]
    outputs = [info("y", FLOAT, [9, "M"])]
    graph = graph_of(nodes, [info("x", FLOAT, [2])], outputs, value_info=claims)
    assert graph.type_of("h") == TensorType(DataType.FLOAT, (None, None))
    assert len(graph.type_of("y").shape) == 2
    assert not {9, "M", "N"} & set(graph.type_of("y").shape)
    assert graph.outputs[0].type == TensorType(DataType.FLOAT, (9, "M"))


def test_claims_about_operators_that_came_later():
    nodes = [node("LayerNormalization", ["x", "x"], ["h"]), node("Neg", ["h"], ["y"])]
    claims = [info("h", FLOAT, [2])]
    graph = graph_of(nodes, [info("x", FLOAT, [2])], [untyped("y")], opset=13, value_info=claims)
    assert graph.type_of("h") == TensorType(DataType.FLOAT, (None,))
    assert graph.type_of("y").dtype is DataType.FLOAT


def test_outputs_keep_the_models_words_where_inference_has_none():
    nodes = [node("NonZero", ["x"], ["y"])]
    inputs = [info("x", FLOAT, ["N", 2])]
    graph = graph_of(nodes, inputs, [info("y", INT64, [2, "found"])])
    assert graph.outputs[0].type == TensorType(DataType.INT64, (2, "found"))


def test_an_output_of_another_element_type_is_a_contradiction():
    x = info("x", FLOAT, [2])
    with pytest.raises(InvalidModelError, match=r"output 'y' .*tensor\(float\).*tensor\(int64\)"):
        graph_of([node("Neg", ["x"], ["y"])], [x], [info("y", INT64, [2])])
    sequence = helper.make_tensor_sequence_value_info("y", FLOAT, None)
    with pytest.raises(InvalidModelError, match="another type"):
        graph_of([node("Neg", ["x"], ["y"])], [x], [sequence])
    with pytest.raises(InvalidModelError, match="another type"):
        graph_of([], [x], [info("x", INT64, [2])])


def test_types_that_are_no_tensors():
    float_type = helper.make_tensor_type_proto(FLOAT, [2])
    inputs = [
        helper.make_value_info("s", helper.make_sequence_type_proto(float_type)),
        helper.make_value_info("o", helper.make_optional_type_proto(float_type)),
        helper.make_value_info("m", helper.make_map_type_proto(INT64, float_type)),
        helper.make_value_info("t", helper.make_sparse_tensor_type_proto(FLOAT, [2])),
    ]
    nodes = [node("SequenceAt", ["s", "i"], ["y"]), node("OptionalGetElement", ["o"], ["z"])]
    graph = graph_of(nodes, inputs, [untyped("y"), untyped("z")], [tensor("i", 0)])
    element = TensorType(DataType.FLOAT, (2,))
    assert graph.inputs[0].type == SequenceType(element)
    assert graph.inputs[1].type == OptionalType(element)
    assert graph.inputs[2].type == MapType(DataType.INT64, element)
    assert graph.inputs[3].type == SparseTensorType(DataType.FLOAT, (2,))
    assert graph.type_of("y") == element
    assert graph.type_of("z") == element


def test_bodies_of_loops():
    body = helper.make_graph(
        [
            node("Add", ["state", "x"], ["next"]),
            node("Identity", ["go"], ["again"]),
            node("Shape", ["next"], ["seen"]),
        ],
        "body",
        [info("step", INT64, []), info("go", BOOL, []), info("state", FLOAT, [99])],
        [untyped("again"), untyped("next"), untyped("seen")],
    )
    loop = node("Loop", ["n", "", "x"], ["y", "scan"], body=body)
    inputs = [info("n", INT64, []), info("x", FLOAT, [2])]
    graph = graph_of([loop], inputs, [untyped("y"), untyped("scan")])
    inner = graph.nodes[0].bodies["body"]
    assert inner.type_of("x") == TensorType(DataType.FLOAT, (2,))
    assert inner.type_of("state").dtype is DataType.FLOAT
    assert inner.type_of("state").static_shape is None  # a claim, and it may change per step
    assert inner.type_of("seen") == TensorType(DataType.INT64, (1,))
    assert graph.type_of("scan").dtype is DataType.INT64
    assert graph.type_of("scan").shape[1:] == (1,)


def test_negative_lengths_are_unknown_ones():
    graph = graph_of([node("Neg", ["x"], ["y"])], [info("x", FLOAT, [-1, 2])], [untyped("y")])
    assert graph.inputs[0].type == TensorType(DataType.FLOAT, (None, 2))
    assert graph.outputs[0].type.shape[1] == 2


def test_large_weights_keep_their_types():
    weight = numpy_helper.from_array(np.ones((64, 128), np.float32), "w")
    graph = graph_of(
        [node("MatMul", ["x", "w"], ["y"])], [info("x", FLOAT, ["N", 64])], [untyped("y")], [weight]
    )
    assert graph.type_of("y") == TensorType(DataType.FLOAT, ("N", 128))
    assert graph.values["w"].type == TensorType(DataType.FLOAT, (64, 128))
    assert graph.initializers["w"].numpy().sum() == 64 * 128


def test_a_node_that_inference_gives_up_on_leaves_the_rest():
    nodes = [node("MatMul", ["x", "x"], ["bad"]), node("Neg", ["x"], ["y"])]
    graph = graph_of(nodes, [info("x", FLOAT, [2, 3])], [untyped("y")])
    assert graph.type_of("bad") is None
    assert graph.type_of("y") == TensorType(DataType.FLOAT, (2, 3))
