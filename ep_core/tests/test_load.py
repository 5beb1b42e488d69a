"""Sources, headers, limits: everything but what is in a graph, external data and inference."""

from __future__ import annotations

import os
import time

import numpy as np
import onnx
import pytest
from loaded_models import FLOAT, RELU, body, graph_of, if_model, info, model, node
from onnx import TensorProto, helper, numpy_helper

from ep_core.errors import (
    EpError,
    InvalidModelError,
    ModelLimitError,
    NotSupportedError,
)
from ep_core.loading.load import LoadLimits, load_model

# ---------------------------------------------------------------- sources


def test_path_bytes_and_proto_give_the_same_graph(tmp_path):
    proto = model(RELU)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    before = proto.SerializeToString()
    sources = [path, str(path), os.fsencode(path).decode(), before, bytearray(before), proto]
    for source in sources:
        graph = load_model(source).graph
        assert [n.op_type for n in graph.nodes] == ["Relu"]
        assert graph.input_names == ("x",)
    assert proto.SerializeToString() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\xff\xfe garbage \x00", "no ONNX model"),
        (b"<!DOCTYPE html><html></html>", "no ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "no ONNX model"),
        (model(RELU).SerializeToString()[:-7], "no ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no graph"),
        (onnx.ModelProto(graph=model(RELU).graph).SerializeToString(), "IR version 0"),
    ],
)
def test_what_is_no_model(tmp_path, content, message):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModelError, match=message):
        load_model(path)
    with pytest.raises(InvalidModelError, match=message):
        load_model(content)


def test_what_is_no_file(tmp_path):
    with pytest.raises(InvalidModelError, match="There is no model file"):
        load_model(tmp_path / "missing.onnx")
    with pytest.raises(InvalidModelError, match="a directory"):
        load_model(tmp_path)
    with pytest.raises(InvalidModelError, match="can't be read"):
        load_model(str(tmp_path / "a\0b"))
    with pytest.raises(InvalidModelError, match="NoneType"):
        load_model(None)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(InvalidModelError, match="a special file"):
        load_model(tmp_path / "pipe.onnx")


def test_protobuf_nested_too_deeply_is_an_error_of_ours():
    proto = model(RELU)
    graph = proto.graph
    for _ in range(60):
        branch = graph.node.add(op_type="If", input=["x"], output=["o"]).attribute.add()
        branch.name, branch.type = "then_branch", onnx.AttributeProto.GRAPH
        graph = branch.g
    with pytest.raises(InvalidModelError, match="no ONNX model"):
        load_model(proto)


def test_metadata():
    proto = model(RELU)
    proto.producer_name = "maker"
    proto.domain = "org.example"
    proto.doc_string = "about the model"
    proto.graph.doc_string = "about the graph"
    proto.model_version = 7
    helper.set_model_props(proto, {"author": "somebody"})
    metadata = load_model(proto).metadata
    assert metadata.producer_name == "maker"
    assert metadata.graph_name == "g"
    assert metadata.domain == "org.example"
    assert metadata.description == "about the model"
    assert metadata.graph_description == "about the graph"
    assert metadata.version == 7
    assert metadata.custom_metadata_map == {"author": "somebody"}


def test_names_that_are_not_utf8():
    data = model(RELU).SerializeToString()
    for field in (b"Relu", b"\x01y", b"\x01x"):
        broken = data.replace(field, field[:-1] + b"\xff")
        assert broken != data
        with pytest.raises(InvalidModelError):
            load_model(broken)


# ---------------------------------------------------------------- versions


def test_every_opset_up_to_the_newest_loads():
    newest = onnx.defs.onnx_opset_version()
    for version in range(1, newest + 1):
        (relu,) = graph_of(model(RELU, opset=version)).nodes
        assert relu.since_version == max(v for v in (1, 6, 13, 14) if v <= version)


def test_a_newer_opset_says_what_the_newest_is():
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(NotSupportedError, match=f"at most {newest}"):
        load_model(model(RELU, opset=newest + 1))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 99)]
    with pytest.raises(NotSupportedError, match=r"domain 'ai\.onnx\.ml'"):
        load_model(model(RELU, opset=imports))


def test_a_newer_ir_version_is_refused():
    with pytest.raises(NotSupportedError, match="IR version"):
        load_model(model(RELU, ir=onnx.IR_VERSION + 1))


