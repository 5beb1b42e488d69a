from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from ep_tools.cli import main

pytestmark = pytest.mark.usefixtures("providers")

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[N,2] x) => (float[N,2] y) <float[2] w = {3.0, -5.0}> {
        a = Abs (x)  b = Mul (a, w)  y = Neg (b)
    }
"""
BRANCHES = """
    <ir_version: 9, opset_import: ["" : 20]>
    branches (bool flag, float[3] x) => (float[3] y) {
        a = Abs (x)
        y = If (flag) <
            then_branch = yes () => (float[3] p) { [inner] p = Mul (a, x) },
            else_branch = no () => (float[3] q) { q = Neg (a) }
        >
    }
"""


def dump(capsys, *arguments: str):
    assert main(["dump", *arguments, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_the_node_alone_repeats_the_values(model, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--node", "b", "--input", "x=[[-1,2],[3,-4]]", "--out", str(out)]
    document = dump(capsys, model(CHAIN), *arguments)
    assert document["operator"] == "Mul"
    assert document["reproduced"] is True
    proto = onnx.load(out / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [node.op_type for node in proto.graph.node] == ["Mul"]
    assert [info.name for info in proto.graph.input] == ["a"]
    data = out / "test_data_set_0"
    a, b = (
        numpy_helper.to_array(onnx.TensorProto.FromString((data / name).read_bytes()))
        for name in ("input_0.pb", "output_0.pb")
    )
    np.testing.assert_array_equal(a, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(b, [[3, -10], [9, -20]])
    (again,) = ReferenceEvaluator(proto).run(None, {"a": a})
    np.testing.assert_array_equal(again, b)
    arrays = {path.name: np.load(path) for path in (out / "inputs").iterdir()}
    np.testing.assert_array_equal(arrays["a.npy"], a)
    np.testing.assert_array_equal(arrays["w.npy"], [3, -5])
    np.testing.assert_array_equal(np.load(out / "outputs" / "b.npy"), b)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "out"]


def test_values_are_those_of_the_provider_that_was_asked_for(model, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--node", "Mul_1", "--input", "x=2", "--providers", "skewed,reference"]
    document = dump(capsys, model(CHAIN), *arguments, "--out", str(out))
    np.testing.assert_array_equal(np.load(out / "outputs" / "b.npy"), [[6.5, -9.5]])
    assert document["reproduced"] is True


def test_lines(model, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["dump", model(CHAIN), "--node", "y", "--out", out]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "Neg_2 (Neg)"
    assert "gives  y  tensor(float)  [1, 2]" in shown
    assert shown.splitlines()[-1] == "run by itself, the node gives the same bits"


def test_control_flow_as_a_whole(model, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--input", "flag=false", "--input", "x=2", "--out", str(out)]
    document = dump(capsys, model(BRANCHES), "--node", "y", *arguments)
    assert document["reproduced"] is True
    names = [info.name for info in onnx.load(out / "model.onnx").graph.input]
    assert sorted(names) == ["a", "flag", "x"]
    np.testing.assert_array_equal(np.load(out / "outputs" / "y.npy"), [-2, -2, -2])


def test_a_node_in_a_body_is_refused_with_the_way_out(model, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["dump", model(BRANCHES), "--node", "inner", "--out", out]) == 1
    assert "control-flow node around it" in capsys.readouterr().err


def test_an_unknown_node(model, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["dump", model(CHAIN), "--node", "Mul_2", "--out", str(out)]) == 1
    assert "Mul_1" in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_in_use_is_left_alone(model, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    out = str(tmp_path / "out")
    assert main(["dump", model(CHAIN), "--node", "b", "--out", out]) == 1
    assert "new or empty folder" in capsys.readouterr().err
    assert (tmp_path / "out" / "mine").read_text() == "kept"


def test_a_place_that_cannot_be_written(model, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")
    assert main(["dump", model(CHAIN), "--node", "b", "--out", out]) == 1
    assert "can't be written" in capsys.readouterr().err
