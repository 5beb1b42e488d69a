"""Broken models that crashed, hung or answered in widely used runtimes: an EpError, always."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from fault_models import f32, make_model
from onnx import TensorProto, helper, numpy_helper

from ep_core import InferenceSession
from ep_core.errors import EpError, InvalidModelError, UnsafePathError


def add_model():
    x = f32(1, 2, 3, 4)
    return make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": x}, ["y"], 17, {"w": x})


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "sub/../../secret.bin", "./../secret.bin", "..\\secret.bin", "link.bin"],
)
def test_external_data_stays_in_the_folder_of_the_model(tmp_path, location):
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    model = add_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(EpError):
        InferenceSession(path)


def test_absolute_external_data(tmp_path):
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    model = add_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=str(tmp_path / "secret.bin"))
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UnsafePathError):
        InferenceSession(path)


def through_if(call):
    """An If whose then-branch holds the node and whose else-branch hands `a` on."""
    branches = [
        helper.make_graph([node], name, [], [onnx.ValueInfoProto(name=node.output[0])])
        for name, node in (("then", call), ("else", helper.make_node("Identity", ["a"], ["s"])))
    ]
    return [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(False))),
        helper.make_node("If", ["c"], ["b"], then_branch=branches[0], else_branch=branches[1]),
    ]


def function(name, nodes):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["a"], ["b"], nodes, opsets)


def test_functions_that_call_themselves():
    call = {name: helper.make_node(name, ["a"], ["r"], domain="local") for name in "FGH"}
    plain = {name: helper.make_node(name, ["a"], ["b"], domain="local") for name in "FGH"}
    cases = [
        [function("F", [plain["F"]])],
        [function("F", through_if(call["F"]))],
        [function("F", [plain["G"]]), function("G", [plain["F"]])],
        [function("F", through_if(call["G"])), function("G", [plain["H"]]),
         function("H", through_if(call["F"]))],
    ]  # fmt: skip
    node = helper.make_node("F", ["x"], ["y"], domain="local")
    for functions in cases:
        model = make_model([node], {"x": f32(1, 2)}, ["y"], 17, functions=functions[:1])
        del model.functions[:]
        model.functions.extend(functions)
        with pytest.raises(InvalidModelError):
            InferenceSession(model.SerializeToString())


def test_functions_that_call_others_run():
    inner = function("G", [helper.make_node("Neg", ["a"], ["b"])])
    outer = function("F", through_if(helper.make_node("G", ["a"], ["r"], domain="local")))
    model = make_model(
        [helper.make_node("F", ["x"], ["y"], domain="local")], {"x": f32(1, 2)}, ["y"], 17,
        functions=[outer],
    )  # fmt: skip
    model.functions.append(inner)
    session = InferenceSession(model.SerializeToString())
    assert session.run(None, {"x": f32(1, 2)})[0].tolist() == [1, 2]


def test_nodes_out_of_order():
    """The first node reads what the second makes; also inside a body, and as a cycle."""
    late = [helper.make_node("Mul", ["h", "x"], ["y"]), helper.make_node("Neg", ["x"], ["h"])]
    cycle = [helper.make_node("Mul", ["h", "x"], ["y"]), helper.make_node("Neg", ["y"], ["h"])]
    itself = [helper.make_node("Mul", ["y", "x"], ["y"])]
    for nodes in (late, cycle, itself):
        with pytest.raises(InvalidModelError):
            InferenceSession(make_model(nodes, {"x": f32(1)}, ["y"], 17).SerializeToString())
    branch = helper.make_graph(late, "branch", [], [onnx.ValueInfoProto(name="y")])
    node = helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)
    feeds = {"c": np.array(True), "x": f32(1)}
    with pytest.raises(InvalidModelError):
        InferenceSession(make_model([node], feeds, ["z"], 17).SerializeToString())


def test_names_that_are_given_twice():
    first, second = (numpy_helper.from_array(f32(i), "w") for i in (1, 2))
    models = []
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": f32(1)}, ["y"], 17)
    model.graph.initializer.extend([first, second])
    models.append(model)
    twice = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    models.append(make_model(twice, {"x": f32(1)}, ["y"], 17))
    same = [helper.make_node("Split", ["x"], ["y", "y"], axis=0)]
    models.append(make_model(same, {"x": f32(1, 2)}, ["y"], 13))
    hidden = make_model([helper.make_node("Neg", ["x"], ["w"])], {"x": f32(1)}, ["w"], 17)
    hidden.graph.initializer.append(first)
    models.append(hidden)
    inputs = make_model([helper.make_node("Neg", ["x"], ["y"])], {"x": f32(1)}, ["y"], 17)
    inputs.graph.input.append(inputs.graph.input[0])
    models.append(inputs)
    for broken in models:
        with pytest.raises(InvalidModelError):
            InferenceSession(broken.SerializeToString())


@pytest.mark.parametrize("number", [0, 9999, -1, 29])
def test_element_types_that_do_not_exist(number):
    model = make_model([helper.make_node("Identity", ["x"], ["y"])], {"x": f32(1)}, ["y"], 17)
    tensor_type = model.graph.input[0].type.tensor_type
    tensor_type.elem_type = number
    with pytest.raises(EpError):
        InferenceSession(model.SerializeToString())
    model = add_model()
    model.graph.initializer[0].data_type = number
    with pytest.raises(EpError):
        InferenceSession(model.SerializeToString())
    model = make_model(
        [helper.make_node("Cast", ["x"], ["y"], to=number)], {"x": f32(1)}, ["y"], 17
    )
    with pytest.raises(EpError):
        InferenceSession(model.SerializeToString())
