from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from ep_tools.cli import main

BRANCHES = """
    <ir_version: 9, opset_import: ["" : 20, "custom" : 1], producer_name: "us",
     producer_version: "2.5", metadata_props: ["labels": "cat dog"]>
    branches (bool flag, float[batch, "", 3] x, float[1] w) => (float[batch, 5, 3] y)
    <float[1] w = {2}, float[2, 2] table = {1, 2, 3, 4}>
    {
        two = Constant <value: tensor = int64[2] {1, 2}> ()
        twice = custom.Twice (x)
        y = If (flag) <
            then_branch = yes () => (float[batch, 5, 3] a) { b = Relu (twice)  a = Relu (b) },
            else_branch = no () => (float[batch, 5, 3] c) { c = Mul (twice, w) }
        >
    }
    <domain: "custom", opset_import: ["" : 20]>
    Twice (value) => (result) { result = Add (value, value) }
"""


def info(capsys, path: str):
    assert main(["info", path, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


@pytest.fixture(autouse=True)
def no_providers(monkeypatch):
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "0")


def test_everything_is_counted(model, capsys):
    path = model(BRANCHES)
    document = info(capsys, path)
    assert document["file_bytes"] == Path(path).stat().st_size
    assert document["external_bytes"] == {}
    assert document["ir_version"] == 9
    assert document["opsets"]["ai.onnx"] == 20
    assert document["producer"] == {"name": "us", "version": "2.5"}
    assert document["graph_name"] == "branches"
    assert document["metadata"] == {"labels": "cat dog"}
    assert document["functions"] == ["custom.Twice"]
    assert document["inputs"] == [
        {"name": "flag", "type": "tensor(bool)", "shape": []},
        {"name": "x", "type": "tensor(float)", "shape": ["batch", None, 3]},
    ]
    assert document["inputs_with_default"][0]["name"] == "w"
    assert document["outputs"] == [{"name": "y", "type": "tensor(float)", "shape": ["batch", 5, 3]}]
    assert document["nodes"] == {"main": 2, "bodies": 3, "nesting": 1}
    assert document["control_flow"] == {"If": 1}
    counts = {
        entry["operator"]: (entry["main"], entry["bodies"]) for entry in document["operators"]
    }
    assert counts == {"Relu": (0, 2), "If": (1, 0), "Add": (1, 0), "Mul": (0, 1)}
    assert document["operators"][0]["operator"] == "Relu", "the most frequent comes first"
    parameters = document["parameters"]
    assert (parameters["tensors"], parameters["elements"], parameters["bytes"]) == (3, 7, 36)
    assert parameters["bytes_by_type"] == {"float": 20, "int64": 16}
    assert document["values_by_type"] == {"float": 7, "bool": 1}


def test_lines_say_the_same(model, capsys):
    assert main(["info", model(BRANCHES)]) == 0
    shown = capsys.readouterr().out
    for text in [
        "format      IR version 9, opset ai.onnx 20",
        "producer    us 2.5",
        "metadata    labels: cat dog",
        "nodes       2, and 3 in bodies, up to 1 deep; 1 If",
        "functions   custom.Twice",
        "parameters  7 in 3 tensors: float 20 B, int64 16 B",
        "  x     tensor(float)  [batch, ?, 3]",
        "inputs with a default\n  w  tensor(float)  [1]",
        "  2  Relu  (2 in bodies)",
    ]:
        assert text in shown


def test_an_unknown_rank_is_told_from_a_scalar(model, capsys):
    path = model(
        '<ir_version: 9, opset_import: ["" : 20]> g (float x) => (float y) { y = Abs (x) }'
    )
    assert info(capsys, path)["inputs"][0]["shape"] == []
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, path)
    assert info(capsys, path)["inputs"][0]["shape"] is None
    assert main(["info", path]) == 0
    assert "x  tensor(float)  unknown rank" in capsys.readouterr().out


def test_external_data_is_counted_by_file(tmp_path: Path, capsys):
    path = tmp_path / "big.onnx"
    weights = [
        onnx.numpy_helper.from_array(np.zeros(length, np.float32), f"w{length}")
        for length in (1000, 2000)
    ]
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (float[1] x) => (float[2000] y) '
        "{ z = ReduceSum <keepdims = 0> (w1000)  a = Add (x, z)  y = Add (a, w2000) }"
    )
    proto.graph.initializer.extend(weights)
    onnx.save(proto, path, save_as_external_data=True, location="big.data", size_threshold=0)
    document = info(capsys, str(path))
    assert document["external_bytes"] == {"big.data": 12000}
    assert document["file_bytes"] < 2000
    assert main(["info", str(path)]) == 0
    assert "and external data: big.data 11.7 KiB" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["absent.onnx", ".", "text.onnx"])
def test_what_is_no_model_is_one_message(name, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.onnx").write_text("no model")
    assert main(["info", name]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("ep: error: ")
