"""Names, schemas, constants, bodies and open lengths of the graphs in a model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from loaded_models import BOOL, FLOAT, INT64, RELU, body, graph_of, if_model, info, model, node
from onnx import helper, numpy_helper

from ep_core.errors import (
    InvalidModelError,
    OptionError,
)
from ep_core.loading.load import load_model
from ep_core.types import DataType, TensorType

# ---------------------------------------------------------------- schemas


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (node("Rellu", ["x"], ["y"]), "Did you mean 'Relu'"),
        (node("Gelu", ["x"], ["y"]), "expected opset 20 or newer"),
        (node("Relu", [], ["y"]), "wrong number of inputs; expected 1; got 0"),
        (node("Add", ["x", "x", "x"], ["y"]), "wrong number of inputs"),
        (node("Relu", ["x"], ["y", "z"]), "wrong number of outputs"),
        (node("Add", ["x", ""], ["y"]), "leaves out input 1"),
        (node("Softmax", ["x"], ["y"], axes=1), "no attribute 'axes'. Did you mean 'axis'"),
        (node("Softmax", ["x"], ["y"], axis=1.5), "wrong type; expected INT"),
        (node("Cast", ["x"], ["y"]), "lacks the required attribute 'to'"),
        (node("Cast", ["x"], ["y"], to=9999), "undefined element type"),
        (node("Cast", ["x"], ["y"], to=0), "undefined element type"),
        (node("Upsample", ["x", "x"], ["y"]), "deprecated since opset 10"),
        (node("Softmax", ["x"], ["y"], axis=2**40), "out of range"),
        (node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[0]), "'strides'.*out of range"),
        (node("Einsum", ["x"], ["y"], equation="\0\0\0"), "malformed equation"),
        (node("Split", ["x"], ["y", "z"], num_outputs=3), "no attribute 'num_outputs'"),
    ],
)
def test_nodes_that_break_their_schema(bad, message):
    with pytest.raises(InvalidModelError, match=message):
        load_model(model([bad]))


def test_what_tools_write_and_runtimes_take():
    # ONNX Runtime's own optimiser saves LayerNormalization below the opset it came with.
    early = [node("LayerNormalization", ["x", "x"], ["y"], axis=-1, __note="from a tool")]
    (norm,) = graph_of(model(early, opset=12)).nodes
    assert norm.since_version == 17
    old = model([node("Relu", ["x"], ["y"])], ir=1)
    old.graph.node[0].attribute.add(name="consumed_inputs", ints=[0])  # states no type
    del old.opset_import[:]
    (relu,) = graph_of(old).nodes
    assert relu.attributes["consumed_inputs"] == (0,)


def test_registered_schemas_of_custom_domains_are_obeyed():
    schema = onnx.defs.OpSchema(
        "Twist",
        "org.example.registered",
        3,
        inputs=[onnx.defs.OpSchema.FormalParameter("x", "T")],
        outputs=[onnx.defs.OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[onnx.defs.OpSchema.Attribute("by", onnx.defs.OpSchema.AttrType.INT)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("org.example.registered", 4)]
    good = node("Twist", ["x"], ["y"], domain="org.example.registered", by=1)
    bad = node("Twist", ["x", "x"], ["y"], domain="org.example.registered")
    onnx.defs.register_schema(schema)
    try:
        assert graph_of(model([good], opset=imports)).nodes[0].since_version == 3
        with pytest.raises(InvalidModelError, match="wrong number of inputs"):
            load_model(model([bad], opset=imports))
    finally:
        onnx.defs.deregister_schema("Twist", 3, "org.example.registered")


def test_attributes_of_every_kind():
    tensor = numpy_helper.from_array(np.array([1.5], np.float32))
    inner = helper.make_graph([], "inner", [], [info("x", FLOAT, None)])
    kind = helper.make_tensor_type_proto(FLOAT, [2])
    custom = node(
        "Op", ["x"], ["y"], domain="mine", i=1, f=1.0, s="text", ints=[1, 2], floats=[1.0, 0.25],
        strings=["a", "b"], t=tensor, g=inner, tp=kind, raw=b"\xff\x00",
    )  # fmt: skip
    custom.attribute.add(name="empty", type=onnx.AttributeProto.FLOATS)
    custom.attribute.add(name="tensors", type=onnx.AttributeProto.TENSORS, tensors=[tensor])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    (loaded,) = graph_of(model([custom], opset=imports)).nodes
    found = loaded.attributes
    assert (found["i"], found["f"], found["s"]) == (1, 1.0, "text")
    assert isinstance(found["f"], float)
    assert (found["ints"], found["floats"], found["strings"]) == ((1, 2), (1.0, 0.25), ("a", "b"))
    assert found["t"].tolist() == [1.5]
    assert found["tensors"][0].tolist() == [1.5]
    assert found["tp"] == TensorType(DataType.FLOAT, (2,))
    assert found["raw"] == b"\xff\x00"
    assert found["empty"] == ()
    assert loaded.bodies["g"].output_names == ("x",)


def test_an_attribute_set_twice_and_a_reference_outside_of_a_function():
    twice = model([node("Softmax", ["x"], ["y"], axis=1)])
    twice.graph.node[0].attribute.append(twice.graph.node[0].attribute[0])
    with pytest.raises(InvalidModelError, match="set twice"):
        load_model(twice)
    stray = model([node("Softmax", ["x"], ["y"])])
    stray.graph.node[0].attribute.add(name="axis", type=2, ref_attr_name="axis")
    with pytest.raises(InvalidModelError, match="outside of any function"):
        load_model(stray)


def test_node_names_are_unique():
    nodes = [
        node("Relu", ["x"], ["a"], name="n"),
        node("Relu", ["a"], ["b"], name="n_1"),
        node("Relu", ["b"], ["c"], name="n"),
        node("Relu", ["c"], ["y"]),
    ]
    assert [n.name for n in graph_of(model(nodes)).nodes] == ["n", "n_1", "n_2", "Relu_3"]


# ---------------------------------------------------------------- structure


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", ["xx"], ["y"])], "'xx', used by node 'Relu_0'.*nowhere.*mean 'x'"),
        ([node("Neg", ["x"], ["y"]), node("Relu", ["x"], ["y"])], "'y' is defined twice"),
        ([node("Relu", ["x"], ["x"])], "'x' is defined twice"),
        ([node("Relu", ["x"], ["w"])], "'w' is defined twice"),
        ([node("Mul", ["h", "x"], ["y"]), node("Neg", ["x"], ["h"])], "not in topological order"),
        (
            [node("Neg", ["b"], ["a"]), node("Abs", ["a"], ["b"])],
            "cycle: 'Abs_1' -> 'Neg_0' -> 'Abs_1'",
        ),
        ([node("Add", ["x", "y"], ["y"])], "cycle: 'Add_0' -> 'Add_0'"),
        ([node("Relu", ["x"], ["z"])], "'y', used by the outputs of graph 'g', is defined nowhere"),
        ([node("Constant", [], ["w"], value_float=1.0)], "'w' is defined twice"),
    ],
)
def test_how_values_relate(nodes, message):
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    with pytest.raises(InvalidModelError, match=message):
        load_model(model(nodes, initializers=[weight]))


def test_graphs_with_bad_ends():
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    with pytest.raises(InvalidModelError, match="'w' is defined twice"):
        load_model(model(RELU, initializers=[weight, weight]))
    with pytest.raises(InvalidModelError, match="initializer has no name"):
        load_model(model(RELU, initializers=[numpy_helper.from_array(np.ones(2))]))
    with pytest.raises(InvalidModelError, match="'x' is defined twice"):
        load_model(model(RELU, [info("x", FLOAT, [2]), info("x", FLOAT, [2])]))
    with pytest.raises(InvalidModelError, match="without a usable name"):
        load_model(model(RELU, [info("x", FLOAT, [2]), info("", FLOAT, [2])]))
    with pytest.raises(InvalidModelError, match="'x' has no type"):
        load_model(model(RELU, [helper.make_empty_tensor_value_info("x")]))
    with pytest.raises(InvalidModelError, match="no outputs"):
        load_model(model(RELU, outputs=[]))


@pytest.mark.parametrize("role", ["input", "output", "value_info", "initializer", "sequence"])
def test_undefined_element_types(role):
    proto = model(RELU, value_info=[info("q", FLOAT, [1])])
    if role == "initializer":
        proto.graph.initializer.add(name="w", data_type=9999, dims=[1], raw_data=b"1234")
    elif role == "sequence":
        element = proto.graph.input.add(name="s").type.sequence_type.elem_type
        element.tensor_type.elem_type = 9999
    else:
        getattr(proto.graph, role)[0].type.tensor_type.elem_type = 9999
    with pytest.raises(InvalidModelError, match=r"undefined element type.*9999"):
        load_model(proto)


def test_an_input_may_be_an_output_and_so_may_a_constant():
    outputs = [info("x", FLOAT, None), info("c", FLOAT, None)]
    graph = graph_of(model([node("Constant", [], ["c"], value_float=2.0)], outputs=outputs))
    assert graph.output_names == ("x", "c")
    assert graph.nodes == ()
    assert graph.constant("c").numpy() == np.float32(2)


# ---------------------------------------------------------------- constants and inputs


def test_constants_become_initializers():
    values = {
        "value": numpy_helper.from_array(np.array([[1, 2]], np.int64)),
        "value_float": 0.5,
        "value_floats": [0.5, 1.0],
        "value_int": 3,
        "value_ints": [3, 4],
        "value_string": "one",
        "value_strings": ["one", "two"],
    }
    nodes = [node("Constant", [], [key], **{key: value}) for key, value in values.items()]
    graph = graph_of(model([*RELU, *nodes]))
    arrays = {name: graph.initializers[name].numpy() for name in values}
    assert [n.op_type for n in graph.nodes] == ["Relu"]
    assert arrays["value"].tolist() == [[1, 2]]
    assert arrays["value_float"].dtype == np.float32
    assert arrays["value_float"].shape == ()
    assert arrays["value_floats"].tolist() == [0.5, 1.0]
    assert arrays["value_int"].dtype == np.int64
    assert arrays["value_ints"].tolist() == [3, 4]
    assert arrays["value_string"].item() == "one"
    assert arrays["value_strings"].tolist() == ["one", "two"]
    assert not arrays["value_ints"].flags.writeable


@pytest.mark.parametrize(
    "constant",
    [
        node("Constant", [], ["c"]),
        node("Constant", [], ["c"], value_int=1, value_float=1.0),
        node("Constant", [], ["c"], value_int=1.0),
        node("Constant", [], ["c"], __private=1),
        node("Constant", ["x"], ["c"], value_int=1),
        node("Constant", [], ["c", "d"], value_int=1),
        node("Constant", [], ["c"], value_string=b"\xff"),
    ],
)
def test_malformed_constants(constant):
    with pytest.raises(InvalidModelError):
        load_model(model([*RELU, constant]))


@pytest.mark.parametrize("ir", [3, 4, 8])
def test_initializers_that_are_inputs(ir):
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    inputs = [info("x", FLOAT, [2]), info("w", FLOAT, [2])]
    proto = model([node("Add", ["x", "w"], ["y"])], inputs, initializers=[weight], ir=ir)
    graph = graph_of(proto)
    if ir < 4:
        assert graph.input_names == ("x",)
        assert graph.constant("w") is not None
    else:
        assert graph.input_names == ("x", "w")
        assert graph.overridable == {"w"}
        assert graph.constant("w") is None


def test_a_default_that_can_be_overridden_is_not_used_for_shapes():
    shape = numpy_helper.from_array(np.array([3, 2], np.int64), "s")
    inputs = [info("x", FLOAT, [6]), info("s", INT64, [2])]
    proto = model([node("Reshape", ["x", "s"], ["y"])], inputs, initializers=[shape])
    assert graph_of(proto).values["y"].type.static_shape is None


# ---------------------------------------------------------------- bodies


def test_bodies_capture_outer_values():
    constant = numpy_helper.from_array(np.ones(2, np.float32), "k")
    then = body([node("Add", ["h", "k"], ["t"])], ["t"], initializers=[constant])
    otherwise = body([node("Constant", [], ["e"], value_floats=[0.0, 0.0])], ["e"])
    graph = graph_of(if_model(then, otherwise, node("Neg", ["x"], ["h"])))
    conditional = graph.nodes[1]
    assert conditional.captures == ("h",)
    assert set(conditional.bodies) == {"then_branch", "else_branch"}
    branch = conditional.bodies["then_branch"]
    assert branch.type_of("h") == TensorType(DataType.FLOAT, (2,))
    assert branch.type_of("t") == TensorType(DataType.FLOAT, (2,))
    assert conditional.bodies["else_branch"].nodes == ()
    assert graph.type_of("y") == TensorType(DataType.FLOAT, (2,))


def test_names_of_bodies_that_hide_outer_ones_are_renamed():
    inner = body([node("Cast", ["x"], ["h"], to=INT64), node("Neg", ["h"], ["t"])], ["t"])
    nested = body(
        [
            node("Cast", ["x"], ["h"], to=INT64),
            node("If", ["c"], ["e"], then_branch=inner, else_branch=body([], ["h"])),
        ],
        ["e"],
    )
    then = body([node("Cast", ["h"], ["t"], to=INT64)], ["t"])
    graph = graph_of(if_model(then, nested, node("Neg", ["x"], ["h"]), outputs=[info("y", 7, [2])]))
    conditional = graph.nodes[1]
    outer = conditional.bodies["else_branch"]
    assert conditional.bodies["then_branch"].nodes[0].inputs == ("h",)
    (renamed,) = outer.nodes[0].outputs
    assert renamed != "h"
    assert outer.nodes[1].bodies["else_branch"].output_names == (renamed,)
    deepest = outer.nodes[1].bodies["then_branch"]
    assert deepest.nodes[0].outputs == deepest.nodes[1].inputs
    assert deepest.nodes[0].outputs[0] not in ("h", renamed)
    assert deepest.type_of("t") == TensorType(DataType.INT64, (2,))


def test_errors_inside_bodies():
    good = body([node("Neg", ["x"], ["e"])], ["e"])
    bad = body([node("Neg", ["hh"], ["t"])], ["t"])
    with pytest.raises(InvalidModelError, match=r"'hh', used by node 'Neg_0'.*mean 'h'"):
        load_model(if_model(bad, good, node("Neg", ["x"], ["h"])))
    late = if_model(body([node("Neg", ["h"], ["t"])], ["t"]), good)
    late.graph.node.append(node("Neg", ["x"], ["h"]))
    with pytest.raises(InvalidModelError, match="not in topological order"):
        load_model(late)
    with pytest.raises(InvalidModelError, match="cycle"):
        load_model(if_model(body([node("Neg", ["y"], ["t"])], ["t"]), good))
    with pytest.raises(InvalidModelError, match="doesn't fit the node"):
        load_model(if_model(body([], ["x", "x"]), good))
    loop = node("Loop", ["", "c"], ["y"], body=good)
    with pytest.raises(InvalidModelError, match="doesn't fit the node"):
        load_model(model([loop], [info("x", FLOAT, [2]), info("c", BOOL, [])]))
    scan = node("Scan", ["x"], ["y"], num_scan_inputs=2, body=body([], ["i"], ["i"]))
    with pytest.raises(InvalidModelError, match="wrong num_scan_inputs"):
        load_model(model([scan]))


# ---------------------------------------------------------------- free dimensions


def test_free_dimensions():
    proto = model([node("Shape", ["x"], ["s"]), *RELU], outputs=[info("y", FLOAT, ["N", 2])])
    graph = graph_of(proto, free_dimensions={"N": 5})
    assert graph.inputs[0].type == TensorType(DataType.FLOAT, (5, 2))
    assert graph.outputs[0].type == TensorType(DataType.FLOAT, (5, 2))
    assert graph.type_of("y") == TensorType(DataType.FLOAT, (5, 2))
    with pytest.raises(OptionError, match=r"open dimension 'M'.*Known: N"):
        load_model(proto, free_dimensions={"M": 5})
    with pytest.raises(OptionError, match="0 or more"):
        load_model(proto, free_dimensions={"N": -1})


@pytest.mark.parametrize("dim", [None, "?"])
def test_free_dimensions_without_a_name(dim):
    values = [info("x", FLOAT, [2, dim]), info("z", FLOAT, [dim, 2])]
    proto = model([node("MatMul", ["x", "z"], ["y"])], values, [info("y", FLOAT, [2, 2])])
    graph = graph_of(proto, free_dimensions={"x.1": 3, "z.0": 3})
    assert [value.type.shape for value in graph.inputs] == [(2, 3), (3, 2)]
    with pytest.raises(OptionError, match=r"open dimension 'x.0'.*'x.1'"):
        load_model(proto, free_dimensions={"x.0": 2})
