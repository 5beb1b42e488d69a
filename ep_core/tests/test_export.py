"""Graphs back into models: valid, complete, and the same again after loading."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ep_core.errors import NotSupportedError, OptionError
from ep_core.graph import Graph, Initializer, Node, Subgraph, ValueInfo
from ep_core.loading.export import export_model, save_model, tensor_proto
from ep_core.loading.load import load_model
from ep_core.types import (
    DataType,
    MapType,
    OpSet,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
)

node = helper.make_node
info = helper.make_tensor_value_info
FLOAT2 = TensorType(DataType.FLOAT, (2,))


def load(nodes, inputs, outputs, initializers=(), opset=21):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    return load_model(helper.make_model(graph, opset_imports=imports, ir_version=10)).graph


def small(nodes, **changes):
    """A graph from x to y without going through a proto."""
    made = {name: ValueInfo(name, FLOAT2) for item in nodes for name in item.outputs}
    graph = Graph(
        name="g",
        inputs=(ValueInfo("x", FLOAT2),),
        outputs=(ValueInfo("y", FLOAT2),),
        nodes=tuple(nodes),
        initializers={},
        opsets=OpSet({"": 21}),
        values={"x": ValueInfo("x", FLOAT2), **made},
    )
    return graph.replace(**changes)


def assert_same(left, right):
    """Equal in everything but the protos they came from."""
    for key in ("input_names", "output_names", "overridable", "captures", "inputs", "outputs"):
        assert getattr(left, key) == getattr(right, key)
    assert dict(left.opsets) == dict(right.opsets)
    assert dict(left.values) == dict(right.values)
    assert list(left.initializers) == list(right.initializers)
    for name, initializer in left.initializers.items():
        assert_equal(initializer.numpy(), right.initializers[name].numpy())
    assert len(left.nodes) == len(right.nodes)
    for one, other in zip(left.nodes, right.nodes, strict=True):
        plain = [field.name for field in dataclasses.fields(Node) if field.name != "attributes"]
        assert [getattr(one, key) for key in plain] == [getattr(other, key) for key in plain]
        assert list(one.attributes) == list(other.attributes)
        for name, value in one.attributes.items():
            assert_equal(value, other.attributes[name])


def assert_equal(left, right):
    assert type(left) is type(right)
    if isinstance(left, Graph):
        assert_same(left, right)
    elif isinstance(left, tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_equal(one, other)
    elif isinstance(left, np.ndarray):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.tolist() == right.tolist()
    else:
        assert left == right


def loop_graph():
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["again"]),
            node("Add", ["state", "w"], ["next"]),
            node("Mul", ["next", "h"], ["seen"]),
        ],
        "body",
        [info("step", 7, []), info("go", 9, []), info("state", 1, [2])],
        [helper.make_empty_tensor_value_info(name) for name in ("again", "next", "seen")],
        [numpy_helper.from_array(np.array([1, 2], np.float32), "w")],
    )
    nodes = [node("Neg", ["x"], ["h"]), node("Loop", ["n", "c", "x"], ["y", "scan"], body=body)]
    outputs = [info("y", 1, [2]), info("scan", 1, ["steps", 2])]
    return load(nodes, [info("n", 7, []), info("c", 9, []), info("x", 1, [2])], outputs)


def test_round_trip_with_a_body():
    graph = loop_graph()
    model = export_model(graph)
    onnx.checker.check_model(model, full_check=True)
    assert_same(graph, load_model(model).graph)
    feeds = {"n": np.array(2), "c": np.array(True), "x": np.array([1, 1], np.float32)}
    last, seen = ReferenceEvaluator(model).run(None, feeds)
    assert last.tolist() == [3, 5]
    assert seen.tolist() == [[-2, -3], [-3, -5]]


def test_a_body_alone_takes_what_it_captures_as_inputs():
    body = loop_graph().nodes[1].bodies["body"]
    model = body.to_model()
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["step", "go", "state", "h"]
    assert load_model(model).graph.inputs[3].type == FLOAT2
    values = {"step": np.array(0), "go": np.array(True), "h": np.array([2, 2], np.float32)}
    values["state"] = np.array([1, 1], np.float32)
    again, following, seen = ReferenceEvaluator(model).run(None, values)
    assert (bool(again), following.tolist(), seen.tolist()) == (True, [2, 3], [4, 6])


def test_a_cut_keeps_its_names():
    weight = numpy_helper.from_array(np.array([3, 4], np.float32), "w")
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Mul", ["a", "w"], ["b"]),
        node("Abs", ["b"], ["c"]),
        node("Add", ["c", "a"], ["y"]),
    ]
    graph = load(nodes, [info("x", 1, [2])], [info("y", 1, [2])], [weight])
    cut = Subgraph.cut(graph, [1, 2])
    model = cut.to_model()
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["a"]
    assert [value.name for value in model.graph.output] == ["c"]
    assert [value.name for value in model.graph.value_info] == ["b"]
    (found,) = ReferenceEvaluator(model).run(None, {"a": np.array([-1, 2], np.float32)})
    assert found.tolist() == [3, 8]


def test_attributes_of_every_kind_keep_their_kind():
    inner = small([Node("n", "Neg", "", 13, ("x",), ("y",))])
    values = {
        "i": 1,
        "f": 1.0,
        "s": "text",
        "raw": b"\xff",
        "ints": (1, 2),
        "floats": (1.0, 2.0),
        "strings": ("a", "b"),
        "t": np.array([1.5]),
        "ts": (np.array([1]), np.array([2.5], np.float32)),
        "g": inner,
        "gs": (inner, inner),
        "tp": FLOAT2,
        "tps": (FLOAT2, SequenceType(FLOAT2)),
    }
    node_ = Node("op", "Op", "mine", 1, ("x",), ("y",), values)
    graph = small([node_], opsets=OpSet({"": 21, "mine": 1}))
    kinds = {a.name: a.type for a in export_model(graph).graph.node[0].attribute}
    expected = "INT FLOAT STRING STRING INTS FLOATS STRINGS TENSOR TENSORS GRAPH GRAPHS"
    names = [onnx.AttributeProto.AttributeType.Name(kind) for kind in kinds.values()]
    assert names == [*expected.split(), "TYPE_PROTO", "TYPE_PROTOS"]
    again = load_model(export_model(graph)).graph.nodes[0].attributes
    for name, value in values.items():
        if name not in ("g", "gs"):
            assert_equal(value, again[name])


def test_the_schema_decides_where_the_value_does_not():
    node_ = Node("n", "Upsample", "", 7, ("x",), ("y",), {"scales": (2, 1), "mode": "nearest"})
    proto = export_model(small([node_], opsets=OpSet({"": 8}))).graph.node[0]
    assert list(proto.attribute[0].floats) == [2.0, 1.0]
    empty = Node("n", "Constant", "", 13, (), ("y",), {"value_floats": ()})
    proto = export_model(small([empty])).graph.node[0]
    assert proto.attribute[0].type == onnx.AttributeProto.FLOATS
    elu = Node("n", "Elu", "", 6, ("x",), ("y",), {"alpha": 2})
    assert export_model(small([elu])).graph.node[0].attribute[0].f == 2.0
    numbers = {"a": np.float32(0.5), "b": np.int64(3), "c": (1, 2.5), "d": ()}
    custom = Node("n", "Op", "mine", 1, ("x",), ("y",), numbers)
    attributes = export_model(small([custom])).graph.node[0].attribute
    kinds = [onnx.AttributeProto.AttributeType.Name(a.type) for a in attributes]
    assert kinds == ["FLOAT", "INT", "FLOATS", "INTS"]
    with pytest.raises(NotSupportedError, match="can't be an attribute"):
        export_model(small([Node("n", "Op", "mine", 1, ("x",), ("y",), {"a": object()})]))


@pytest.mark.parametrize("kind", DataType)
def test_tensors_of_every_type(kind):
    if kind is DataType.STRING:
        array = np.array(["one", "", "zwölf"], object)
    elif kind is DataType.BOOL:
        array = np.array([True, False, True])
    elif kind in (DataType.UINT2, DataType.INT2):
        array = np.array([1, 0, 1, 1, 1], np.int8).astype(kind.numpy)
    elif kind is DataType.FLOAT8E8M0:
        array = np.array([1, 2, 0.5], np.float32).astype(kind.numpy)
    else:
        array = np.array([1, 0, 3, 2, 1], np.int8).astype(kind.numpy)
    proto = tensor_proto(array, "w")
    again = onnx.numpy_helper.to_array(proto)
    if kind is DataType.STRING:
        assert again.tolist() == array.tolist()
    else:
        assert again.astype(np.complex128).tolist() == array.astype(np.complex128).tolist()
    graph = small([Node("n", "Neg", "", 13, ("x",), ("y",))])
    graph = graph.replace(initializers={"w": Initializer.from_array("w", array)})
    model = export_model(graph)
    onnx.checker.check_model(model)
    found = load_model(model).graph.initializers["w"]
    assert found.dtype is kind
    assert_equal(found.numpy(), array)


def test_tensors_in_any_layout():
    array = np.arange(6, dtype=">i4").reshape(2, 3).T
    again = onnx.numpy_helper.to_array(tensor_proto(array))
    assert again.tolist() == [[0, 3], [1, 4], [2, 5]]
    scalar = onnx.numpy_helper.to_array(tensor_proto(np.array(7.5)))
    assert (scalar.shape, scalar.item()) == ((), 7.5)
    assert onnx.numpy_helper.to_array(tensor_proto(np.zeros((2, 0)))).shape == (2, 0)
    assert tensor_proto(np.array(["a", "b"])).string_data == [b"a", b"b"]


def test_types_of_every_kind():
    kinds = [
        TensorType(DataType.FLOAT, (2, "N", None)),
        TensorType(DataType.FLOAT, ()),
        TensorType(DataType.FLOAT, None),
        SparseTensorType(DataType.FLOAT, (2,)),
        SequenceType(TensorType(DataType.STRING, None)),
        OptionalType(SequenceType(FLOAT2)),
        MapType(DataType.STRING, FLOAT2),
        SequenceType(MapType(DataType.INT64, TensorType(DataType.FLOAT, ()))),
    ]
    inputs = tuple(ValueInfo(f"i{n}", kind, f"doc {n}") for n, kind in enumerate(kinds))
    graph = small([Node("n", "Neg", "", 13, ("x",), ("y",))])
    graph = graph.replace(inputs=(*graph.inputs, *inputs))
    assert load_model(export_model(graph)).graph.inputs == graph.inputs


def test_versions():
    neg = Node("n", "Neg", "", 13, ("x",), ("y",))
    newest = onnx.defs.onnx_opset_version()
    for opset in (1, 9, 13, 17, 21, newest):
        model = export_model(small([neg], opsets=OpSet({"": opset})))
        assert 8 <= model.ir_version <= onnx.IR_VERSION
        assert [(item.domain, item.version) for item in model.opset_import] == [("", opset)]
    int4 = Initializer.from_array("w", np.zeros(2, DataType.INT4.numpy))
    old = small([neg], opsets=OpSet({"": 17}), initializers={"w": int4})
    assert export_model(old).ir_version == 10  # in which int4 came
    fused = Node("f", "Gelu", "com.microsoft", 1, ("x",), ("y",))
    imports = export_model(small([fused])).opset_import
    assert {item.domain: item.version for item in imports} == {"": 21, "com.microsoft": 1}


def test_defaults_of_inputs_stay_overridable():
    default = numpy_helper.from_array(np.ones(2, np.float32), "w")
    inputs = [info("x", 1, [2]), info("w", 1, [2])]
    graph = load([node("Add", ["x", "w"], ["y"])], inputs, [info("y", 1, [2])], [default])
    assert graph.overridable == {"w"}
    assert_same(graph, load_model(graph.to_model()).graph)


def test_weights_beyond_protobuf():
    def unread():
        raise AssertionError("read although it can't be exported")

    huge = Initializer("w", DataType.FLOAT, (2**29,), unread)
    graph = small([Node("n", "Neg", "", 13, ("x",), ("y",))], initializers={"w": huge})
    with pytest.raises(NotSupportedError, match="weights of at most"):
        export_model(graph)


def test_saving(tmp_path):
    graph = loop_graph()
    save_model(graph.to_model(), tmp_path / "m.onnx")
    assert_same(graph, load_model(tmp_path / "m.onnx").graph)
    with pytest.raises(OptionError, match="can't be saved"):
        save_model(graph.to_model(), tmp_path / "missing" / "m.onnx")


def test_names_of_external_tensors_do_not_leak(tmp_path):
    tensor = TensorProto(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    graph = helper.make_graph(
        [node("Add", ["x", "w"], ["y"])], "g", [info("x", 1, [2])], [info("y", 1, [2])], [tensor]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    exported = load_model(tmp_path / "m.onnx").graph.to_model()
    (weight,) = exported.graph.initializer
    assert not weight.external_data
    assert onnx.numpy_helper.to_array(weight).tolist() == [1, 2]