def test_opset_imports():
    twice = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx", 17)]
    assert graph_of(model(RELU, opset=twice)).opsets == {"": 17}
    differing = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx", 16)]
    with pytest.raises(InvalidModelError, match="two versions"):
        load_model(model(RELU, opset=differing))
    with pytest.raises(InvalidModelError, match="impossible version"):
        load_model(model(RELU, opset=[helper.make_opsetid("", 0)]))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 2**40)]
    with pytest.raises(InvalidModelError, match="impossible version"):
        load_model(model(RELU, opset=imports))
    none = model(RELU)
    del none.opset_import[:]
    with pytest.raises(InvalidModelError, match="doesn't import"):
        load_model(none)
    none.ir_version = 2
    assert graph_of(none).opsets == {"": 1}


def test_other_domains_pass_through_with_the_version_of_their_domain():
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    imports.append(helper.make_opsetid("org.example", 5))
    nodes = [
        node("Gelu", ["x"], ["a"], domain="com.microsoft"),
        node("Twist", ["a"], ["y"], domain="org.example", strength=0.5),
    ]
    first, second = graph_of(model(nodes, opset=imports)).nodes
    assert (first.key, first.since_version) == ("com.microsoft.Gelu", 1)
    assert (second.key, second.since_version) == ("org.example.Twist", 5)
    assert second.attributes["strength"] == 0.5
    with pytest.raises(InvalidModelError, match=r"'org\.example', which the model doesn't import"):
        load_model(model(nodes, opset=imports[:2]))


def test_ai_onnx_is_the_default_domain():
    (relu,) = graph_of(model([node("Relu", ["x"], ["y"], domain="ai.onnx")])).nodes
    assert (relu.domain, relu.since_version) == ("", 14)


# ---------------------------------------------------------------- limits


def nested_ifs(depth):
    inner = body([node("Neg", ["x"], ["o0"])], ["o0"])
    for level in range(1, depth):
        other = body([node("Neg", ["x"], [f"e{level}"])], [f"e{level}"])
        branch = node("If", ["c"], [f"o{level}"], then_branch=inner, else_branch=other)
        inner = body([branch], [f"o{level}"])
    return if_model(inner, body([node("Neg", ["x"], ["e"])], ["e"]))


def test_limits_name_themselves(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model(RELU).SerializeToString())
    with pytest.raises(ModelLimitError, match=r"max_file_bytes.*LoadLimits\(max_file_bytes="):
        load_model(path, limits=LoadLimits(max_file_bytes=10))
    with pytest.raises(ModelLimitError, match="max_file_bytes"):
        load_model(model(RELU), limits=LoadLimits(max_file_bytes=10))
    chain = [node("Neg", ["x"], ["a"]), node("Neg", ["a"], ["y"])]
    with pytest.raises(ModelLimitError, match="max_nodes"):
        load_model(model(chain), limits=LoadLimits(max_nodes=1))
    weights = [numpy_helper.from_array(np.ones(3, np.float32), name) for name in "ab"]
    with pytest.raises(ModelLimitError, match="max_initializers"):
        load_model(model(RELU, initializers=weights), limits=LoadLimits(max_initializers=1))
    with pytest.raises(ModelLimitError, match="max_tensor_bytes"):
        load_model(model(RELU, initializers=weights), limits=LoadLimits(max_tensor_bytes=11))
    load_model(model(RELU, initializers=weights), limits=LoadLimits(max_tensor_bytes=12))
    with pytest.raises(ModelLimitError, match="max_nesting_depth"):
        load_model(nested_ifs(5), limits=LoadLimits(max_nesting_depth=4))
    load_model(nested_ifs(5), limits=LoadLimits(max_nesting_depth=5))
    load_model(nested_ifs(28))


# ---------------------------------------------------------------- speed of refusal


def test_large_malformed_graphs_are_refused_quickly():
    chain = [node("Neg", [f"v{i + 1}"], [f"v{i}"]) for i in range(5000)]
    for nodes in (chain, [*chain, node("Neg", ["v0"], ["v5000"])]):
        started = time.perf_counter()
        with pytest.raises(EpError):
            load_model(model(nodes, outputs=[info("v0", FLOAT, None)]))
        assert time.perf_counter() - started < 5


@pytest.mark.parametrize("name", ["FLOAT", "float"])
def test_the_first_cast_names_its_type(name):
    node = helper.make_node("Cast", ["x"], ["y"], to=name)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=3)
    assert load_model(model).graph.nodes[0].attributes["to"] == name
    node.attribute[0].s = b"FLOTA"
    model.graph.node[0].CopyFrom(node)
    with pytest.raises(InvalidModelError, match=r"undefined element type.*FLOAT"):
        load_model(model)
