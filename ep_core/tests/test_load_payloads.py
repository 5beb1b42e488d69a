"""Weights that are taken out of a model before protobuf sees it: as if they never had been."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ep_core.errors import EpError, InvalidModelError
from ep_core.loading import payloads
from ep_core.loading.load import load_model
from ep_core.types import DataType

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])


def model(*tensors):
    relu = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([relu], "g", [X], [Y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def tensor(name, count=6, dtype=np.float32):
    return numpy_helper.from_array(np.arange(1, count + 1).astype(dtype), name)


MODEL = model(tensor("a"), tensor("bits", 9, np.bool_), tensor("c", 5, np.float16))


@pytest.fixture
def everything(monkeypatch):
    """All models are looked through and all payloads taken out."""
    _take_all(monkeypatch)


def _take_all(monkeypatch):
    monkeypatch.setattr(payloads, "LEAST_FILE_BYTES", 0)
    monkeypatch.setattr(payloads, "_LEAST_BYTES", 1)
    monkeypatch.setattr(payloads, "_PIECE_BYTES", 7)


def outcome(data):
    """What loading gives, in a form that can be compared."""
    try:
        graph = load_model(data).graph
    except EpError as error:
        return type(error), str(error)
    values = {n: (i.dtype, i.shape, i.numpy().tolist()) for n, i in graph.initializers.items()}
    return graph.input_names, graph.output_names, [n.op_type for n in graph.nodes], repr(values)


def test_payloads_are_taken_out(everything):
    data = MODEL.SerializeToString()
    small, found = payloads.lift_payloads(data)
    assert [bytes(view) for view in found.values()] == [t.raw_data for t in MODEL.graph.initializer]
    left = ModelProto.FromString(small)
    assert [t.raw_data for t in left.graph.initializer] == [b""] * 3
    for given_tensor, tensor_left in zip(
        MODEL.graph.initializer, left.graph.initializer, strict=True
    ):
        assert (tensor_left.name, tensor_left.dims) == (given_tensor.name, given_tensor.dims)
        assert tensor_left.data_location == TensorProto.EXTERNAL
    assert left.graph.node == MODEL.graph.node


def test_the_graph_is_the_same(monkeypatch):
    before = outcome(MODEL)
    _take_all(monkeypatch)
    assert outcome(MODEL) == before
    assert "True" in before[3]


def test_large_weights_by_path_and_by_bytes(tmp_path):
    weight = np.random.default_rng(0).standard_normal((700, 500)).astype(np.float32)
    path = tmp_path / "model.onnx"
    path.write_bytes(
        model(tensor("odd", 3), numpy_helper.from_array(weight, "w")).SerializeToString()
    )
    data = path.read_bytes()
    graphs = [load_model(source).graph for source in (path, data, bytearray(data))]
    path.write_bytes(b"no longer a model")
    for graph in graphs:
        found = graph.initializers["w"].numpy()
        np.testing.assert_array_equal(found, weight)
        assert found.flags.aligned
        assert not found.flags.writeable


def doubled(data):
    """Two graphs, which protobuf merges."""
    return data + MODEL.SerializeToString()


def twice(data):
    """A tensor that tells its data twice, of which the last counts."""
    first = TensorProto(raw_data=b"1234").SerializeToString()
    whole = model(tensor("a"))
    part = whole.graph.initializer[0].SerializeToString()
    at = data.index(part)
    joined = payloads._delimited(5, first + part)
    begin = at - len(payloads._delimited(5, part)) + len(part)
    graph = whole.graph.SerializeToString()
    start = data.index(graph)
    inner = data[start:begin] + joined + data[at + len(part) : start + len(graph)]
    head = start - len(payloads._delimited(7, graph)) + len(graph)
    return data[:head] + payloads._delimited(7, inner) + data[start + len(graph) :]


def short(data):
    return model(TensorProto(name="a", data_type=1, dims=[9], raw_data=b"12345678"))


def text(data):
    return model(TensorProto(name="a", data_type=8, dims=[1], raw_data=b"text"))


def elsewhere(data):
    proto = TensorProto(name="a", data_type=1, dims=[1], raw_data=b"1234", data_location=1)
    proto.external_data.add(key="location", value="0/0")
    return model(proto)


@pytest.mark.parametrize("change", [doubled, twice, short, text, elsewhere])
def test_what_is_unusual_is_as_protobuf_has_it(monkeypatch, change):
    changed = change(model(tensor("a")).SerializeToString())
    before = outcome(changed)
    _take_all(monkeypatch)
    assert outcome(changed) == before


def test_no_model_knows_where_payloads_are(everything):
    proto = TensorProto(name="b", data_type=int(DataType.FLOAT), dims=[6], data_location=1)
    word = next(iter(payloads.lift_payloads(MODEL.SerializeToString())[1]))
    proto.external_data.add(key="location", value=word)
    with pytest.raises(InvalidModelError, match="is in another file"):
        load_model(model(tensor("a"), proto))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255), st.booleans())
def test_damaged_models_come_out_the_same(place, byte, cut):
    data = bytearray(MODEL.SerializeToString())
    place %= len(data)
    data[place] = byte
    if cut:
        del data[place:]
    before = outcome(bytes(data))
    with pytest.MonkeyPatch.context() as monkeypatch:
        _take_all(monkeypatch)
        assert outcome(bytes(data)) == before
